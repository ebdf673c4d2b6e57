-- One row a rank of which it is known what lay outside torch at its most: the host it ran on, and how far it lies above the median rank of its stage
-- (of the attempt where the stage is not known). The host is what any artifact of the rank tells; null where none does.
WITH told AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, host FROM environment
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, host FROM nccl_communicators
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, host FROM nccl_allocations
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, host FROM device_memory
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), rank, host FROM job_events
), host_of AS (
    SELECT cluster, run, run_index, rank, MIN(host) AS host
    FROM told
    WHERE rank IS NOT NULL AND host IS NOT NULL
    GROUP BY cluster, run, run_index, rank
), known AS (
    SELECT cluster, run, run_index, rank, stage, own_outside_bytes AS outside_bytes, capacity_bytes, first_day, last_day
    FROM fleet_ranks
    WHERE rank IS NOT NULL AND own_outside_bytes IS NOT NULL
), typical AS (
    SELECT cluster, run, run_index, stage, MEDIAN(outside_bytes) AS median_bytes FROM known GROUP BY cluster, run, run_index, stage
)
SELECT
    known.cluster, known.run, known.run_index, known.rank, known.stage, host_of.host, known.outside_bytes,
    CAST(ROUND(typical.median_bytes) AS BIGINT) AS median_bytes,
    known.outside_bytes - CAST(ROUND(typical.median_bytes) AS BIGINT) AS over_median_bytes,
    known.outside_bytes * 1.0 / known.capacity_bytes AS capacity_share, known.first_day, known.last_day
FROM known
JOIN typical ON typical.cluster = known.cluster AND typical.run = known.run AND typical.run_index = known.run_index
    AND COALESCE(typical.stage, -1) = COALESCE(known.stage, -1)
LEFT JOIN host_of ON host_of.cluster = known.cluster AND host_of.run = known.run AND host_of.run_index = known.run_index
    AND host_of.rank = known.rank
