-- Are ranks near their limit always, or now and then?
-- Records near of all records, as counted by daily rollups: two numbers where the rollups leave a range.
SELECT
    run, run_index, rank, stage, near_class, near_kind, near_least, near_most, records, SUBSTRING(CAST(day AS STRING), 1, 10) AS day
FROM fleet_near_limit
WHERE near_least > 0 AND month = '2026-06'
ORDER BY near_least * 1.0 / records DESC, run, run_index, rank
