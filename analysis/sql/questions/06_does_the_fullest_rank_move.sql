-- Which rank is the fullest, and does it move from step to step?
-- A fullest rank that stays put points at its stage, one that wanders at routing or data. Steps by steps that reset their peaks.
WITH ordered AS (
    SELECT run, run_index, iteration, rank, max_allocated_bytes, ROW_NUMBER() OVER (
        PARTITION BY run, run_index, iteration ORDER BY max_allocated_bytes DESC, rank
    ) AS nth
    FROM rank_steps
    WHERE scope = 'interval'
), counted AS (
    SELECT run, run_index, rank, COUNT(*) AS steps FROM ordered WHERE nth = 1 GROUP BY run, run_index, rank
)
SELECT
    run, run_index, rank, steps AS fullest_in_steps, CAST(SUM(steps) OVER (PARTITION BY run, run_index) AS BIGINT) AS of_steps,
    COUNT(*) OVER (PARTITION BY run, run_index) AS ranks_that_were_fullest
FROM counted
ORDER BY run, run_index, steps DESC, rank
