-- How near do the expected peaks come, by family, place of the stage and device?
-- Ratio of the measured to the expected peak: 1 is exact. The spread tells how far a plan for such a run can be trusted.
SELECT
    family, place, COALESCE(gpu, 'not told') AS gpu, COUNT(*) AS stages, ROUND(MIN(over_expected_ratio), 3) AS least,
    ROUND(MEDIAN(over_expected_ratio), 3) AS median, ROUND(MAX(over_expected_ratio), 3) AS most
FROM fleet_ratio
WHERE over_expected_ratio IS NOT NULL
GROUP BY family, place, COALESCE(gpu, 'not told')
ORDER BY family, place, gpu
