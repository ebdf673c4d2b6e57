-- Which runs show nothing of their last stage, or of any other?
-- The last stage holds the logits: a run that looks well without it has not been looked at. One row a stage that no measured rank sits on.
SELECT run, run_index, stage, stages, place, family, ROUND(expected_peak_bytes / 1073741824, 2) AS expected_peak_gib
FROM fleet_ratio
WHERE stage IS NOT NULL AND ranks_measured = 0
ORDER BY run, run_index, stage
