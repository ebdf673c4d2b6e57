-- Which ranks came within 2 GiB of their limit in a month, and what is the least that was left?
-- Soft headroom is what torch's cache left of the device, hard headroom what live bytes left: a rank with soft headroom gone and hard headroom left
-- gets slow, not killed.
SELECT
    cluster, run, run_index, rank, stage, COUNT(*) AS days, ROUND(MIN(soft_headroom_bytes) / 1073741824, 2) AS soft_gib,
    ROUND(MIN(hard_headroom_bytes) / 1073741824, 2) AS hard_gib
FROM fleet_near_limit
WHERE month = '2026-06' AND outside_known AND soft_headroom_bytes <= 2147483648
GROUP BY cluster, run, run_index, rank, stage
ORDER BY soft_gib, cluster, run, run_index, rank
