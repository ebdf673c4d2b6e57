-- How do runs end, by family and device?
-- One row an attempt in `fleet_runs`; `near` came within the margin of the limit, `undetermined` could not be judged.
SELECT
    family, COALESCE(gpu, 'not told') AS gpu, verdict, COUNT(*) AS attempts, SUM(ranks_measured) AS ranks_measured,
    ROUND(MIN(soft_headroom_bytes) / 1073741824, 2) AS least_soft_gib
FROM fleet_runs
GROUP BY family, COALESCE(gpu, 'not told'), verdict
ORDER BY family, gpu, verdict
