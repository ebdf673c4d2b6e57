-- One row an event of a stored snapshot: the exact requested, allocated and reserved bytes after it, from the end state backward.
-- The end is known from blocks and segments; what came after an event is the sum of all changes less the changes up to it.
WITH changes AS (
    SELECT
        run, run_index, artifact, rank, device, event, action, time_us,
        CASE action WHEN 'alloc' THEN size_bytes WHEN 'free_completed' THEN -size_bytes ELSE 0 END AS requested_change,
        CASE action WHEN 'alloc' THEN size_bytes WHEN 'free_requested' THEN -size_bytes ELSE 0 END AS allocated_change,
        CASE action
            WHEN 'segment_alloc' THEN size_bytes WHEN 'segment_map' THEN size_bytes
            WHEN 'segment_free' THEN -size_bytes WHEN 'segment_unmap' THEN -size_bytes ELSE 0
        END AS reserved_change
    FROM snapshot_events
), summed AS (
    SELECT
        artifact, device, SUM(requested_change) AS requested_change, SUM(allocated_change) AS allocated_change,
        SUM(reserved_change) AS reserved_change
    FROM changes GROUP BY artifact, device
), blocks AS (
    SELECT
        artifact, device, SUM(CASE WHEN state <> 'inactive' THEN requested_bytes ELSE 0 END) AS requested_bytes,
        SUM(CASE WHEN state = 'active_allocated' THEN requested_bytes ELSE 0 END) AS allocated_bytes
    FROM snapshot_blocks GROUP BY artifact, device
), segments AS (
    SELECT artifact, device, SUM(size_bytes) AS reserved_bytes FROM snapshot_segments GROUP BY artifact, device
)
SELECT
    changes.run, changes.run_index, changes.artifact, changes.rank, changes.device, changes.event, changes.action, changes.time_us,
    CAST(COALESCE(blocks.requested_bytes, 0) - summed.requested_change + SUM(changes.requested_change) OVER so_far AS BIGINT) AS requested_bytes,
    CAST(COALESCE(blocks.allocated_bytes, 0) - summed.allocated_change + SUM(changes.allocated_change) OVER so_far AS BIGINT) AS allocated_bytes,
    CAST(COALESCE(segments.reserved_bytes, 0) - summed.reserved_change + SUM(changes.reserved_change) OVER so_far AS BIGINT) AS reserved_bytes
FROM changes
JOIN summed ON summed.artifact = changes.artifact AND summed.device = changes.device
LEFT JOIN blocks ON blocks.artifact = changes.artifact AND blocks.device = changes.device
LEFT JOIN segments ON segments.artifact = changes.artifact AND segments.device = changes.device
WINDOW so_far AS (PARTITION BY changes.artifact, changes.device ORDER BY changes.event ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
