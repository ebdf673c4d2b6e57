-- The attempts that a page's filters choose. Parameters: $cluster, $month, $family, $gpu; a null one chooses all. A month chooses attempts with a record
-- in it, or whose days are not known.
SELECT *
FROM fleet_runs
WHERE ($cluster IS NULL OR cluster = $cluster) AND ($family IS NULL OR COALESCE(family, 'not told') = $family)
    AND ($gpu IS NULL OR COALESCE(gpu, 'not told') = $gpu)
    AND ($month IS NULL OR first_day IS NULL
         OR (SUBSTRING(CAST(first_day AS STRING), 1, 7) <= $month AND SUBSTRING(CAST(last_day AS STRING), 1, 7) >= $month))
