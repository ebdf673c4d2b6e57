-- Errors of chosen attempts, newest first. Parameter: $month, null for all.
SELECT one.*
FROM fleet_oom AS one
JOIN chosen ON chosen.cluster = one.cluster AND chosen.run = one.run AND chosen.run_index = one.run_index
WHERE $month IS NULL OR SUBSTRING(CAST(one.day AS STRING), 1, 7) = $month
ORDER BY one.day DESC, one.cluster, one.run, one.run_index, one.line
LIMIT 1000
