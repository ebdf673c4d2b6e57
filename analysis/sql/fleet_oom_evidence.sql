-- One row an out-of-memory error or kill by the host, with what was known of the rank before it: the least allocated between steps, the most outside
-- torch (of the rank, else of the attempt), and its last reading. Readings of ranks that never died are not looked at.
WITH event AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, rank_label, iteration, oom_events.at, kind, requested_bytes,
        capacity_bytes, free_bytes, process_bytes, allocated_bytes, private_pool_bytes, reserved_unallocated_bytes, reserved_bytes, allowed_bytes,
        other, artifact, line
    FROM oom_events
), died AS (
    SELECT DISTINCT cluster, run, run_index, rank FROM event WHERE rank IS NOT NULL
), reading AS (
    SELECT
        died.cluster, died.run, died.run_index, died.rank, memory.iteration, memory.line, memory.artifact, memory.allocated_bytes,
        memory.reserved_bytes, CASE WHEN COALESCE(memory.phase, 'train') = 'train' THEN memory.allocated_bytes END AS between_bytes
    FROM rank_memory AS memory
    JOIN died ON died.run = memory.run AND died.run_index = COALESCE(memory.run_index, 0) AND died.rank = memory.rank
        AND died.cluster = COALESCE(memory.cluster, 'default')
    WHERE COALESCE(memory.valid, TRUE) AND memory.allocated_bytes > 0
), ordered AS (
    SELECT
        *, MIN(between_bytes) OVER (PARTITION BY cluster, run, run_index, rank) AS steady_bytes, ROW_NUMBER() OVER (
            PARTITION BY cluster, run, run_index, rank ORDER BY COALESCE(iteration, -1) DESC, line DESC, artifact DESC
        ) AS nth
    FROM reading
), own AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, run_index, rank, MAX(max_outside_bytes) AS outside_bytes
    FROM rank_days
    WHERE rank IS NOT NULL
    GROUP BY COALESCE(cluster, 'default'), run, run_index, rank
), placed AS (
    SELECT
        own.*, CASE WHEN own.rank >= 0 AND own.rank < grid.world_size THEN MOD(FLOOR(own.rank / grid.stride), grid.stages) END AS stage
    FROM own
    LEFT JOIN fleet_grid AS grid ON grid.cluster = own.cluster AND grid.run = own.run AND grid.run_index = own.run_index
), of_stage AS (
    SELECT cluster, run, run_index, stage, MAX(outside_bytes) AS outside_bytes
    FROM placed
    WHERE stage IS NOT NULL
    GROUP BY cluster, run, run_index, stage
), before AS (
    SELECT
        ordered.cluster, ordered.run, ordered.run_index, ordered.rank, ordered.steady_bytes, ordered.allocated_bytes, ordered.reserved_bytes,
        COALESCE(placed.outside_bytes, of_stage.outside_bytes) AS outside_bytes
    FROM ordered
    LEFT JOIN placed ON placed.cluster = ordered.cluster AND placed.run = ordered.run AND placed.run_index = ordered.run_index
        AND placed.rank = ordered.rank
    LEFT JOIN of_stage ON of_stage.cluster = placed.cluster AND of_stage.run = placed.run AND of_stage.run_index = placed.run_index
        AND of_stage.stage = placed.stage
    WHERE ordered.nth = 1
)
SELECT
    event.*, before.steady_bytes AS before_steady_bytes, before.outside_bytes AS before_outside_bytes,
    before.allocated_bytes AS before_allocated_bytes, before.reserved_bytes AS before_reserved_bytes
FROM event
LEFT JOIN before ON before.cluster = event.cluster AND before.run = event.run AND before.run_index = event.run_index AND before.rank = event.rank
UNION ALL
SELECT
    COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, rank_label, iteration, job_events.at, 'host', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, other, artifact, line, NULL, NULL, NULL, NULL
FROM job_events
WHERE event = 'host_killed'
