-- What each process printed of its allocations, by space: device and host apart, because only the first is GPU memory. Frees are not logged (but by
-- RCCL's running totals), so sums are upper bounds. Parameters: $run, $run_index.
WITH row_ AS (
    SELECT
        *, ROW_NUMBER() OVER (PARTITION BY artifact, host, pid, space ORDER BY line DESC) AS from_last
    FROM nccl_allocations
    WHERE run = $run AND run_index = $run_index
)
SELECT
    artifact, host, pid, space, event, MAX(rank) AS rank, communicator, COUNT(*) AS records, SUM(size_bytes) AS total_bytes, MAX(size_bytes) AS most_bytes,
    MAX(CASE WHEN from_last = 1 THEN size_bytes END) AS last_bytes, MIN(line) AS line
FROM row_
GROUP BY artifact, host, pid, space, event, communicator
ORDER BY artifact, host, pid, space, event, line
