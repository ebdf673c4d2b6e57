-- Hosts whose ranks hold most outside torch above the median of their stage.
SELECT
    one.cluster, one.host, COUNT(*) AS ranks, MEDIAN(one.over_median_bytes) AS median_over_bytes, MAX(one.over_median_bytes) AS most_over_bytes,
    MAX(one.outside_bytes) AS outside_bytes, MAX(one.run) AS run, MAX(one.run_index) AS run_index
FROM fleet_outside_torch AS one
JOIN chosen ON chosen.cluster = one.cluster AND chosen.run = one.run AND chosen.run_index = one.run_index
WHERE one.host IS NOT NULL
GROUP BY one.cluster, one.host
ORDER BY median_over_bytes DESC, one.cluster, one.host
LIMIT 50
