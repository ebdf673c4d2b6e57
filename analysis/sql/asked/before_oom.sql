-- Each rank before it died. Parameters: $run, $run_index. Steady is the least allocated between steps; outside the most that lay outside torch at one
-- instant, of the rank itself or else of its stage; allocated and reserved are those of the last reading. Messages of the error itself are not used.
WITH reading AS (
    SELECT rank, iteration, line, artifact, allocated_bytes, reserved_bytes,
        CASE WHEN COALESCE(phase, 'train') = 'train' THEN allocated_bytes END AS between_bytes
    FROM rank_memory
    WHERE run = $run AND run_index = $run_index AND COALESCE(valid, TRUE) AND rank IS NOT NULL AND allocated_bytes > 0
), ordered AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY rank ORDER BY COALESCE(iteration, -1) DESC, line DESC, artifact DESC) AS nth,
        MIN(between_bytes) OVER (PARTITION BY rank) AS steady_bytes
    FROM reading
), outside AS (
    SELECT
        latest.rank, latest.outside_bytes AS own_bytes, MAX(latest.outside_bytes) OVER (PARTITION BY layout.pp) AS stage_bytes
    FROM rank_latest AS latest
    LEFT JOIN rank_layout AS layout ON layout.run = latest.run AND layout.run_index = latest.run_index AND layout.rank = latest.rank
    WHERE latest.run = $run AND latest.run_index = $run_index AND latest.rank IS NOT NULL
)
SELECT ordered.rank, ordered.steady_bytes, COALESCE(outside.own_bytes, outside.stage_bytes) AS outside_bytes, ordered.allocated_bytes,
    ordered.reserved_bytes
FROM ordered
LEFT JOIN outside ON outside.rank = ordered.rank
WHERE ordered.nth = 1
