-- Ranks that came near their limit, by month: on how many days, in how many records, and the least that was left.
SELECT
    cluster, run, run_index, rank, rank_label, stage, month, COUNT(*) AS days, SUM(CASE WHEN near_least > 0 THEN 1 ELSE 0 END) AS near_days,
    SUM(near_least) AS near_least, SUM(near_most) AS near_most, SUM(records) AS records, MIN(soft_headroom_bytes) AS soft_headroom_bytes,
    MIN(hard_headroom_bytes) AS hard_headroom_bytes, MAX(day) AS last_day
FROM fleet_near_limit
GROUP BY cluster, run, run_index, rank, rank_label, stage, month
HAVING SUM(near_least) > 0
