-- One row a communicator that a process finished to set up, with the facts its thread printed since the one before. Parameters: $run, $run_index.
-- Lines of one thread up to `init` (Init COMPLETE) belong together: most of them do not name their communicator.
WITH fact AS (
    SELECT
        *, MIN(CASE WHEN event = 'init' THEN line END) OVER
            (PARTITION BY artifact, host, pid, thread ORDER BY line ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS init_line
    FROM nccl_communicators
    WHERE run = $run AND run_index = $run_index
), device_support AS (
    SELECT artifact, host, pid, MAX(CASE WHEN other['available'] = 'true' THEN 1 ELSE 0 END) AS nvls_available
    FROM fact
    WHERE event = 'nvls'
    GROUP BY artifact, host, pid
)
SELECT
    fact.artifact, fact.host, fact.pid, fact.init_line, MAX(fact.rank) AS rank, MAX(fact.rank_label) AS rank_label, MAX(fact.device) AS device,
    MAX(CASE WHEN fact.event = 'init' THEN fact.communicator END) AS communicator,
    MAX(CASE WHEN fact.event = 'init' THEN fact.communicator_rank END) AS communicator_rank,
    MAX(CASE WHEN fact.event = 'init' THEN fact.ranks END) AS ranks,
    MAX(CASE WHEN fact.event = 'init' THEN fact.communicator_id END) AS communicator_id,
    MAX(CASE WHEN fact.event = 'init' THEN fact.parent END) AS parent,
    MAX(CASE WHEN fact.event = 'init' THEN fact.other['color'] END) AS color,
    MAX(CASE WHEN fact.event = 'init' THEN fact.other['child_count'] END) AS child_count,
    MAX(CASE WHEN fact.event = 'init' THEN fact.other['split_count'] END) AS split_count,
    MAX(CASE WHEN fact.event = 'topology' THEN fact.nodes END) AS nodes,
    MAX(CASE WHEN fact.event = 'topology' THEN TRY_CAST(fact.other['local_ranks'] AS INTEGER) END) AS local_ranks,
    MAX(fact.collective_channels) AS collective_channels,
    MAX(CASE WHEN fact.event = 'channels' THEN fact.nvls_channels END) AS nvls_channels,
    MAX(fact.p2p_channels) AS p2p_channels, MAX(fact.p2p_channels_per_peer) AS p2p_channels_per_peer,
    MAX(CASE WHEN fact.event = 'p2p_chunksize' THEN TRY_CAST(fact.other['bytes'] AS BIGINT) END) AS p2p_chunk_bytes,
    MAX(device_support.nvls_available) AS nvls_available
FROM fact
LEFT JOIN device_support ON device_support.artifact = fact.artifact AND device_support.host = fact.host AND device_support.pid = fact.pid
WHERE fact.init_line IS NOT NULL
GROUP BY fact.artifact, fact.host, fact.pid, fact.init_line
ORDER BY fact.artifact, fact.init_line
