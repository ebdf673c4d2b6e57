-- Ranks that came near their limit, least soft headroom first. Parameter: $month, null for all.
SELECT
    near.cluster, near.run, near.run_index, near.rank, near.rank_label, near.stage, CAST(SUM(near.days) AS BIGINT) AS days,
    CAST(SUM(near.near_days) AS BIGINT) AS near_days, CAST(SUM(near.near_least) AS BIGINT) AS near_least,
    CAST(SUM(near.near_most) AS BIGINT) AS near_most, CAST(SUM(near.records) AS BIGINT) AS records,
    MIN(near.soft_headroom_bytes) AS soft_headroom_bytes, MIN(near.hard_headroom_bytes) AS hard_headroom_bytes, MAX(near.last_day) AS last_day
FROM near_ranks AS near
JOIN chosen ON chosen.cluster = near.cluster AND chosen.run = near.run AND chosen.run_index = near.run_index
WHERE $month IS NULL OR near.month = $month
GROUP BY near.cluster, near.run, near.run_index, near.rank, near.rank_label, near.stage
ORDER BY soft_headroom_bytes, near.cluster, near.run, near.run_index, near.rank
LIMIT 500
