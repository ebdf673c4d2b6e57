-- The steps of high load of each rank whose load is known, and what chose them; over `attempt_load`.
SELECT
    rank, COUNT(*) AS steps, MEDIAN(load_bytes) AS median_bytes, MAX(load_bytes) AS most_bytes, BOOL_OR(varies) AS varies,
    MIN(CASE WHEN high THEN load_bytes END) AS threshold_bytes, LIST(iteration ORDER BY iteration) FILTER (high) AS high
FROM attempt_load
GROUP BY rank
ORDER BY rank
