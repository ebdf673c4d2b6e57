-- One row a pipeline stage: how many of its ranks were measured, and the fullest of them. Ranks whose stage is unknown form the row with
-- pp null; records that prove no rank are left out.
WITH measured AS (
    SELECT * FROM rank_headroom WHERE rank IS NOT NULL
)
SELECT
    run, run_index, pp, COUNT(*) AS ranks, MIN(rank) AS first_rank, MAX(rank) AS last_rank,
    MIN(allocated_bytes) AS min_allocated_bytes, MAX(allocated_bytes) AS allocated_bytes, MAX(max_allocated_bytes) AS max_allocated_bytes,
    MAX(reserved_bytes) AS reserved_bytes, MAX(max_reserved_bytes) AS max_reserved_bytes, MAX(device_used_bytes) AS device_used_bytes,
    MAX(outside_bytes) AS outside_bytes, MIN(capacity_bytes) AS capacity_bytes, MIN(soft_headroom_bytes) AS soft_headroom_bytes,
    MIN(hard_headroom_bytes) AS hard_headroom_bytes, MIN(headroom_bound_bytes) AS headroom_bound_bytes
FROM measured
GROUP BY run, run_index, pp
