-- One row a rank and day: how many of its records came within the margin of the limit, by live bytes (hard) or by what the allocator held (either),
-- the day's least headroom and class. Margin = the larger of 2 GiB and 3 % of capacity, against what is left of capacity beside torch. From the rollups:
-- counts are exact unless the threshold falls between the least and the largest peak of one level of 256 MiB; then `_least` and `_most` differ.
-- Maxima that never reset are upper bounds: such a record convicts only the step that raised it, so of a whole day at most one is certain.
-- Where nothing outside torch is known it is taken as 0.5 GiB at least: near can be said, clear cannot. Every record counts, not only those of
-- steps of high load as in `report`, which reads the raw records of one run.
WITH threshold AS (
    SELECT
        cluster, run, run_index, rank, rank_label, stage, capacity_bytes, outside_bytes, margin_bytes,
        capacity_bytes - COALESCE(outside_bytes, 536870912) AS left_bytes,
        capacity_bytes - COALESCE(outside_bytes, 536870912) - margin_bytes AS near_from_bytes,
        COALESCE(last_iteration - first_iteration + 1, 0) AS steps_spanned
    FROM fleet_ranks
), level AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, rank_label, day,
        COALESCE(scope, '') = 'interval' AS own, records, min_allocated_bytes, max_allocated_bytes, min_reserved_bytes, max_reserved_bytes
    FROM rank_day_levels
), counted AS (
    SELECT
        level.cluster, level.run, level.run_index, level.rank, level.rank_label, level.day, level.own, level.records, edge.near_from_bytes,
        level.max_allocated_bytes, level.max_reserved_bytes,
        CASE WHEN level.min_allocated_bytes >= edge.near_from_bytes THEN level.records
             WHEN level.max_allocated_bytes >= edge.near_from_bytes THEN 1 ELSE 0 END AS hard_least,
        CASE WHEN level.min_allocated_bytes >= edge.near_from_bytes THEN level.records
             WHEN level.max_allocated_bytes >= edge.near_from_bytes THEN level.records - 1 ELSE 0 END AS hard_most,
        CASE WHEN level.min_reserved_bytes >= edge.near_from_bytes OR level.min_allocated_bytes >= edge.near_from_bytes THEN level.records
             WHEN level.max_reserved_bytes >= edge.near_from_bytes OR level.max_allocated_bytes >= edge.near_from_bytes THEN 1 ELSE 0 END AS near_least,
        CASE WHEN level.min_reserved_bytes >= edge.near_from_bytes OR level.min_allocated_bytes >= edge.near_from_bytes THEN level.records
             WHEN level.max_reserved_bytes >= edge.near_from_bytes OR level.max_allocated_bytes >= edge.near_from_bytes THEN level.records - 1
             ELSE 0 END AS near_most
    FROM level
    JOIN threshold AS edge ON edge.cluster = level.cluster AND edge.run = level.run AND edge.run_index = level.run_index
        AND COALESCE(edge.rank, -1) = COALESCE(level.rank, -1) AND COALESCE(edge.rank_label, '') = COALESCE(level.rank_label, '')
), by_scope AS (
    SELECT
        cluster, run, run_index, rank, rank_label, day, own, near_from_bytes, SUM(records) AS records,
        SUM(hard_least) AS hard_least, SUM(hard_most) AS hard_most, SUM(near_least) AS near_least, SUM(near_most) AS near_most,
        MAX(max_allocated_bytes) AS max_allocated_bytes, MAX(max_reserved_bytes) AS max_reserved_bytes
    FROM counted
    GROUP BY cluster, run, run_index, rank, rank_label, day, own, near_from_bytes
), before AS (
    SELECT
        *, MAX(max_allocated_bytes) OVER earlier AS allocated_before, MAX(max_reserved_bytes) OVER earlier AS reserved_before
    FROM by_scope
    WINDOW earlier AS (
        PARTITION BY cluster, run, run_index, rank, rank_label, own ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), certain AS (
    SELECT
        cluster, run, run_index, rank, rank_label, day, own, records, hard_most, near_most, max_allocated_bytes, max_reserved_bytes,
        CASE WHEN own THEN hard_least
             WHEN max_allocated_bytes >= near_from_bytes AND max_allocated_bytes > COALESCE(allocated_before, -1) THEN 1 ELSE 0 END AS hard_least,
        CASE WHEN own THEN near_least
             WHEN max_allocated_bytes >= near_from_bytes AND max_allocated_bytes > COALESCE(allocated_before, -1) THEN 1
             WHEN max_reserved_bytes >= near_from_bytes AND max_reserved_bytes > COALESCE(reserved_before, -1) THEN 1 ELSE 0 END AS near_least
    FROM before
), active AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, rank, rank_label, day, max_active_bytes
    FROM rank_days
    WHERE max_active_bytes IS NOT NULL
), daily AS (
    SELECT
        cluster, run, run_index, rank, rank_label, day, CAST(SUM(records) AS BIGINT) AS records,
        CAST(SUM(CASE WHEN own THEN records ELSE 0 END) AS BIGINT) AS interval_records,
        CAST(SUM(hard_least) AS BIGINT) AS hard_near_least, CAST(SUM(GREATEST(hard_most, hard_least)) AS BIGINT) AS hard_near_most,
        CAST(SUM(near_least) AS BIGINT) AS near_least, CAST(SUM(GREATEST(near_most, near_least)) AS BIGINT) AS near_most,
        MAX(max_allocated_bytes) AS max_allocated_bytes, MAX(max_reserved_bytes) AS max_reserved_bytes
    FROM certain
    GROUP BY cluster, run, run_index, rank, rank_label, day
), judged AS (
    SELECT
        daily.cluster, daily.run, daily.run_index, daily.rank, daily.rank_label, edge.stage, daily.day, daily.records, daily.interval_records,
        CASE WHEN active.max_active_bytes >= edge.near_from_bytes THEN GREATEST(daily.hard_near_least, 1)
             ELSE daily.hard_near_least END AS hard_near_least,
        CASE WHEN active.max_active_bytes >= edge.near_from_bytes AND active.max_active_bytes > COALESCE(daily.max_allocated_bytes, 0)
             THEN daily.records ELSE daily.hard_near_most END AS hard_near_most,
        CASE WHEN active.max_active_bytes >= edge.near_from_bytes THEN GREATEST(daily.near_least, 1) ELSE daily.near_least END AS near_least,
        daily.near_most, edge.left_bytes - daily.max_reserved_bytes AS soft_headroom_bytes,
        edge.left_bytes - GREATEST(COALESCE(active.max_active_bytes, daily.max_allocated_bytes), daily.max_allocated_bytes) AS hard_headroom_bytes,
        edge.outside_bytes IS NOT NULL AS outside_known, edge.capacity_bytes, edge.margin_bytes,
        daily.records >= 5 OR edge.steps_spanned >= 5 AS enough
    FROM daily
    JOIN threshold AS edge ON edge.cluster = daily.cluster AND edge.run = daily.run AND edge.run_index = daily.run_index
        AND COALESCE(edge.rank, -1) = COALESCE(daily.rank, -1) AND COALESCE(edge.rank_label, '') = COALESCE(daily.rank_label, '')
    LEFT JOIN active ON active.cluster = daily.cluster AND active.run = daily.run AND active.run_index = daily.run_index AND active.day = daily.day
        AND COALESCE(active.rank, -1) = COALESCE(daily.rank, -1) AND COALESCE(active.rank_label, '') = COALESCE(daily.rank_label, '')
)
SELECT
    cluster, run, run_index, rank, rank_label, stage, day, SUBSTRING(CAST(day AS STRING), 1, 7) AS month, records, interval_records,
    hard_near_least, hard_near_most, near_least, GREATEST(near_most, near_least) AS near_most,
    CASE
        WHEN capacity_bytes IS NULL THEN 'undetermined'
        WHEN interval_records >= 5 AND near_least >= 0.8 * records THEN 'stable'
        WHEN near_least > 0 AND (interval_records < 5 OR near_most >= 0.8 * records) THEN 'insufficient'
        WHEN near_least > 0 THEN 'occasional'
        WHEN near_most > 0 THEN 'insufficient'
        WHEN NOT outside_known THEN 'undetermined'
        WHEN NOT enough THEN 'insufficient'
        ELSE 'clear'
    END AS near_class,
    CASE WHEN hard_near_least > 0 THEN 'hard' WHEN near_least > 0 THEN 'cache' END AS near_kind,
    soft_headroom_bytes, hard_headroom_bytes, outside_known, capacity_bytes, margin_bytes
FROM judged
