-- Where the steps in which a rank got the most tokens were read, the fullest first. Parameters: $run, $run_index, $rank, $steps (all where empty), $most.
-- A step has a line for each layer; the line is that of the layer and pass whose experts got the most.
WITH layer_pass AS (
    SELECT iteration, artifact, line, layer, microbatch, MAX(pass_tokens) AS pass_tokens
    FROM expert_load
    WHERE run = $run AND run_index = $run_index AND rank = $rank AND iteration IS NOT NULL
        AND (LEN($steps) = 0 OR LIST_CONTAINS($steps, iteration))
    GROUP BY iteration, artifact, line, layer, microbatch
), step AS (
    SELECT
        iteration, SUM(pass_tokens) AS tokens, ARG_MAX(artifact, pass_tokens) AS artifact, ARG_MAX(line, pass_tokens) AS line
    FROM layer_pass
    GROUP BY iteration
)
SELECT step.iteration, step.tokens, COALESCE(piece.path, step.artifact) AS path, step.line
FROM step
LEFT JOIN artifacts AS piece ON piece.artifact = step.artifact
ORDER BY step.tokens DESC, step.iteration
LIMIT $most
