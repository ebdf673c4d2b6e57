-- The steps of high load of each rank whose load is known, and the rule that chose them. Parameters: $run, $run_index.
-- High: at least 1.05 of the rank's median and among its top 10 %. Where the largest load is below 1.05 of the mean, the load does not vary and no
-- step is told apart.
WITH loaded AS (
    SELECT rank, iteration, load_bytes
    FROM rank_load
    WHERE run = $run AND run_index = $run_index AND load_bytes IS NOT NULL
), spread AS (
    SELECT
        rank, COUNT(*) AS steps, MEDIAN(load_bytes) AS median_bytes, AVG(load_bytes) AS mean_bytes, MAX(load_bytes) AS most_bytes,
        GREATEST(LIST_REVERSE_SORT(LIST(load_bytes))[CAST(CEIL(COUNT(*) / 10.0) AS INTEGER)], 1.05 * MEDIAN(load_bytes)) AS high_bytes
    FROM loaded
    GROUP BY rank
)
SELECT
    spread.rank, ANY_VALUE(spread.steps) AS steps, ANY_VALUE(spread.median_bytes) AS median_bytes, ANY_VALUE(spread.mean_bytes) AS mean_bytes,
    ANY_VALUE(spread.most_bytes) AS most_bytes, ANY_VALUE(spread.most_bytes >= 1.05 * spread.mean_bytes) AS varies,
    MIN(loaded.load_bytes) AS threshold_bytes, LIST(loaded.iteration ORDER BY loaded.iteration) FILTER (loaded.iteration IS NOT NULL) AS high
FROM spread
LEFT JOIN loaded ON loaded.rank = spread.rank AND loaded.load_bytes >= spread.high_bytes
GROUP BY spread.rank
ORDER BY spread.rank
