-- How often each rank came near its limit over the steps that count for it (`attempt_steps.sql` tells which).
-- Parameters, one a rank in the same order: $ranks, $left_low and $left_high (capacity less what lies outside torch, at most and at least), $margin,
-- all in bytes. A step is near where even the larger `left` is short, clear where even the smaller one suffices, unknown otherwise; a peak that is
-- only an upper bound can clear its step but cannot convict it. A step that touched the limit is near whatever the margin (by cache, unless its peak
-- says hard). `correlation` is that of the peaks of counted steps, each with the one before; `drift_*` that with the step, and the rise of a straight
-- line over the steps seen.
WITH judged AS (
    SELECT UNNEST($ranks) AS rank, UNNEST($left_low) AS left_low, UNNEST($left_high) AS left_high, UNNEST($margin) AS margin
), step AS (
    SELECT
        steps.rank, steps.own, steps.touched, steps.varies, steps.counts,
        judged.left_high - steps.max_allocated_bytes <= judged.margin AND steps.exact AS hard_near,
        judged.left_low - steps.max_allocated_bytes > judged.margin AS hard_clear,
        (judged.left_high - steps.max_reserved_bytes <= judged.margin AND steps.reserved_exact) OR steps.touched AS cache_near,
        judged.left_low - steps.max_reserved_bytes > judged.margin AND NOT steps.touched AS cache_clear
    FROM attempt_steps AS steps
    JOIN judged ON judged.rank = steps.rank
), followed AS (
    SELECT rank, iteration, max_allocated_bytes, LAG(max_allocated_bytes) OVER (PARTITION BY rank ORDER BY iteration) AS peak_before
    FROM attempt_steps
    WHERE counts
), alike AS (
    SELECT
        rank, NULLIF(CORR(max_allocated_bytes, peak_before), CAST('NaN' AS DOUBLE)) AS correlation,
        NULLIF(CORR(max_allocated_bytes, iteration), CAST('NaN' AS DOUBLE)) AS drift_correlation,
        REGR_SLOPE(max_allocated_bytes, iteration) * (MAX(iteration) - MIN(iteration)) AS drift_bytes
    FROM followed
    GROUP BY rank
), counted AS (
    SELECT
        rank, COUNT(*) AS measured, COUNT(CASE WHEN own THEN 1 END) AS interval_steps, COUNT(CASE WHEN touched THEN 1 END) AS touched,
        COUNT(CASE WHEN counts THEN 1 END) AS steps, BOOL_OR(varies) AS varies, COUNT(CASE WHEN counts IS NULL THEN 1 END) AS load_unknown,
        COUNT(CASE WHEN counts AND hard_near THEN 1 END) AS hard_near, COUNT(CASE WHEN counts AND hard_clear THEN 1 END) AS hard_clear,
        COUNT(CASE WHEN counts AND (hard_near OR cache_near) THEN 1 END) AS near, COUNT(CASE WHEN counts AND cache_clear THEN 1 END) AS clear,
        COUNT(CASE WHEN hard_near AND NOT COALESCE(counts, FALSE) THEN 1 END) AS other_hard_near,
        COUNT(CASE WHEN (hard_near OR cache_near) AND NOT COALESCE(counts, FALSE) THEN 1 END) AS other_near
    FROM step
    GROUP BY rank
)
SELECT counted.*, alike.correlation, alike.drift_correlation, alike.drift_bytes
FROM counted
LEFT JOIN alike ON alike.rank = counted.rank
ORDER BY counted.rank
