-- One row a measured rank: stage, peaks, what lies outside torch, and how much of the device was never used.
-- soft headroom = capacity - outside - max reserved; hard headroom = capacity - outside - peak active (peak allocated where active is not
-- known). Outside comes from the rank itself, else from the largest of its stage; where neither is known both headrooms are null and
-- only their upper bound, capacity - max reserved, can be said.
WITH active AS (
    SELECT run, run_index, rank, MAX(active_bytes_all_peak_bytes) AS max_active_bytes
    FROM memory_stats
    WHERE COALESCE(valid, TRUE) AND rank IS NOT NULL
    GROUP BY run, run_index, rank
), died AS (
    SELECT run, run_index, rank,
        MAX(capacity_bytes - free_bytes - COALESCE(reserved_bytes, allocated_bytes + reserved_unallocated_bytes)) AS outside_bytes
    FROM oom_events
    WHERE rank IS NOT NULL
    GROUP BY run, run_index, rank
), own AS (
    SELECT
        latest.*, layout.pp, layout.tp, layout.cp, layout.ep, layout.dp, active.max_active_bytes,
        CASE WHEN latest.outside_bytes IS NOT NULL THEN latest.outside_bytes
             WHEN died.outside_bytes >= 0 THEN died.outside_bytes END AS own_outside_bytes
    FROM rank_latest AS latest
    LEFT JOIN rank_layout AS layout ON layout.run = latest.run AND layout.run_index = latest.run_index AND layout.rank = latest.rank
    LEFT JOIN active ON active.run = latest.run AND active.run_index = latest.run_index AND active.rank = latest.rank
    LEFT JOIN died ON died.run = latest.run AND died.run_index = latest.run_index AND died.rank = latest.rank
), staged AS (
    SELECT *, CASE WHEN pp IS NOT NULL THEN MAX(own_outside_bytes) OVER (PARTITION BY run, run_index, pp) END AS stage_outside_bytes FROM own
), known AS (
    SELECT
        own.run, own.run_index, own.rank, own.rank_label, own.pp, own.tp, own.cp, own.ep, own.dp,
        own.iteration, own.scope, own.records, own.iterations,
        own.allocated_bytes, own.max_allocated_bytes, own.reserved_bytes, own.max_reserved_bytes, own.device_used_bytes,
        CASE WHEN own.max_active_bytes > own.max_allocated_bytes THEN own.max_active_bytes ELSE own.max_allocated_bytes END AS peak_bytes,
        COALESCE(own.own_outside_bytes, own.stage_outside_bytes) AS outside_bytes,
        CASE WHEN own.own_outside_bytes IS NOT NULL THEN 'rank' WHEN own.stage_outside_bytes IS NOT NULL THEN 'stage' END AS outside_source,
        capacity.capacity_bytes, capacity.capacity_source, capacity.capacity_artifact, capacity.capacity_line,
        own.artifact, own.line, own.peak_iteration, own.peak_phase, own.peak_artifact, own.peak_line
    FROM staged AS own
    LEFT JOIN rank_capacity AS capacity ON capacity.run = own.run AND capacity.run_index = own.run_index
        AND COALESCE(capacity.rank, -1) = COALESCE(own.rank, -1) AND COALESCE(capacity.rank_label, '') = COALESCE(own.rank_label, '')
)
SELECT
    *,
    capacity_bytes - outside_bytes - max_reserved_bytes AS soft_headroom_bytes,
    capacity_bytes - outside_bytes - peak_bytes AS hard_headroom_bytes,
    capacity_bytes - max_reserved_bytes AS headroom_bound_bytes
FROM known
