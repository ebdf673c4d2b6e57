-- How many connections each process printed, by communicator where that can be told, peer, connection index, direction and transport. Parameters: $run,
-- $run_index. `init_line` names the communicator (see nccl_communicators.sql) of a line printed while it was set up; it is null for lines printed
-- at first use, whose communicator is chosen by `own_rank` and `highest_rank` where the line does not name it. The sender prints P2P and SHM lines.
WITH printed AS (
    SELECT
        artifact, host, pid, thread, line, 'connection' AS event, communicator, channel, COALESCE(connection_index, 0) AS connection_index,
        source_rank, destination_rank, COALESCE(direction, 'send') AS direction,
        CASE
            WHEN transport LIKE 'P2P%' THEN CASE WHEN transport LIKE '%/read%' THEN 'p2p_read' ELSE 'p2p' END
            WHEN transport LIKE 'NET%' THEN CASE WHEN transport LIKE '%GDRDMA%' THEN 'net_gdr' ELSE 'net_host' END
            WHEN transport LIKE 'COLLNET%' THEN 'collnet'
            ELSE 'host'
        END AS transport,
        CASE WHEN transport LIKE 'NET%(%' AND transport NOT LIKE '%GDRDMA(%' OR transport LIKE 'NET/%/%(%)/%' THEN 1 ELSE 0 END AS proxied
    FROM nccl_connections
    WHERE run = $run AND run_index = $run_index
    UNION ALL
    SELECT artifact, host, pid, thread, line, event, communicator, NULL, NULL, NULL, NULL, NULL, NULL, 0
    FROM nccl_communicators
    WHERE run = $run AND run_index = $run_index AND event IN ('init', 'init_started')
), ordered AS (
    SELECT
        *, MIN(CASE WHEN event = 'init' THEN line END) OVER (PARTITION BY artifact, host, pid, thread ORDER BY line
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next_init,
        MAX(CASE WHEN event = 'init' THEN line END) OVER (PARTITION BY artifact, host, pid, thread ORDER BY line
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last_init,
        MAX(CASE WHEN event = 'init_started' THEN line END) OVER (PARTITION BY artifact, host, pid, thread ORDER BY line
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last_started,
        MAX(CASE WHEN event = 'init_started' THEN 1 ELSE 0 END) OVER (PARTITION BY artifact, host, pid) AS tells_starts
    FROM printed
)
SELECT
    artifact, host, pid, communicator,
    CASE WHEN tells_starts = 0 OR last_started > COALESCE(last_init, 0) THEN next_init END AS init_line,
    CASE WHEN direction = 'send' THEN source_rank ELSE destination_rank END AS own_rank,
    CASE WHEN direction = 'send' THEN destination_rank ELSE source_rank END AS peer_rank, connection_index, direction, transport,
    MAX(proxied) AS proxied, COUNT(*) AS connections,
    MAX(CASE WHEN COALESCE(source_rank, 0) > COALESCE(destination_rank, 0) THEN source_rank ELSE destination_rank END) AS highest_rank, MIN(line) AS line
FROM ordered
WHERE event = 'connection'
GROUP BY artifact, host, pid, communicator, CASE WHEN tells_starts = 0 OR last_started > COALESCE(last_init, 0) THEN next_init END,
    CASE WHEN direction = 'send' THEN source_rank ELSE destination_rank END,
    CASE WHEN direction = 'send' THEN destination_rank ELSE source_rank END, connection_index, direction, transport
ORDER BY artifact, host, pid, line
