-- One row a rank and step. `exact` tells that the peaks are this step's own: the artifact resets them each step (scope interval), or a maximum
-- since the start rose here; else they are upper bounds, for a maximum that did not move says only that this step stayed below it.
-- `touched` tells that the allocator had to free its cache and retry, or threw, in that step. Where one step has both scopes, interval wins.
WITH reading AS (
    SELECT
        run, run_index, rank, iteration, scope = 'interval' AS own,
        CASE WHEN max_allocated_bytes IS NULL OR allocated_bytes > max_allocated_bytes THEN allocated_bytes ELSE max_allocated_bytes END AS peak_bytes,
        CASE WHEN max_reserved_bytes IS NULL OR reserved_bytes > max_reserved_bytes THEN reserved_bytes ELSE max_reserved_bytes END AS held_bytes,
        reserved_bytes, device_used_bytes, artifact, line
    FROM rank_memory
    WHERE COALESCE(valid, TRUE) AND rank IS NOT NULL AND iteration IS NOT NULL
), interval_step AS (
    SELECT
        run, run_index, rank, iteration, 'interval' AS scope, MAX(peak_bytes) AS max_allocated_bytes, MAX(held_bytes) AS max_reserved_bytes,
        MAX(reserved_bytes) AS reserved_bytes, MAX(device_used_bytes) AS device_used_bytes, TRUE AS exact, TRUE AS reserved_exact,
        MIN(artifact) AS artifact, MIN(line) AS line
    FROM reading
    WHERE own
    GROUP BY run, run_index, rank, iteration
), cumulative AS (
    SELECT
        run, run_index, rank, iteration, MAX(peak_bytes) AS max_allocated_bytes, MAX(held_bytes) AS max_reserved_bytes,
        MAX(reserved_bytes) AS reserved_bytes, MAX(device_used_bytes) AS device_used_bytes, MIN(artifact) AS artifact, MIN(line) AS line
    FROM reading
    WHERE NOT COALESCE(own, FALSE)
    GROUP BY run, run_index, rank, iteration
), ordered AS (
    SELECT
        *, MAX(max_allocated_bytes) OVER before AS allocated_before, MAX(max_reserved_bytes) OVER before AS reserved_before
    FROM cumulative
    WINDOW before AS (PARTITION BY run, run_index, rank ORDER BY iteration ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), step AS (
    SELECT * FROM interval_step
    UNION ALL
    SELECT
        ordered.run, ordered.run_index, ordered.rank, ordered.iteration, 'cumulative' AS scope, ordered.max_allocated_bytes,
        ordered.max_reserved_bytes, ordered.reserved_bytes, ordered.device_used_bytes,
        ordered.allocated_before IS NULL OR ordered.max_allocated_bytes > ordered.allocated_before AS exact,
        ordered.reserved_before IS NULL OR ordered.max_reserved_bytes > ordered.reserved_before AS reserved_exact, ordered.artifact, ordered.line
    FROM ordered
    LEFT JOIN interval_step AS own ON own.run = ordered.run AND own.run_index = ordered.run_index AND own.rank = ordered.rank
        AND own.iteration = ordered.iteration
    WHERE own.run IS NULL
), counted AS (
    SELECT run, run_index, rank, iteration, MAX(COALESCE(num_alloc_retries, 0) + COALESCE(num_ooms, 0)) AS touches,
        MAX(CASE WHEN scope = 'interval' THEN active_bytes_all_peak_bytes END) AS max_active_bytes
    FROM memory_stats
    WHERE COALESCE(valid, TRUE) AND rank IS NOT NULL AND iteration IS NOT NULL
    GROUP BY run, run_index, rank, iteration
), risen AS (
    SELECT *, touches - LAG(touches) OVER (PARTITION BY run, run_index, rank ORDER BY iteration) AS new_touches
    FROM counted
)
SELECT
    step.run, step.run_index, step.rank, step.iteration, step.scope,
    CASE WHEN risen.max_active_bytes > step.max_allocated_bytes THEN risen.max_active_bytes ELSE step.max_allocated_bytes END AS max_allocated_bytes,
    step.max_reserved_bytes, step.reserved_bytes, step.device_used_bytes, COALESCE(risen.new_touches, 0) > 0 AS touched,
    step.exact, step.reserved_exact, step.artifact, step.line
FROM step
LEFT JOIN risen ON risen.run = step.run AND risen.run_index = step.run_index AND risen.rank = step.rank AND risen.iteration = step.iteration
