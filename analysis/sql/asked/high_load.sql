-- The steps of high load of each rank whose load is known, and the rule that chose them. Parameters: $run, $run_index.
-- High: at least 1.05 of the rank's median and among its top 10 %. Where the largest load is below 1.05 of the mean, the load does not vary and no
-- step is told apart.
WITH loaded AS (
    SELECT rank, iteration, load_bytes
    FROM rank_load
    WHERE run = $run AND run_index = $run_index AND load_bytes IS NOT NULL
), ordered AS (
    SELECT *, RANK() OVER (PARTITION BY rank ORDER BY load_bytes DESC) AS place, MEDIAN(load_bytes) OVER (PARTITION BY rank) AS median_bytes,
        COUNT(*) OVER (PARTITION BY rank) AS steps, MAX(load_bytes) OVER (PARTITION BY rank) AS most_bytes,
        AVG(load_bytes) OVER (PARTITION BY rank) AS mean_bytes
    FROM loaded
)
SELECT
    rank, MAX(steps) AS steps, MAX(median_bytes) AS median_bytes, MAX(mean_bytes) AS mean_bytes, MAX(most_bytes) AS most_bytes,
    MAX(most_bytes) >= 1.05 * MAX(mean_bytes) AS varies,
    MIN(load_bytes) FILTER (load_bytes >= 1.05 * median_bytes AND place <= CEIL(steps / 10.0)) AS threshold_bytes,
    LIST(iteration ORDER BY iteration) FILTER (load_bytes >= 1.05 * median_bytes AND place <= CEIL(steps / 10.0)) AS high
FROM ordered
GROUP BY rank
ORDER BY rank
