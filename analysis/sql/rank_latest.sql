-- One row a rank: its last valid training record, and its maxima over every valid record. A record that proves no global rank stands
-- under its label ("last", "local 3") with rank null. `outside` is what the device holds beside torch's reserved at one instant; it grows
-- after the first step, so its maximum counts.
WITH measured AS (
    SELECT
        run, run_index, rank, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') END AS rank_label, iteration,
        COALESCE(phase, 'train') AS phase, source, scope, allocated_bytes, max_allocated_bytes, reserved_bytes, max_reserved_bytes,
        device_used_bytes, device_total_bytes, rounding_bytes, artifact, line,
        CASE WHEN max_allocated_bytes IS NULL OR allocated_bytes > max_allocated_bytes THEN allocated_bytes
             ELSE max_allocated_bytes END AS peak_allocated_bytes,
        CASE WHEN max_reserved_bytes IS NULL OR reserved_bytes > max_reserved_bytes THEN reserved_bytes
             ELSE max_reserved_bytes END AS peak_reserved_bytes,
        CASE WHEN device_used_bytes >= reserved_bytes THEN device_used_bytes - reserved_bytes END AS outside_bytes
    FROM rank_memory
    WHERE COALESCE(valid, TRUE)
), ordered AS (
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY run, run_index, rank, rank_label
        ORDER BY CASE WHEN phase = 'train' THEN 0 ELSE 1 END, COALESCE(iteration, -1) DESC,
            CASE WHEN allocated_bytes IS NULL THEN 1 ELSE 0 END, COALESCE(rounding_bytes, 0), line DESC, artifact DESC
    ) AS nth
    FROM measured
), peaks AS (
    SELECT
        run, run_index, rank, rank_label, COUNT(*) AS records, COUNT(DISTINCT iteration) AS iterations,
        MAX(peak_allocated_bytes) AS max_allocated_bytes, MAX(peak_reserved_bytes) AS max_reserved_bytes,
        MAX(device_used_bytes) AS device_used_bytes, MAX(outside_bytes) AS outside_bytes, MIN(device_total_bytes) AS device_total_bytes,
        CASE WHEN MIN(scope) = MAX(scope) THEN MIN(scope) WHEN MIN(scope) IS NULL THEN NULL ELSE 'mixed' END AS scope
    FROM measured
    GROUP BY run, run_index, rank, rank_label
), peak_record AS (
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY run, run_index, rank, rank_label ORDER BY COALESCE(peak_allocated_bytes, -1) DESC, COALESCE(iteration, -1), line, artifact
    ) AS nth
    FROM measured
)
SELECT
    last.run, last.run_index, last.rank, last.rank_label, last.iteration, last.phase, last.source, peaks.scope, last.allocated_bytes,
    peaks.max_allocated_bytes, last.reserved_bytes, peaks.max_reserved_bytes, peaks.device_used_bytes, peaks.outside_bytes,
    peaks.device_total_bytes, last.rounding_bytes, peaks.records, peaks.iterations, last.artifact, last.line,
    top.iteration AS peak_iteration, top.phase AS peak_phase, top.artifact AS peak_artifact, top.line AS peak_line
FROM ordered AS last
JOIN peaks ON peaks.run = last.run AND peaks.run_index = last.run_index AND COALESCE(peaks.rank, -1) = COALESCE(last.rank, -1)
    AND COALESCE(peaks.rank_label, '') = COALESCE(last.rank_label, '')
JOIN peak_record AS top ON top.run = last.run AND top.run_index = last.run_index AND COALESCE(top.rank, -1) = COALESCE(last.rank, -1)
    AND COALESCE(top.rank_label, '') = COALESCE(last.rank_label, '')
WHERE last.nth = 1 AND top.nth = 1
