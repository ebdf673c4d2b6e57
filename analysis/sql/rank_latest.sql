-- One row a rank: its last valid training record, and its maxima over every valid record. A record that proves no global rank stands
-- under its label ("last", "local 3") with rank null. `outside` is what the device holds beside torch's reserved at one instant; it grows
-- after the first step, so its maximum counts. Only records of the last training iteration, and those that hold the peak, are put in order.
WITH measured AS (
    SELECT
        run, run_index, rank, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') END AS rank_label,
        COALESCE(rank, -1) AS rank_key, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') ELSE '' END AS label_key, iteration,
        COALESCE(phase, 'train') AS phase, source, scope, allocated_bytes, max_allocated_bytes, reserved_bytes, max_reserved_bytes,
        device_used_bytes, device_total_bytes, rounding_bytes, artifact, line,
        CASE WHEN COALESCE(phase, 'train') = 'train' THEN 1000000000000000 ELSE 0 END + COALESCE(iteration, -1) AS place,
        CASE WHEN max_allocated_bytes IS NULL OR allocated_bytes > max_allocated_bytes THEN allocated_bytes
             ELSE max_allocated_bytes END AS peak_allocated_bytes,
        CASE WHEN max_reserved_bytes IS NULL OR reserved_bytes > max_reserved_bytes THEN reserved_bytes
             ELSE max_reserved_bytes END AS peak_reserved_bytes,
        CASE WHEN device_used_bytes >= reserved_bytes THEN device_used_bytes - reserved_bytes END AS outside_bytes
    FROM rank_memory
    WHERE COALESCE(valid, TRUE)
), peaks AS (
    SELECT
        run, run_index, rank_key, label_key, COUNT(*) AS records, COUNT(DISTINCT iteration) AS iterations, MAX(place) AS last_place,
        MAX(peak_allocated_bytes) AS max_allocated_bytes, MAX(peak_reserved_bytes) AS max_reserved_bytes,
        MAX(device_used_bytes) AS device_used_bytes, MAX(outside_bytes) AS outside_bytes, MIN(device_total_bytes) AS device_total_bytes,
        CASE WHEN MIN(scope) = MAX(scope) THEN MIN(scope) WHEN MIN(scope) IS NULL THEN NULL ELSE 'mixed' END AS scope
    FROM measured
    GROUP BY run, run_index, rank_key, label_key
), last_record AS (
    SELECT
        measured.*, peaks.records, peaks.iterations, peaks.max_allocated_bytes AS all_max_allocated_bytes,
        peaks.max_reserved_bytes AS all_max_reserved_bytes, peaks.device_used_bytes AS all_device_used_bytes,
        peaks.outside_bytes AS all_outside_bytes, peaks.device_total_bytes AS all_device_total_bytes, peaks.scope AS all_scope,
        ROW_NUMBER() OVER (
            PARTITION BY measured.run, measured.run_index, measured.rank_key, measured.label_key
            ORDER BY CASE WHEN measured.allocated_bytes IS NULL THEN 1 ELSE 0 END, COALESCE(measured.rounding_bytes, 0), measured.line DESC,
                measured.artifact DESC
        ) AS nth
    FROM measured
    JOIN peaks ON peaks.run = measured.run AND peaks.run_index = measured.run_index AND peaks.rank_key = measured.rank_key
        AND peaks.label_key = measured.label_key AND peaks.last_place = measured.place
), peak_record AS (
    SELECT
        measured.*, ROW_NUMBER() OVER (
            PARTITION BY measured.run, measured.run_index, measured.rank_key, measured.label_key
            ORDER BY COALESCE(measured.iteration, -1), measured.line, measured.artifact
        ) AS nth
    FROM measured
    JOIN peaks ON peaks.run = measured.run AND peaks.run_index = measured.run_index AND peaks.rank_key = measured.rank_key
        AND peaks.label_key = measured.label_key AND COALESCE(peaks.max_allocated_bytes, -1) = COALESCE(measured.peak_allocated_bytes, -1)
)
SELECT
    last.run, last.run_index, last.rank, last.rank_label, last.iteration, last.phase, last.source, last.all_scope AS scope, last.allocated_bytes,
    last.all_max_allocated_bytes AS max_allocated_bytes, last.reserved_bytes, last.all_max_reserved_bytes AS max_reserved_bytes,
    last.all_device_used_bytes AS device_used_bytes, last.all_outside_bytes AS outside_bytes, last.all_device_total_bytes AS device_total_bytes,
    last.rounding_bytes, last.records, last.iterations, last.artifact, last.line, top.iteration AS peak_iteration, top.phase AS peak_phase,
    top.artifact AS peak_artifact, top.line AS peak_line
FROM last_record AS last
JOIN peak_record AS top ON top.run = last.run AND top.run_index = last.run_index AND top.rank_key = last.rank_key AND top.label_key = last.label_key
WHERE last.nth = 1 AND top.nth = 1
