-- Which configurations measure more than 20 % over, or under, the printed figure?
-- The fullest measured rank of each stage over the total that the run printed; the formula prints one number for all stages.
SELECT
    run, run_index, stage, place, family, branch, generation, ROUND(printed_bytes / 1073741824, 2) AS printed_gib,
    ROUND(max_allocated_bytes / 1073741824, 2) AS peak_gib, ROUND(over_printed_ratio, 3) AS over_printed
FROM fleet_ratio
WHERE ABS(over_printed_ratio - 1) > 0.2 AND stage IS NOT NULL
ORDER BY ABS(over_printed_ratio - 1) DESC, run, run_index, stage
