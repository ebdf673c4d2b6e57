-- One row an attempt: what it was, how much of it was seen, its fullest rank, the least that was left on any rank, and the class of its verdict:
-- oom (an error, or a kill by the host), near (a rank came within the margin), undetermined (headroom of a measured rank is not known), insufficient (clear over fewer than five
-- steps), clear, unknown (no rank was measured). From the rollups: raw records are not read.
WITH ranked AS (
    SELECT * FROM fleet_ranks
), seen AS (
    SELECT
        cluster, run, run_index, COUNT(DISTINCT rank) AS ranks_measured, MIN(first_day) AS first_day, MAX(last_day) AS last_day,
        MIN(first_iteration) AS first_iteration, MAX(last_iteration) AS last_iteration, MIN(first_at) AS first_at, MAX(last_at) AS last_at,
        MIN(soft_headroom_bytes) AS soft_headroom_bytes, MIN(hard_headroom_bytes) AS hard_headroom_bytes, MIN(capacity_bytes) AS capacity_bytes,
        MAX(outside_bytes) AS outside_bytes, COUNT(DISTINCT stage) AS stages_measured,
        SUM(CASE WHEN soft_headroom_bytes IS NULL THEN 1 ELSE 0 END) AS unknown_ranks,
        SUM(CASE WHEN capacity_bytes - COALESCE(outside_bytes, 536870912) - GREATEST(COALESCE(max_reserved_bytes, peak_bytes),
                COALESCE(peak_bytes, max_reserved_bytes)) <= margin_bytes THEN 1 ELSE 0 END) AS near_ranks
    FROM ranked
    WHERE records > 0
    GROUP BY cluster, run, run_index
), ordered AS (
    SELECT cluster, run, run_index, rank, rank_label, stage, peak_bytes, max_reserved_bytes, records, first_iteration, last_iteration,
        ROW_NUMBER() OVER (PARTITION BY cluster, run, run_index ORDER BY peak_bytes DESC, rank) AS by_peak
    FROM ranked
    WHERE records > 0 AND peak_bytes IS NOT NULL
), died AS (
    SELECT cluster, run, run_index, COUNT(*) AS ooms, MIN(told.when_told) AS first_oom_at
    FROM (
        SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, oom_events.at AS when_told FROM oom_events
        UNION ALL
        SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), job_events.at FROM job_events WHERE event = 'host_killed'
    ) AS told
    GROUP BY cluster, run, run_index
), report AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, MAX(total_bytes) AS printed_bytes
    FROM theory_reports
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0)
)
SELECT
    attempt.cluster, attempt.run, attempt.run_index, attempt.framework, attempt.framework_version, grid.family, attempt.gpu_name,
    CASE WHEN attempt.gpu_name IS NOT NULL THEN attempt.gpu_name WHEN seen.capacity_bytes IS NOT NULL
         THEN CONCAT(CAST(CAST(ROUND(seen.capacity_bytes / 1073741824) AS INT) AS STRING), ' GiB device') END AS gpu,
    COALESCE(grid.world_size, attempt.world_size) AS world_size, attempt.tensor_model_parallel_size AS tp,
    COALESCE(grid.stages, attempt.pipeline_model_parallel_size) AS pp, attempt.context_parallel_size AS cp,
    attempt.expert_model_parallel_size AS ep, COALESCE(seen.ranks_measured, 0) AS ranks_measured,
    COALESCE(seen.stages_measured, 0) AS stages_measured, ordered.rank AS fullest_rank, ordered.rank_label AS fullest_label,
    ordered.stage AS fullest_stage, ordered.peak_bytes, ordered.max_reserved_bytes, seen.outside_bytes, seen.capacity_bytes,
    seen.soft_headroom_bytes, seen.hard_headroom_bytes, report.printed_bytes,
    CASE
        WHEN died.ooms > 0 THEN 'oom'
        WHEN seen.near_ranks > 0 THEN 'near'
        WHEN COALESCE(seen.ranks_measured, 0) = 0 AND ordered.by_peak IS NULL THEN 'unknown'
        WHEN seen.unknown_ranks > 0 THEN 'undetermined'
        WHEN ordered.records < 5 AND COALESCE(ordered.last_iteration - ordered.first_iteration + 1, 0) < 5 THEN 'insufficient'
        ELSE 'clear'
    END AS verdict,
    COALESCE(seen.near_ranks, 0) AS near_ranks, COALESCE(died.ooms, 0) AS ooms, died.first_oom_at, seen.first_iteration, seen.last_iteration,
    COALESCE(attempt.started_at, seen.first_at) AS started_at, COALESCE(attempt.ended_at, seen.last_at) AS ended_at, seen.first_day, seen.last_day
FROM fleet_attempts AS attempt
LEFT JOIN seen ON seen.cluster = attempt.cluster AND seen.run = attempt.run AND seen.run_index = attempt.run_index
LEFT JOIN ordered ON ordered.cluster = attempt.cluster AND ordered.run = attempt.run AND ordered.run_index = attempt.run_index
    AND ordered.by_peak = 1
LEFT JOIN died ON died.cluster = attempt.cluster AND died.run = attempt.run AND died.run_index = attempt.run_index
LEFT JOIN fleet_grid AS grid ON grid.cluster = attempt.cluster AND grid.run = attempt.run AND grid.run_index = attempt.run_index
LEFT JOIN report ON report.cluster = attempt.cluster AND report.run = attempt.run AND report.run_index = attempt.run_index
