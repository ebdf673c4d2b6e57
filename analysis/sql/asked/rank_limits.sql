-- How often each rank came near its limit over its steps of high load; over `attempt_steps`, the rows of `rank_steps` of one attempt.
-- Parameters: $run, $run_index; and, one a rank in the same order, $ranks, $left_low and $left_high (capacity less what lies outside torch, at most and at least), $margin, all in bytes.
-- A step is near where even the larger `left` is short, clear where even the smaller one suffices, unknown otherwise; a peak that is only an upper
-- bound can clear its step but cannot convict it. A rank of whose load nothing is known is judged over all its steps; where some of its steps have
-- a load, the others are of unknown load, not of low. A step that touched the limit is near whatever the margin (by cache, unless its peak says hard).
WITH judged AS (
    SELECT UNNEST($ranks) AS rank, UNNEST($left_low) AS left_low, UNNEST($left_high) AS left_high, UNNEST($margin) AS margin
), loaded AS (
    SELECT run, run_index, rank, iteration, load_bytes
    FROM rank_load
    WHERE run = $run AND run_index = $run_index AND load_bytes IS NOT NULL
), spread AS (
    SELECT
        rank, MEDIAN(load_bytes) AS median_bytes, MAX(load_bytes) >= 1.05 * AVG(load_bytes) AS varies,
        GREATEST(LIST_REVERSE_SORT(LIST(load_bytes))[CAST(CEIL(COUNT(*) / 10.0) AS INTEGER)], 1.05 * MEDIAN(load_bytes)) AS high_bytes
    FROM loaded
    GROUP BY rank
), load AS (
    SELECT loaded.rank, loaded.iteration, spread.varies, spread.median_bytes, loaded.load_bytes >= spread.high_bytes AS high
    FROM loaded
    JOIN spread ON spread.rank = loaded.rank
), step AS (
    SELECT
        steps.rank, steps.iteration, judged.margin,
        judged.left_high - steps.max_allocated_bytes <= judged.margin AND steps.exact AS hard_near,
        judged.left_low - steps.max_allocated_bytes > judged.margin AS hard_clear,
        (judged.left_high - steps.max_reserved_bytes <= judged.margin AND steps.reserved_exact) OR steps.touched AS cache_near,
        judged.left_low - steps.max_reserved_bytes > judged.margin AND NOT steps.touched AS cache_clear,
        CASE WHEN load.varies THEN load.high WHEN load.varies IS NULL AND known.rank IS NOT NULL THEN NULL ELSE TRUE END AS counts,
        load.varies, load.median_bytes, steps.max_allocated_bytes, steps.scope, steps.touched
    FROM attempt_steps AS steps
    JOIN judged ON judged.rank = steps.rank
    LEFT JOIN load ON load.rank = steps.rank AND load.iteration = steps.iteration
    LEFT JOIN spread AS known ON known.rank = steps.rank
), followed AS (
    SELECT *, LAG(max_allocated_bytes) OVER (PARTITION BY rank, counts ORDER BY iteration) AS peak_before FROM step
)
SELECT
    rank, COUNT(*) AS measured, COUNT(*) FILTER (scope = 'interval') AS interval_steps, COUNT(*) FILTER (touched) AS touched, COUNT(*) FILTER (counts) AS steps, BOOL_OR(varies) AS varies, MAX(median_bytes) AS median_load_bytes,
    COUNT(*) FILTER (counts IS NULL) AS load_unknown,
    CORR(max_allocated_bytes, peak_before) FILTER (counts) AS correlation,
    COUNT(*) FILTER (counts AND hard_near) AS hard_near, COUNT(*) FILTER (counts AND COALESCE(hard_clear, FALSE)) AS hard_clear,
    COUNT(*) FILTER (counts AND (hard_near OR cache_near)) AS near,
    COUNT(*) FILTER (counts AND COALESCE(cache_clear, FALSE)) AS clear,
    COUNT(*) FILTER (hard_near AND NOT COALESCE(counts, FALSE)) AS other_hard_near,
    COUNT(*) FILTER ((hard_near OR cache_near) AND NOT COALESCE(counts, FALSE)) AS other_near
FROM followed
GROUP BY rank
ORDER BY rank
