-- One row a rank that a record names, of every attempt whose grid is known (`rank_grid`): where the rank sits on each axis. Ranks are numbers in
-- mixed radix, so that a digit is the rank over the axis's stride, modulo its size.
WITH seen AS (
    SELECT run, run_index, rank FROM rank_memory WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM rank_day WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM memory_stats WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM oom_events WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM memory_summary WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM device_memory WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM expert_load WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM snapshots WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM nccl_communicators WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM nccl_allocations WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM environment WHERE rank >= 0
    UNION SELECT run, run_index, rank FROM job_events WHERE rank >= 0
)
SELECT
    seen.run, seen.run_index, seen.rank,
    CAST(MOD(FLOOR(seen.rank / grid.tp_stride), grid.tp_size) AS INTEGER) AS tp,
    CAST(MOD(FLOOR(seen.rank / grid.cp_stride), grid.cp_size) AS INTEGER) AS cp,
    CAST(MOD(FLOOR(seen.rank / grid.ep_stride), grid.ep_size) AS INTEGER) AS ep,
    CAST(MOD(FLOOR(seen.rank / grid.etp_stride), grid.etp_size) AS INTEGER) AS etp,
    CAST(MOD(FLOOR(seen.rank / grid.dp_stride), grid.dp_size) AS INTEGER) AS dp,
    CAST(MOD(FLOOR(seen.rank / grid.pp_stride), grid.pp_size) AS INTEGER) AS pp
FROM seen
JOIN rank_grid AS grid ON grid.run = seen.run AND grid.run_index = seen.run_index AND seen.rank < grid.world_size
