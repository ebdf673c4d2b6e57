-- One row an out-of-memory error, or kill by the host: where it was, what was asked for and free, its case (`docs/methods/oom.md`) and why. An
-- error that prints no time stands on the day of its ingest. Snapshots are not looked at: what kind of cached memory a case B left, `report` tells.
SELECT
    event.cluster, event.run, event.run_index, event.rank, event.rank_label,
    CASE WHEN event.rank >= 0 AND event.rank < grid.world_size THEN CAST(MOD(FLOOR(event.rank / grid.stride), grid.stages) AS INT) END AS stage,
    grid.stages, event.iteration,
    COALESCE(CAST(event.at AS DATE), CAST(piece.ingested_at AS DATE)) AS day, event.at, event.kind, one.oom_case, one.reason, event.requested_bytes, event.free_bytes, event.capacity_bytes,
    event.allocated_bytes, COALESCE(event.reserved_bytes, event.allocated_bytes + event.reserved_unallocated_bytes) AS reserved_bytes,
    event.before_steady_bytes, event.before_outside_bytes, event.artifact, event.line
FROM fleet_oom_evidence AS event
LEFT JOIN fleet_oom_cases AS one ON one.cluster = event.cluster AND one.artifact = event.artifact AND one.run = event.run
    AND one.run_index = event.run_index AND COALESCE(one.line, -1) = COALESCE(event.line, -1) AND COALESCE(one.rank, -1) = COALESCE(event.rank, -1)
LEFT JOIN fleet_grid AS grid ON grid.cluster = event.cluster AND grid.run = event.run AND grid.run_index = event.run_index
LEFT JOIN artifacts AS piece ON piece.artifact = event.artifact
