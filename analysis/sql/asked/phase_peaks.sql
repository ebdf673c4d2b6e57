-- The largest peak of each rank in each phase that is no plain training step, beside the rank's training peak. Over `attempt_steps`; parameters: $run,
-- $run_index, $since. A phase is told by the reading's own label, or by what the job logged: the first reading after an event (by line in one artifact, else by
-- iteration) holds what happened since; an evaluation or a save of unknown iteration did not happen before the first. `exact` is false where the
-- figure is only an upper bound: a maximum that did not rise there, or a first reading, which spans everything since the start. Training peaks are
-- those of steps that hold no such phase. Where only the steps from $since on are read (else it is -1), what happened before them tells nothing: it
-- lies before readings that are not seen.
WITH label AS (
    SELECT
        rank, iteration, artifact, line, LOWER(phase) AS label, COALESCE(source, '') AS source, scope = 'interval' OR max_allocated_bytes IS NULL AS own,
        CASE WHEN max_allocated_bytes IS NULL OR allocated_bytes > max_allocated_bytes THEN allocated_bytes ELSE max_allocated_bytes END AS peak_bytes
    FROM rank_memory
    WHERE run = $run AND run_index = $run_index AND COALESCE(valid, TRUE) AND rank IS NOT NULL AND phase <> 'train'
), labelled AS (
    SELECT
        *,
        CASE WHEN label LIKE '%before%save%' THEN NULL
             WHEN label LIKE '%save%checkpoint%' OR label LIKE '%checkpoint%sav%' OR label LIKE '%save%ckpt%' OR label LIKE '%ckpt%sav%'
                 THEN 'checkpoint save'
             WHEN label LIKE '%load%checkpoint%' OR label LIKE '%checkpoint%load%' OR label LIKE '%load%ckpt%' OR label LIKE '%ckpt%load%'
                 THEN 'checkpoint load'
             WHEN label LIKE '%offload%' OR label LIKE '%onload%' OR label LIKE '%sleep%' OR label LIKE '%wake%' THEN 'offload'
             WHEN label LIKE '%eval%' OR label LIKE '%validat%' THEN 'evaluation'
             WHEN source = 'cuda_graph' OR label LIKE '%graph%' OR label LIKE '%captur%' THEN 'CUDA graph capture'
             WHEN label LIKE '%init%' OR label LIKE '%setup%' OR label LIKE '%build%model%' OR label LIKE '%load%model%' THEN 'initialisation'
        END AS phase
    FROM label
), followed AS (
    SELECT
        rank, COALESCE(iteration, -1) AS iteration, artifact, line,
        MAX(CASE WHEN max_allocated_bytes IS NULL OR allocated_bytes > max_allocated_bytes THEN allocated_bytes ELSE max_allocated_bytes END) OVER (
            PARTITION BY rank ORDER BY COALESCE(iteration, -1), line ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_bytes
    FROM rank_memory
    WHERE run = $run AND run_index = $run_index AND COALESCE(valid, TRUE) AND rank IN (SELECT rank FROM labelled WHERE phase IS NOT NULL)
), said AS (
    SELECT
        labelled.rank, labelled.phase, labelled.iteration, labelled.peak_bytes, COALESCE(labelled.own, FALSE) OR labelled.peak_bytes > followed.before_bytes
            AS exact, 'label' AS told_by, labelled.artifact, labelled.line
    FROM labelled
    LEFT JOIN followed ON followed.rank = labelled.rank AND followed.artifact = labelled.artifact AND followed.line = labelled.line
        AND followed.iteration = COALESCE(labelled.iteration, -1)
    WHERE labelled.phase IS NOT NULL
), happened AS (
    SELECT
        CASE event WHEN 'checkpoint_saved' THEN 'checkpoint save' WHEN 'checkpoint_save_started' THEN 'checkpoint save'
            WHEN 'checkpoint_loaded' THEN 'checkpoint load' WHEN 'checkpoint_load_started' THEN 'checkpoint load' WHEN 'evaluation' THEN 'evaluation'
            WHEN 'cuda_graph_built' THEN 'CUDA graph capture' END AS phase,
        COALESCE(iteration, -1) AS iteration, artifact, line
    FROM job_events
    WHERE run = $run AND run_index = $run_index
        AND (iteration IS NOT NULL OR event NOT IN ('evaluation', 'checkpoint_saved', 'checkpoint_save_started'))
        AND COALESCE(iteration, -1) >= $since
    UNION ALL
    SELECT 'evaluation', iteration, artifact, line
    FROM iterations
    WHERE run = $run AND run_index = $run_index AND iteration >= $since AND phase = 'validation'
    UNION ALL
    SELECT 'first optimizer step', MIN(iteration) - 1, CAST(NULL AS VARCHAR), CAST(NULL AS BIGINT)
    FROM iterations
    WHERE run = $run AND run_index = $run_index AND COALESCE(skipped, 0) = 0 AND COALESCE(phase, 'train') <> 'validation'
        AND $since = -1
), step AS (
    SELECT DISTINCT iteration FROM attempt_steps
), span AS (
    SELECT happened.phase, happened.iteration, happened.artifact, MAX(happened.line) AS line, MIN(step.iteration) AS next_iteration
    FROM happened
    JOIN step ON step.iteration > happened.iteration
    WHERE happened.phase IS NOT NULL
    GROUP BY happened.phase, happened.iteration, happened.artifact
), within AS (
    SELECT DISTINCT phase, next_iteration AS iteration, CAST(NULL AS VARCHAR) AS artifact, CAST(NULL AS BIGINT) AS line FROM span
    UNION ALL
    SELECT phase, iteration, artifact, line FROM span WHERE artifact IS NOT NULL
), place AS (
    SELECT rank, iteration, MIN(artifact) AS artifact, MIN(line) AS line
    FROM rank_memory
    WHERE run = $run AND run_index = $run_index AND COALESCE(valid, TRUE) AND iteration IN (SELECT iteration FROM within)
    GROUP BY rank, iteration
), start AS (
    SELECT rank, MIN(iteration) AS iteration FROM attempt_steps GROUP BY rank
), coincided AS (
    SELECT
        steps.rank, within.phase, steps.iteration, steps.max_allocated_bytes AS peak_bytes,
        steps.exact AND (steps.own OR steps.iteration > start.iteration) AS exact, 'event' AS told_by, place.artifact, place.line
    FROM within
    JOIN attempt_steps AS steps ON steps.iteration = within.iteration
    JOIN start ON start.rank = steps.rank
    JOIN place ON place.rank = steps.rank AND place.iteration = steps.iteration
    WHERE steps.max_allocated_bytes IS NOT NULL AND (within.artifact IS NULL OR (place.artifact = within.artifact AND place.line > within.line))
), found AS (
    SELECT * FROM said
    UNION ALL
    SELECT * FROM coincided
), aside AS (
    SELECT DISTINCT rank, iteration FROM found WHERE iteration IS NOT NULL
), training AS (
    SELECT steps.rank, MAX(steps.max_allocated_bytes) AS training_bytes
    FROM attempt_steps AS steps
    LEFT JOIN aside ON aside.rank = steps.rank AND aside.iteration = steps.iteration
    WHERE aside.rank IS NULL AND steps.exact
    GROUP BY steps.rank
), placed AS (
    SELECT
        found.*, training.training_bytes, COUNT(*) OVER (PARTITION BY found.phase) AS readings,
        ROW_NUMBER() OVER (PARTITION BY found.phase ORDER BY CASE WHEN found.exact THEN 0 ELSE 1 END, found.peak_bytes DESC, found.rank, found.iteration)
            AS nth
    FROM found
    LEFT JOIN training ON training.rank = found.rank
    WHERE found.peak_bytes IS NOT NULL
)
SELECT placed.phase, placed.rank, placed.iteration, placed.peak_bytes, COALESCE(placed.exact, FALSE) AS exact, placed.told_by, placed.training_bytes,
    placed.readings, COALESCE(piece.path, placed.artifact) AS path, placed.line
FROM placed
LEFT JOIN artifacts AS piece ON piece.artifact = placed.artifact
WHERE placed.nth = 1
ORDER BY placed.peak_bytes DESC, placed.phase
