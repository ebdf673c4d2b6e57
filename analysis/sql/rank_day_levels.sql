-- One row a rank, day and level: how many records had their peak reserved and peak allocated in these 256 MiB, with the smallest and largest
-- peak. Sums of `rank_day` over all pieces that count; a row whose records print no time stands on the day of its ingest.
WITH taken AS (
    SELECT artifact, MIN(ingested_at) AS ingested_at FROM artifacts GROUP BY artifact
)
SELECT
    piece.run, piece.run_index, piece.cluster, piece.rank, piece.rank_label, COALESCE(piece.day, CAST(taken.ingested_at AS DATE)) AS day, piece.scope,
    piece.reserved_level, piece.allocated_level, CAST(SUM(piece.records) AS BIGINT) AS records,
    MIN(piece.min_allocated_bytes) AS min_allocated_bytes, MAX(piece.max_allocated_bytes) AS max_allocated_bytes,
    MIN(piece.min_reserved_bytes) AS min_reserved_bytes, MAX(piece.max_reserved_bytes) AS max_reserved_bytes
FROM rank_day AS piece
JOIN taken ON taken.artifact = piece.artifact
WHERE piece.records > 0
GROUP BY piece.run, piece.run_index, piece.cluster, piece.rank, piece.rank_label, COALESCE(piece.day, CAST(taken.ingested_at AS DATE)), piece.scope,
    piece.reserved_level, piece.allocated_level
