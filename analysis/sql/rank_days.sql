-- One row a rank and day: how often it was read and how high it came. Sums of `rank_day` over all pieces that count, so it is what the records
-- themselves would give, and stays so when the raw records are thinned. A record's peak is the larger of the figure and its maximum. A row
-- whose records print no time stands on the day of its ingest. `rank_day_levels` has the distribution.
WITH taken AS (
    SELECT artifact, MIN(ingested_at) AS ingested_at FROM artifacts GROUP BY artifact
)
SELECT
    piece.run, piece.run_index, piece.cluster, piece.rank, piece.rank_label, COALESCE(piece.day, CAST(taken.ingested_at AS DATE)) AS day,
    CAST(SUM(piece.records) AS BIGINT) AS records,
    CAST(SUM(CASE WHEN piece.scope = 'interval' THEN piece.records ELSE 0 END) AS BIGINT) AS interval_records,
    MAX(piece.max_allocated_bytes) AS max_allocated_bytes, MAX(piece.max_reserved_bytes) AS max_reserved_bytes,
    MAX(piece.max_active_bytes) AS max_active_bytes, MAX(piece.max_device_used_bytes) AS max_device_used_bytes,
    MAX(piece.max_outside_bytes) AS max_outside_bytes, MIN(piece.device_total_bytes) AS device_total_bytes,
    MAX(piece.alloc_retries) AS alloc_retries, CAST(SUM(piece.ooms) AS BIGINT) AS ooms,
    MIN(piece.first_iteration) AS first_iteration, MAX(piece.last_iteration) AS last_iteration,
    MIN(piece.first_at) AS first_at, MAX(piece.last_at) AS last_at
FROM rank_day AS piece
JOIN taken ON taken.artifact = piece.artifact
GROUP BY piece.run, piece.run_index, piece.cluster, piece.rank, piece.rank_label, COALESCE(piece.day, CAST(taken.ingested_at AS DATE))
