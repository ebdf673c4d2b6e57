-- The staircase of reserved memory: each step in which a rank's reserved rose above all it had held before, by at least $least_bytes, and stayed.
-- Parameter: $least_bytes; over `attempt_steps`, the rows of `rank_steps` of one attempt. The first reading is the floor, not a riser.
-- `peak_rise_bytes` is how far the peak of allocated rose above all before in the same step: the need behind the riser. A reserved that falls by
-- more than half of the rise at the very next reading was given back (expandable segments, emptied cache) and is no riser.
WITH step AS (
    SELECT
        rank, iteration, artifact, line, max_allocated_bytes,
        CASE WHEN own AND reserved_bytes IS NOT NULL THEN reserved_bytes ELSE max_reserved_bytes END AS held_bytes, touched
    FROM attempt_steps
), compared AS (
    SELECT
        *, MAX(held_bytes) OVER before AS held_before, MAX(max_allocated_bytes) OVER before AS peak_before,
        LEAD(held_bytes) OVER (PARTITION BY rank ORDER BY iteration) AS held_after,
        LAG(iteration) OVER (PARTITION BY rank ORDER BY iteration) AS iteration_before,
        ROW_NUMBER() OVER (PARTITION BY rank ORDER BY iteration) AS nth
    FROM step
    WHERE held_bytes IS NOT NULL
    WINDOW before AS (PARTITION BY rank ORDER BY iteration ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT
    rank, iteration, iteration_before, nth, held_bytes AS reserved_bytes, held_bytes - held_before AS rise_bytes,
    CASE WHEN max_allocated_bytes > peak_before THEN max_allocated_bytes - peak_before WHEN max_allocated_bytes IS NOT NULL THEN 0 END
        AS peak_rise_bytes,
    touched, artifact, line
FROM compared
WHERE held_bytes - held_before >= $least_bytes AND (held_after IS NULL OR held_bytes - held_after <= (held_bytes - held_before) / 2)
ORDER BY rank, iteration
