-- The measured steps of one attempt, one row a rank and step, and whether the step counts for its rank. Parameters: $run, $run_index; over
-- `attempt_load`. Where the load of a rank varies, its steps of high load count; where it does not, or nothing is known of it, every step does. Where
-- some of its steps have a load, the others are of unknown load, not of low: `counts` is null. `varies` is null where nothing is known.
WITH known AS (
    SELECT DISTINCT rank FROM attempt_load
)
SELECT
    steps.rank, steps.iteration, steps.scope = 'interval' AS own, steps.max_allocated_bytes, steps.max_reserved_bytes, steps.reserved_bytes,
    steps.touched, steps.exact, steps.reserved_exact, load.varies,
    CASE WHEN load.varies THEN load.high WHEN load.varies IS NULL AND known.rank IS NOT NULL THEN NULL ELSE TRUE END AS counts
FROM rank_steps AS steps
LEFT JOIN attempt_load AS load ON load.rank = steps.rank AND load.iteration = steps.iteration
LEFT JOIN known ON known.rank = steps.rank
WHERE steps.run = $run AND steps.run_index = $run_index
