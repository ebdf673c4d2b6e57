-- How much device memory does NCCL take on a rank, by the size and the nodes of its world?
-- By the allocations that NCCL_DEBUG_SUBSYS=ALLOC prints; the nodes are those of the rank's widest communicator.
WITH taken AS (
    SELECT run, run_index, rank, SUM(size_bytes) AS taken_bytes
    FROM nccl_allocations
    WHERE space = 'device' AND COALESCE(event, 'alloc') = 'alloc'
    GROUP BY run, run_index, rank
), world AS (
    SELECT run, run_index, rank, MAX(ranks) AS ranks, MAX(nodes) AS nodes, COUNT(DISTINCT communicator) AS communicators
    FROM nccl_communicators
    GROUP BY run, run_index, rank
)
SELECT
    taken.run, taken.run_index, world.nodes, world.ranks AS widest, COUNT(*) AS ranks_told, MAX(world.communicators) AS communicators,
    ROUND(MIN(taken.taken_bytes) / 1048576, 1) AS least_mib, ROUND(MAX(taken.taken_bytes) / 1048576, 1) AS most_mib
FROM taken
JOIN world ON world.run = taken.run AND world.run_index = taken.run_index AND COALESCE(world.rank, -1) = COALESCE(taken.rank, -1)
GROUP BY taken.run, taken.run_index, world.nodes, world.ranks
ORDER BY most_mib DESC, taken.run, taken.run_index
