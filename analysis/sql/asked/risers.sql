-- The staircase of reserved memory: each step in which a rank's reserved rose above all it had held before, by at least $least_bytes, and stayed.
-- Parameters: $run, $run_index, $least_bytes; over `attempt_steps`. The first reading is the floor, not a riser.
-- `peak_rise_bytes` is how far the peak of allocated rose above all before in the same step: the need behind the riser. A reserved that falls by
-- more than half of the rise at the very next reading was given back (expandable segments, emptied cache) and is no riser. The place is that of the
-- reading that held most in the step.
WITH step AS (
    SELECT
        rank, iteration, max_allocated_bytes, touched,
        CASE WHEN own AND reserved_bytes IS NOT NULL THEN reserved_bytes ELSE max_reserved_bytes END AS held_bytes
    FROM attempt_steps
), compared AS (
    SELECT
        *, MAX(held_bytes) OVER before AS held_before, MAX(max_allocated_bytes) OVER before AS peak_before,
        LEAD(held_bytes) OVER (PARTITION BY rank ORDER BY iteration) AS held_after,
        LAG(iteration) OVER (PARTITION BY rank ORDER BY iteration) AS iteration_before
    FROM step
    WHERE held_bytes IS NOT NULL
    WINDOW before AS (PARTITION BY rank ORDER BY iteration ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), riser AS (
    SELECT
        rank, iteration, iteration_before, held_bytes AS reserved_bytes, held_bytes - held_before AS rise_bytes,
        CASE WHEN max_allocated_bytes > peak_before THEN max_allocated_bytes - peak_before WHEN max_allocated_bytes IS NOT NULL THEN 0 END
            AS peak_rise_bytes,
        touched
    FROM compared
    WHERE held_bytes - held_before >= $least_bytes AND (held_after IS NULL OR held_bytes - held_after <= (held_bytes - held_before) / 2)
), place AS (
    SELECT
        riser.rank, riser.iteration, reading.artifact, reading.line,
        ROW_NUMBER() OVER (PARTITION BY riser.rank, riser.iteration
                           ORDER BY COALESCE(reading.max_reserved_bytes, reading.reserved_bytes) DESC, reading.artifact, reading.line) AS nth
    FROM riser
    JOIN rank_memory AS reading ON reading.rank = riser.rank AND reading.iteration = riser.iteration
    WHERE reading.run = $run AND reading.run_index = $run_index AND COALESCE(reading.valid, TRUE)
)
SELECT riser.*, place.artifact, place.line
FROM riser
JOIN place ON place.rank = riser.rank AND place.iteration = riser.iteration
WHERE place.nth = 1
ORDER BY riser.rank, riser.iteration
