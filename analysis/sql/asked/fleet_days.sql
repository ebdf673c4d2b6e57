-- Ranks by class and day. Parameter: $month, null for all.
SELECT near.day, near.near_class, COUNT(*) AS ranks
FROM fleet_near_limit AS near
JOIN chosen ON chosen.cluster = near.cluster AND chosen.run = near.run AND chosen.run_index = near.run_index
WHERE $month IS NULL OR near.month = $month
GROUP BY near.day, near.near_class
ORDER BY near.day, near.near_class
