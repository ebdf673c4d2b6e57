-- In how many of the steps given each rank was the fullest, or as full: its peak within $alike_bytes of the largest. Over `attempt_steps`; parameters:
-- $iterations and, in the same order, $peaks, the largest peak of each.
WITH compared AS (
    SELECT UNNEST($iterations) AS iteration, UNNEST($peaks) AS peak_bytes
)
SELECT
    steps.rank, COUNT(*) AS steps, MAX(steps.max_allocated_bytes) AS peak_bytes
FROM attempt_steps AS steps
JOIN compared ON compared.iteration = steps.iteration
WHERE steps.exact AND steps.max_allocated_bytes >= compared.peak_bytes - $alike_bytes
GROUP BY steps.rank
ORDER BY steps DESC, steps.rank
