-- The load of each rank and step of one attempt and whether it is high. Parameters: $run, $run_index.
-- High: at least 1.05 of the rank's median load and among its top 10 %. Where a rank's largest load is below 1.05 of its mean, the load does not vary
-- and no step is told apart.
WITH loaded AS (
    SELECT rank, iteration, load_bytes
    FROM rank_load
    WHERE run = $run AND run_index = $run_index AND load_bytes IS NOT NULL
), spread AS (
    SELECT
        rank, COUNT(*) AS steps, MEDIAN(load_bytes) AS median_bytes,
        MAX(load_bytes) >= 1.05 * AVG(load_bytes) AS varies
    FROM loaded
    GROUP BY rank
), risen AS (
    SELECT
        loaded.rank, loaded.iteration, RANK() OVER (PARTITION BY loaded.rank ORDER BY loaded.load_bytes DESC) AS place
    FROM loaded
    JOIN spread ON spread.rank = loaded.rank AND spread.varies AND loaded.load_bytes >= 1.05 * spread.median_bytes
)
SELECT
    loaded.rank, loaded.iteration, loaded.load_bytes, spread.varies,
    risen.place IS NOT NULL AND risen.place <= CEIL(spread.steps / 10.0) AS high
FROM loaded
JOIN spread ON spread.rank = loaded.rank
LEFT JOIN risen ON risen.rank = loaded.rank AND risen.iteration = loaded.iteration
