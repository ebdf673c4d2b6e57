-- One row a rank of an attempt of a cluster, over all its days: stage, maxima, what lies outside torch, capacity and headroom, from the daily rollups, so
-- that raw records are not read. The rules are those of `rank_headroom` and `rank_capacity`: the rank's own capacity before another rank's, outside from
-- the rank itself, else the largest of its stage; a headroom whose part is unknown is null.
WITH summed AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, rank_label,
        MIN(day) AS first_day, MAX(day) AS last_day, COUNT(*) AS days, CAST(SUM(records) AS BIGINT) AS records,
        CAST(SUM(interval_records) AS BIGINT) AS interval_records, MIN(first_iteration) AS first_iteration, MAX(last_iteration) AS last_iteration,
        MIN(first_at) AS first_at, MAX(last_at) AS last_at, MAX(max_allocated_bytes) AS max_allocated_bytes,
        MAX(max_active_bytes) AS max_active_bytes, MAX(max_reserved_bytes) AS max_reserved_bytes, MAX(max_device_used_bytes) AS device_used_bytes,
        MAX(max_outside_bytes) AS outside_bytes, MIN(device_total_bytes) AS device_total_bytes, CAST(SUM(ooms) AS BIGINT) AS ooms
    FROM rank_days
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, rank_label
), died AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, MIN(allowed_bytes) AS allowed_bytes,
        MIN(capacity_bytes) AS capacity_bytes,
        MAX(capacity_bytes - free_bytes - COALESCE(reserved_bytes, allocated_bytes + reserved_unallocated_bytes)) AS outside_bytes
    FROM oom_events
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank
), told AS (
    SELECT cluster, run, run_index, rank, allowed_bytes AS capacity_bytes, 0 AS preference FROM died WHERE allowed_bytes > 0
    UNION ALL
    SELECT cluster, run, run_index, rank, device_total_bytes, 1 FROM summed WHERE device_total_bytes > 0
    UNION ALL
    SELECT cluster, run, run_index, rank, capacity_bytes, 3 FROM died WHERE capacity_bytes > 0
    UNION ALL
    SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, MIN(total_bytes), 4
    FROM device_memory
    WHERE total_bytes > 0 AND COALESCE(valid, TRUE) AND COALESCE(source, '') <> 'host'
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank
    UNION ALL
    SELECT cluster, run, run_index, CAST(NULL AS INT), capacity_bytes, 5 FROM fleet_attempts WHERE capacity_bytes > 0
    UNION ALL
    SELECT cluster, run, run_index, CAST(NULL AS INT), usual_capacity_bytes, 6 FROM fleet_grid WHERE usual_capacity_bytes > 0
), own_capacity AS (
    SELECT cluster, run, run_index, rank, capacity_bytes, ROW_NUMBER() OVER (
        PARTITION BY cluster, run, run_index, rank ORDER BY preference, capacity_bytes
    ) AS nth
    FROM told
    WHERE rank IS NOT NULL
), any_capacity AS (
    SELECT cluster, run, run_index, capacity_bytes, ROW_NUMBER() OVER (
        PARTITION BY cluster, run, run_index ORDER BY preference, capacity_bytes
    ) AS nth
    FROM told
), placed AS (
    SELECT
        summed.*,
        CASE WHEN summed.rank >= 0 AND summed.rank < grid.world_size
             THEN CAST(MOD(FLOOR(summed.rank / grid.stride), grid.stages) AS INT) END AS stage,
        CASE WHEN summed.max_active_bytes > COALESCE(summed.max_allocated_bytes, 0) THEN summed.max_active_bytes
             ELSE summed.max_allocated_bytes END AS peak_bytes,
        CASE WHEN summed.outside_bytes IS NOT NULL THEN summed.outside_bytes
             WHEN died.outside_bytes >= 0 THEN died.outside_bytes END AS own_outside_bytes
    FROM summed
    LEFT JOIN fleet_grid AS grid ON grid.cluster = summed.cluster AND grid.run = summed.run AND grid.run_index = summed.run_index
    LEFT JOIN died ON died.cluster = summed.cluster AND died.run = summed.run AND died.run_index = summed.run_index AND died.rank = summed.rank
), of_stage AS (
    SELECT cluster, run, run_index, stage, MAX(own_outside_bytes) AS outside_bytes
    FROM placed
    WHERE stage IS NOT NULL
    GROUP BY cluster, run, run_index, stage
), known AS (
    SELECT
        placed.cluster, placed.run, placed.run_index, placed.rank, placed.rank_label, placed.stage, placed.first_day, placed.last_day, placed.days,
        placed.records, placed.interval_records, placed.first_iteration, placed.last_iteration, placed.first_at, placed.last_at, placed.ooms,
        placed.max_allocated_bytes, placed.peak_bytes, placed.max_reserved_bytes, placed.device_used_bytes,
        COALESCE(placed.own_outside_bytes, of_stage.outside_bytes) AS outside_bytes, placed.own_outside_bytes,
        COALESCE(own.capacity_bytes, other.capacity_bytes) AS capacity_bytes
    FROM placed
    LEFT JOIN of_stage ON of_stage.cluster = placed.cluster AND of_stage.run = placed.run AND of_stage.run_index = placed.run_index
        AND of_stage.stage = placed.stage
    LEFT JOIN own_capacity AS own ON own.cluster = placed.cluster AND own.run = placed.run AND own.run_index = placed.run_index
        AND own.rank = placed.rank AND own.nth = 1
    LEFT JOIN any_capacity AS other ON other.cluster = placed.cluster AND other.run = placed.run AND other.run_index = placed.run_index
        AND other.nth = 1
)
SELECT
    *,
    capacity_bytes - outside_bytes - max_reserved_bytes AS soft_headroom_bytes,
    capacity_bytes - outside_bytes - peak_bytes AS hard_headroom_bytes,
    capacity_bytes - max_reserved_bytes AS headroom_bound_bytes,
    GREATEST(2147483648, CAST(FLOOR(capacity_bytes * 3 / 100) AS BIGINT)) AS margin_bytes
FROM known
