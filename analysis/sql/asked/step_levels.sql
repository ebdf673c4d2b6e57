-- Reserved and the peak of allocated of one rank by step, thinned to what a picture shows: of each of $columns equal stretches of its steps the first,
-- the last, and those of least and most reserved and of the highest peak. Parameters: $run, $run_index, $rank, $columns; over `rank_steps`. Reserved
-- is what `risers.sql` reads it as.
WITH step AS (
    SELECT
        iteration, max_allocated_bytes,
        CASE WHEN scope = 'interval' AND reserved_bytes IS NOT NULL THEN reserved_bytes ELSE max_reserved_bytes END AS held_bytes,
        ROW_NUMBER() OVER (ORDER BY iteration) - 1 AS nth, COUNT(*) OVER () AS n
    FROM rank_steps
    WHERE run = $run AND run_index = $run_index AND rank = $rank
), placed AS (
    SELECT *, CAST(FLOOR(nth * $columns / GREATEST(n, 1)) AS INTEGER) AS stretch FROM step
), ordered AS (
    SELECT
        iteration, held_bytes, max_allocated_bytes,
        ROW_NUMBER() OVER (PARTITION BY stretch ORDER BY iteration) AS from_first,
        ROW_NUMBER() OVER (PARTITION BY stretch ORDER BY iteration DESC) AS from_last,
        ROW_NUMBER() OVER (PARTITION BY stretch ORDER BY held_bytes NULLS LAST, iteration) AS from_least,
        ROW_NUMBER() OVER (PARTITION BY stretch ORDER BY held_bytes DESC NULLS LAST, iteration) AS from_most,
        ROW_NUMBER() OVER (PARTITION BY stretch ORDER BY max_allocated_bytes DESC NULLS LAST, iteration) AS from_peak
    FROM placed
)
SELECT iteration, held_bytes, max_allocated_bytes
FROM ordered
WHERE 1 IN (from_first, from_last, from_least, from_most, from_peak)
ORDER BY iteration
