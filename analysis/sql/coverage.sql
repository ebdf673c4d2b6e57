-- One row an attempt: ranks seen and measured of the world size, records that prove no rank, and rejects of its artifacts.
WITH unplaced AS (
    SELECT run, run_index, COUNT(*) AS unplaced_records FROM rank_memory WHERE rank IS NULL GROUP BY run, run_index
), invalid AS (
    SELECT run, run_index, COUNT(*) AS invalid_records FROM rank_memory WHERE NOT COALESCE(valid, TRUE) GROUP BY run, run_index
), placed AS (
    SELECT run, run_index, COUNT(*) AS ranks_placed, COUNT(DISTINCT pp) AS stages_seen FROM rank_layout GROUP BY run, run_index
)
SELECT
    attempt.run, attempt.run_index, attempt.world_size, attempt.ranks_seen, attempt.ranks_measured, COALESCE(placed.ranks_placed, 0) AS ranks_placed,
    COALESCE(placed.stages_seen, 0) AS stages_seen, attempt.pipeline_model_parallel_size, COALESCE(unplaced.unplaced_records, 0) AS unplaced_records,
    COALESCE(invalid.invalid_records, 0) AS invalid_records
FROM run_attempts AS attempt
LEFT JOIN unplaced ON unplaced.run = attempt.run AND unplaced.run_index = attempt.run_index
LEFT JOIN invalid ON invalid.run = attempt.run AND invalid.run_index = attempt.run_index
LEFT JOIN placed ON placed.run = attempt.run AND placed.run_index = attempt.run_index
