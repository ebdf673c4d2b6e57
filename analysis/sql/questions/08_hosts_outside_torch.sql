-- Which hosts hold more outside torch than others?
-- NCCL, contexts, graphs and other processes: by host, the most of any rank, and how far above the median rank of its stage.
SELECT
    cluster, COALESCE(host, 'not told') AS host, COUNT(*) AS ranks, ROUND(MAX(outside_bytes) / 1073741824, 2) AS most_gib,
    ROUND(MEDIAN(over_median_bytes) / 1073741824, 2) AS over_median_gib
FROM fleet_outside_torch
GROUP BY cluster, COALESCE(host, 'not told')
ORDER BY most_gib DESC, cluster, host
