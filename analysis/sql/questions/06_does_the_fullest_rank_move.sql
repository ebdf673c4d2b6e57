-- Which rank is the fullest, and does it move from day to day?
-- A fullest rank that stays put points at its stage, one that wanders at routing or data. Days whose readings all reset their peaks. From step to step it
-- is shown on a run's page Steps, and said by its report.
WITH ordered AS (
    SELECT cluster, run, run_index, day, rank, max_allocated_bytes, ROW_NUMBER() OVER (
        PARTITION BY cluster, run, run_index, day ORDER BY max_allocated_bytes DESC, rank
    ) AS nth
    FROM rank_days
    WHERE rank IS NOT NULL AND records > 0 AND interval_records = records
), counted AS (
    SELECT cluster, run, run_index, rank, COUNT(*) AS days, MAX(max_allocated_bytes) AS peak_bytes
    FROM ordered
    WHERE nth = 1
    GROUP BY cluster, run, run_index, rank
)
SELECT
    cluster, run, run_index, rank, days AS fullest_on_days, CAST(SUM(days) OVER (PARTITION BY cluster, run, run_index) AS BIGINT) AS of_days,
    COUNT(*) OVER (PARTITION BY cluster, run, run_index) AS ranks_that_were_fullest, ROUND(peak_bytes / 1073741824, 2) AS peak_gib
FROM counted
ORDER BY cluster, run, run_index, days DESC, rank
