-- Which rank had the largest peak in each step, and whether the one of the step before still has. Over `attempt_steps`; parameter: $alike_bytes: a
-- rank whose peak lies within it of the largest is as full. A step is compared where it was read on at least as many ranks as the median step (one
-- rank has nothing to be compared with) and, where the load of any rank varies, where it is a step of high load of one of them.
-- `known` is false where a maximum that was never reset may hide a fuller rank: an upper bound above the largest peak that is the step's own.
WITH read AS (
    SELECT
        iteration, COUNT(*) AS ranks, MAX(max_allocated_bytes) AS bound_bytes, MAX(CASE WHEN exact THEN max_allocated_bytes END) AS peak_bytes,
        COALESCE(BOOL_OR(varies), FALSE) AS varies, COALESCE(BOOL_OR(varies AND counts), FALSE) AS high
    FROM attempt_steps
    WHERE max_allocated_bytes IS NOT NULL
    GROUP BY iteration
), usual AS (
    SELECT MEDIAN(CASE WHEN ranks > 1 THEN ranks END) AS ranks, BOOL_OR(varies) AS varies FROM read
), compared AS (
    SELECT read.iteration, read.ranks, read.peak_bytes, usual.varies, COALESCE(read.peak_bytes >= read.bound_bytes, FALSE) AS known
    FROM read
    CROSS JOIN usual
    WHERE read.ranks >= usual.ranks AND (read.high OR NOT usual.varies)
), led AS (
    SELECT compared.iteration, MIN(CASE WHEN steps.max_allocated_bytes = compared.peak_bytes THEN steps.rank END) AS rank
    FROM compared
    JOIN attempt_steps AS steps ON steps.iteration = compared.iteration
    WHERE compared.known AND steps.exact AND steps.max_allocated_bytes = compared.peak_bytes
    GROUP BY compared.iteration
), followed AS (
    SELECT iteration, rank, LAG(rank) OVER (ORDER BY iteration) AS rank_before FROM led
)
SELECT
    compared.iteration, compared.ranks, compared.peak_bytes, compared.varies, compared.known, followed.rank, followed.rank_before,
    COALESCE(before.max_allocated_bytes < compared.peak_bytes - $alike_bytes, FALSE) AS moved
FROM compared
LEFT JOIN followed ON followed.iteration = compared.iteration
LEFT JOIN attempt_steps AS before ON before.iteration = compared.iteration AND before.rank = followed.rank_before
ORDER BY compared.iteration
