-- Load of each rank and step in bytes: what its experts save for backward over layers and micro-batches in flight, plus the largest spike of one layer.
-- `recorded` tells what the lists hold: `once`; `doubled` (recomputation recorded each pass again: the repetitions are left out, or all beyond the
-- step's micro-batches); `merged` (virtual stages that share a layer index: their split cannot be recovered, so the mean micro-batch counts);
-- `undecidable` (passes pair up and neither micro-batches nor recomputation are known: no load is given). Coefficients are the table `load_rules`.
WITH per_pass AS (
    SELECT
        run, run_index, rank, iteration, microbatch, SUM(tokens) AS tokens, MAX(pass_tokens) AS layer_tokens,
        SUM(CASE WHEN repeated THEN tokens ELSE 0 END) AS repeated_tokens
    FROM expert_load
    WHERE rank IS NOT NULL AND iteration IS NOT NULL
    GROUP BY run, run_index, rank, iteration, microbatch
), per_step AS (
    SELECT run, run_index, rank, iteration, MAX(microbatch) + 1 AS passes, SUM(repeated_tokens) AS repeated_tokens
    FROM per_pass
    GROUP BY run, run_index, rank, iteration
), judged AS (
    SELECT
        step.*, rule.microbatches, rule.saved_bytes_a_token, rule.spike_bytes_a_token, rule.in_flight,
        CASE
            WHEN step.repeated_tokens > 0 AND rule.microbatches IS NULL AND rule.recomputed IS NULL THEN 'undecidable'
            WHEN step.passes = rule.microbatches OR step.passes = 1 THEN 'once'
            WHEN rule.microbatches IS NULL AND NOT (step.repeated_tokens > 0 AND rule.recomputed) THEN 'once'
            WHEN step.passes = 2 * rule.microbatches AND (rule.recomputed OR (step.repeated_tokens > 0 AND rule.recomputed IS NULL)) THEN 'doubled'
            WHEN rule.microbatches IS NULL THEN 'doubled'
            WHEN rule.chunks > 1 AND MOD(step.passes, rule.microbatches) = 0 THEN 'merged'
            ELSE 'once'
        END AS recorded
    FROM per_step AS step
    LEFT JOIN rank_layout AS place ON place.run = step.run AND place.run_index = step.run_index AND place.rank = step.rank
    LEFT JOIN load_rules AS rule ON rule.run = step.run AND rule.run_index = step.run_index AND rule.pp = COALESCE(place.pp, 0)
), kept AS (
    SELECT
        pass.run, pass.run_index, pass.rank, pass.iteration, judged.recorded, judged.saved_bytes_a_token, judged.spike_bytes_a_token, judged.in_flight,
        judged.passes, judged.microbatches, pass.layer_tokens,
        CASE WHEN judged.recorded = 'doubled' AND judged.repeated_tokens > 0 THEN pass.tokens - pass.repeated_tokens ELSE pass.tokens END AS tokens,
        ROW_NUMBER() OVER (PARTITION BY pass.run, pass.run_index, pass.rank, pass.iteration ORDER BY pass.microbatch) AS place
    FROM per_pass AS pass
    JOIN judged ON judged.run = pass.run AND judged.run_index = pass.run_index AND judged.rank = pass.rank AND judged.iteration = pass.iteration
    WHERE NOT (judged.recorded = 'doubled' AND CASE WHEN judged.repeated_tokens > 0 THEN pass.tokens = pass.repeated_tokens
                                                    ELSE pass.microbatch >= judged.microbatches END)
), summed AS (
    SELECT
        *, SUM(tokens) OVER (PARTITION BY run, run_index, rank, iteration ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS so_far
    FROM kept
), windowed AS (
    SELECT now_.*, now_.so_far - COALESCE(before.so_far, 0) AS alive_tokens
    FROM summed AS now_
    LEFT JOIN summed AS before ON before.run = now_.run AND before.run_index = now_.run_index AND before.rank = now_.rank
        AND before.iteration = now_.iteration AND before.place = now_.place - CAST(CEIL(now_.in_flight) AS BIGINT)
)
SELECT
    run, run_index, rank, iteration, MAX(recorded) AS recorded, MAX(passes) AS passes, SUM(tokens) AS routed_tokens,
    MAX(layer_tokens) AS largest_layer_tokens,
    CASE WHEN MAX(recorded) <> 'undecidable' THEN CAST(ROUND(MAX(saved_bytes_a_token) * CASE
        WHEN MAX(recorded) = 'merged' THEN SUM(tokens) * 1.0 / MAX(microbatches) * MAX(in_flight) ELSE MAX(alive_tokens) END) AS BIGINT) END AS saved_bytes,
    CASE WHEN MAX(recorded) <> 'undecidable' THEN MAX(spike_bytes_a_token) * MAX(layer_tokens) END AS spike_bytes,
    CASE WHEN MAX(recorded) <> 'undecidable' THEN CAST(ROUND(MAX(saved_bytes_a_token) * CASE
        WHEN MAX(recorded) = 'merged' THEN SUM(tokens) * 1.0 / MAX(microbatches) * MAX(in_flight) ELSE MAX(alive_tokens) END) AS BIGINT)
        + MAX(spike_bytes_a_token) * MAX(layer_tokens) END AS load_bytes
FROM windowed
GROUP BY run, run_index, rank, iteration
