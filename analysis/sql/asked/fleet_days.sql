-- Ranks by class and day. Parameter: $month, null for all.
SELECT near.day, near.near_class, CAST(SUM(near.ranks) AS BIGINT) AS ranks
FROM near_days AS near
JOIN chosen ON chosen.cluster = near.cluster AND chosen.run = near.run AND chosen.run_index = near.run_index
WHERE $month IS NULL OR near.month = $month
GROUP BY near.day, near.near_class
ORDER BY near.day, near.near_class
