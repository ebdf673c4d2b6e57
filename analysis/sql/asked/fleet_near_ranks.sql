-- Ranks that came near their limit: on how many days, in how many records, and the least that was left. Parameter: $month, null for all.
SELECT
    near.cluster, near.run, near.run_index, near.rank, near.rank_label, near.stage, COUNT(*) AS days, SUM(CASE WHEN near.near_least > 0 THEN 1 ELSE 0 END) AS near_days,
    CAST(SUM(near.near_least) AS BIGINT) AS near_least, CAST(SUM(near.near_most) AS BIGINT) AS near_most, CAST(SUM(near.records) AS BIGINT) AS records,
    MIN(near.soft_headroom_bytes) AS soft_headroom_bytes, MIN(near.hard_headroom_bytes) AS hard_headroom_bytes, MAX(near.day) AS last_day
FROM fleet_near_limit AS near
JOIN chosen ON chosen.cluster = near.cluster AND chosen.run = near.run AND chosen.run_index = near.run_index
WHERE $month IS NULL OR near.month = $month
GROUP BY near.cluster, near.run, near.run_index, near.rank, near.rank_label, near.stage
HAVING SUM(near.near_least) > 0
ORDER BY soft_headroom_bytes, near.cluster, near.run, near.run_index, near.rank
LIMIT 500
