-- What changed where memory did, largest change first. Parameter: $month of the later run, null for all.
SELECT one.*
FROM fleet_drift AS one
JOIN chosen ON chosen.cluster = one.cluster AND chosen.run = one.run AND chosen.run_index = one.run_index
WHERE $month IS NULL OR SUBSTRING(CAST(one.day AS STRING), 1, 7) = $month
ORDER BY ABS(one.peak_change_bytes) DESC, one.cluster, one.run, one.run_index, one.kind, one.name
LIMIT 1000
