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
), chosen AS (
    SELECT
        measured.*, peaks.records, peaks.iterations, peaks.max_allocated_bytes AS all_max_allocated_bytes,
        peaks.max_reserved_bytes AS all_max_reserved_bytes, peaks.device_used_bytes AS all_device_used_bytes,
        peaks.outside_bytes AS all_outside_bytes, peaks.device_total_bytes AS all_device_total_bytes, peaks.scope AS all_scope,
        measured.place = peaks.last_place AS is_last,
        COALESCE(peaks.max_allocated_bytes, -1) = COALESCE(measured.peak_allocated_bytes, -1) AS is_peak
    FROM measured
    JOIN peaks ON peaks.run = measured.run AND peaks.run_index = measured.run_index AND peaks.rank_key = measured.rank_key
        AND peaks.label_key = measured.label_key
    WHERE measured.place = peaks.last_place OR COALESCE(peaks.max_allocated_bytes, -1) = COALESCE(measured.peak_allocated_bytes, -1)
), ordered AS (
    SELECT
        *, ROW_NUMBER() OVER (
            PARTITION BY run, run_index, rank_key, label_key, is_last
            ORDER BY CASE WHEN allocated_bytes IS NULL THEN 1 ELSE 0 END, COALESCE(rounding_bytes, 0), line DESC, artifact DESC
        ) AS nth_last,
        ROW_NUMBER() OVER (
            PARTITION BY run, run_index, rank_key, label_key, is_peak ORDER BY COALESCE(iteration, -1), line, artifact
        ) AS nth_peak
    FROM chosen
), marked AS (
    SELECT *, is_last AND nth_last = 1 AS last_one, is_peak AND nth_peak = 1 AS top_one FROM ordered
)
SELECT
    run, run_index, MAX(rank) AS rank, MAX(rank_label) AS rank_label, MAX(CASE WHEN last_one THEN iteration END) AS iteration,
    MAX(CASE WHEN last_one THEN phase END) AS phase, MAX(CASE WHEN last_one THEN source END) AS source, MAX(all_scope) AS scope,
    MAX(CASE WHEN last_one THEN allocated_bytes END) AS allocated_bytes, MAX(all_max_allocated_bytes) AS max_allocated_bytes,
    MAX(CASE WHEN last_one THEN reserved_bytes END) AS reserved_bytes, MAX(all_max_reserved_bytes) AS max_reserved_bytes,
    MAX(all_device_used_bytes) AS device_used_bytes, MAX(all_outside_bytes) AS outside_bytes, MAX(all_device_total_bytes) AS device_total_bytes,
    MAX(CASE WHEN last_one THEN rounding_bytes END) AS rounding_bytes, MAX(records) AS records, MAX(iterations) AS iterations,
    MAX(CASE WHEN last_one THEN artifact END) AS artifact, MAX(CASE WHEN last_one THEN line END) AS line,
    MAX(CASE WHEN top_one THEN iteration END) AS peak_iteration, MAX(CASE WHEN top_one THEN phase END) AS peak_phase,
    MAX(CASE WHEN top_one THEN artifact END) AS peak_artifact, MAX(CASE WHEN top_one THEN line END) AS peak_line
FROM marked
GROUP BY run, run_index, rank_key, label_key
