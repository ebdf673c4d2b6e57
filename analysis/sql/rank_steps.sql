-- One row a rank and step whose peaks cover that step only (scope interval); `touched` tells that the allocator had to free its cache and
-- retry, or threw, in that step.
WITH step AS (
    SELECT
        run, run_index, rank, iteration, MAX(COALESCE(max_allocated_bytes, allocated_bytes)) AS max_allocated_bytes,
        MAX(COALESCE(max_reserved_bytes, reserved_bytes)) AS max_reserved_bytes, MAX(device_used_bytes) AS device_used_bytes
    FROM rank_memory
    WHERE scope = 'interval' AND COALESCE(valid, TRUE) AND rank IS NOT NULL AND iteration IS NOT NULL
    GROUP BY run, run_index, rank, iteration
), counted AS (
    SELECT run, run_index, rank, iteration, MAX(COALESCE(num_alloc_retries, 0) + COALESCE(num_ooms, 0)) AS touches,
        MAX(active_bytes_all_peak_bytes) AS max_active_bytes
    FROM memory_stats
    WHERE scope = 'interval' AND COALESCE(valid, TRUE) AND rank IS NOT NULL AND iteration IS NOT NULL
    GROUP BY run, run_index, rank, iteration
), risen AS (
    SELECT *, touches - LAG(touches) OVER (PARTITION BY run, run_index, rank ORDER BY iteration) AS new_touches
    FROM counted
)
SELECT
    step.run, step.run_index, step.rank, step.iteration,
    CASE WHEN risen.max_active_bytes > step.max_allocated_bytes THEN risen.max_active_bytes ELSE step.max_allocated_bytes END AS max_allocated_bytes,
    step.max_reserved_bytes, step.device_used_bytes, COALESCE(risen.new_touches, 0) > 0 AS touched
FROM step
LEFT JOIN risen ON risen.run = step.run AND risen.run_index = step.run_index AND risen.rank = step.rank AND risen.iteration = step.iteration
