-- One row a rank of one attempt as `rank_latest` has it, over all its days, where only its last steps are read as records (`rank_memory` shows no
-- others): the last record is among them, maxima and counts come from the rollup. Parameters: $run, $run_index. Where a rank's peak lies before the
-- steps that are read, its iteration and line are null, and its artifact is that of the day. A rank without a record among them has no last one.
WITH told AS (
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY rank, rank_label ORDER BY COALESCE(max_allocated_bytes, -1) DESC, first_iteration, artifact
    ) AS nth
    FROM rank_day
    WHERE run = $run AND run_index = $run_index AND records > 0
), summed AS (
    SELECT
        rank, rank_label, COALESCE(rank, -1) AS rank_key, COALESCE(rank_label, '') AS label_key, CAST(SUM(records) AS BIGINT) AS records,
        MAX(max_allocated_bytes) AS max_allocated_bytes, MAX(max_reserved_bytes) AS max_reserved_bytes,
        MAX(max_device_used_bytes) AS device_used_bytes, MAX(max_outside_bytes) AS outside_bytes, MIN(device_total_bytes) AS device_total_bytes,
        MAX(last_iteration) AS last_iteration, MAX(CASE WHEN nth = 1 THEN artifact END) AS artifact,
        CASE WHEN MIN(scope) = MAX(scope) THEN MIN(scope) WHEN MIN(scope) IS NULL THEN NULL ELSE 'mixed' END AS scope
    FROM told
    GROUP BY rank, rank_label
), latest AS (
    SELECT *, COALESCE(rank, -1) AS rank_key, COALESCE(rank_label, '') AS label_key
    FROM rank_latest
    WHERE run = $run AND run_index = $run_index
)
SELECT
    $run AS run, CAST($run_index AS INTEGER) AS run_index, summed.rank, summed.rank_label, COALESCE(latest.iteration, summed.last_iteration) AS iteration,
    latest.phase, latest.source, summed.scope, latest.allocated_bytes, summed.max_allocated_bytes, latest.reserved_bytes, summed.max_reserved_bytes,
    summed.device_used_bytes, summed.outside_bytes, summed.device_total_bytes, latest.rounding_bytes, summed.records, summed.records AS iterations,
    COALESCE(latest.artifact, summed.artifact) AS artifact, latest.line,
    CASE WHEN latest.max_allocated_bytes = summed.max_allocated_bytes THEN latest.peak_iteration END AS peak_iteration,
    CASE WHEN latest.max_allocated_bytes = summed.max_allocated_bytes THEN latest.peak_phase END AS peak_phase,
    CASE WHEN latest.max_allocated_bytes = summed.max_allocated_bytes THEN latest.peak_artifact ELSE summed.artifact END AS peak_artifact,
    CASE WHEN latest.max_allocated_bytes = summed.max_allocated_bytes THEN latest.peak_line END AS peak_line
FROM summed
LEFT JOIN latest ON latest.rank_key = summed.rank_key AND latest.label_key = summed.label_key
