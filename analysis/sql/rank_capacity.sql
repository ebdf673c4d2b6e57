-- One row a rank that was measured or died: the device's capacity and who told it. The rank's own figure comes before another rank's,
-- a total read beside the used figure before a printed one; of several the smallest counts. A cap below capacity counts as capacity.
WITH told AS (
    SELECT run, run_index, rank, device_total_bytes AS capacity_bytes, 1 AS preference, 'device total of the rank' AS source, artifact,
        MIN(line) AS line
    FROM rank_memory WHERE device_total_bytes > 0 AND COALESCE(valid, TRUE)
    GROUP BY run, run_index, rank, device_total_bytes, artifact
    UNION ALL
    SELECT run, run_index, rank, device_total_bytes, 2, 'torch.cuda.mem_get_info', artifact, MIN(line) FROM memory_stats WHERE device_total_bytes > 0
    GROUP BY run, run_index, rank, device_total_bytes, artifact
    UNION ALL
    SELECT run, run_index, rank, allowed_bytes, 0, 'cap named by the out-of-memory message', artifact, line FROM oom_events WHERE allowed_bytes > 0
    UNION ALL
    SELECT run, run_index, rank, capacity_bytes, 3, 'out-of-memory message', artifact, line FROM oom_events WHERE capacity_bytes > 0
    UNION ALL
    SELECT run, run_index, rank, total_bytes, 4, COALESCE(source, 'device table'), artifact, line
    FROM device_memory WHERE total_bytes > 0 AND COALESCE(valid, TRUE) AND COALESCE(source, '') <> 'host'
    UNION ALL
    SELECT run, run_index, CAST(NULL AS INTEGER), capacity_bytes, 5, 'facts of the run', artifact, line FROM runs WHERE capacity_bytes > 0
), holder AS (
    SELECT run, run_index, rank, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') END AS rank_label
    FROM rank_memory WHERE COALESCE(valid, TRUE)
    UNION
    SELECT run, run_index, rank, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') END FROM oom_events
), own AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY run, run_index, rank ORDER BY preference, capacity_bytes, artifact, line) AS nth
    FROM told
    WHERE rank IS NOT NULL
), any_rank AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY run, run_index ORDER BY preference, capacity_bytes, artifact, line) AS nth
    FROM told
)
SELECT
    holder.run, holder.run_index, holder.rank, holder.rank_label,
    COALESCE(own.capacity_bytes, any_rank.capacity_bytes) AS capacity_bytes,
    CASE WHEN own.source IS NOT NULL THEN own.source WHEN any_rank.rank IS NOT NULL THEN CONCAT(any_rank.source, ', another rank')
         ELSE any_rank.source END AS capacity_source,
    COALESCE(own.artifact, any_rank.artifact) AS capacity_artifact,
    CASE WHEN own.source IS NOT NULL THEN own.line ELSE any_rank.line END AS capacity_line
FROM holder
LEFT JOIN own ON own.run = holder.run AND own.run_index = holder.run_index AND own.rank = holder.rank AND own.nth = 1
JOIN any_rank ON any_rank.run = holder.run AND any_rank.run_index = holder.run_index AND any_rank.nth = 1
