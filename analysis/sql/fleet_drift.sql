-- One row a thing that changed between an attempt and the one before it of the same configuration in the same cluster, where memory changed: the
-- fullest rank's peak or reserved by more than 1 %, or the most outside torch by more than 256 MiB. Same configuration: model, layout, batch and
-- sequence. A pair of which no change is known has one row with a null `name`. An argument that one side does not print counts as unset;
-- environments are compared where both sides tell one.
WITH argument AS (
    SELECT
        cluster, run, run_index, name,
        CASE WHEN value IN ('None', 'False', 'none', 'false', '') THEN NULL ELSE value END AS value,
        ROW_NUMBER() OVER (
            PARTITION BY cluster, run, run_index, name ORDER BY CASE origin WHEN 'dump' THEN 0 WHEN 'ddp_config' THEN 1
                WHEN 'optimizer_config' THEN 2 WHEN 'command_line' THEN 3 ELSE 4 END, CASE WHEN value IS NULL THEN 1 ELSE 0 END, artifact, line
        ) AS nth
    FROM fleet_arguments
), shape AS (
    SELECT
        cluster, run, run_index,
        MAX(CASE WHEN name = 'num_layers' THEN value END) AS layers, MAX(CASE WHEN name = 'hidden_size' THEN value END) AS hidden,
        MAX(CASE WHEN name = 'ffn_hidden_size' THEN value END) AS ffn, MAX(CASE WHEN name = 'num_attention_heads' THEN value END) AS heads,
        MAX(CASE WHEN name = 'num_query_groups' THEN value END) AS query_groups, MAX(CASE WHEN name = 'num_experts' THEN value END) AS experts,
        MAX(CASE WHEN name = 'moe_ffn_hidden_size' THEN value END) AS expert_ffn, MAX(CASE WHEN name = 'moe_router_topk' THEN value END) AS topk,
        MAX(CASE WHEN name = 'seq_length' THEN value END) AS sequence, MAX(CASE WHEN name = 'micro_batch_size' THEN value END) AS micro_batch,
        MAX(CASE WHEN name = 'global_batch_size' THEN value END) AS global_batch
    FROM argument
    WHERE nth = 1
    GROUP BY cluster, run, run_index
), configured AS (
    SELECT
        one.cluster, one.run, one.run_index, CONCAT(
            COALESCE(one.framework, '?'), ' ', shape.layers, ' layers x ', shape.hidden, ', ffn ', COALESCE(shape.ffn, '-'), ', ',
            COALESCE(shape.heads, '-'), ' heads, ', COALESCE(shape.query_groups, '-'), ' groups, ', COALESCE(shape.experts, 'no'), ' experts ',
            COALESCE(shape.expert_ffn, '-'), ' top ', COALESCE(shape.topk, '-'), ', sequence ', COALESCE(shape.sequence, '-'), ', batch ',
            COALESCE(shape.micro_batch, '-'), ' of ', COALESCE(shape.global_batch, '-'), ', ', COALESCE(CAST(one.world_size AS STRING), '?'),
            ' ranks TP ', COALESCE(CAST(one.tp AS STRING), '-'), ' PP ', COALESCE(CAST(one.pp AS STRING), '-'), ' CP ',
            COALESCE(CAST(one.cp AS STRING), '-'), ' EP ', COALESCE(CAST(one.ep AS STRING), '-')) AS configuration,
        one.first_day, COALESCE(one.started_at, CAST(one.first_day AS TIMESTAMP)) AS begun_at, one.gpu_name, one.framework_version, one.peak_bytes,
        one.max_reserved_bytes, one.outside_bytes, one.verdict
    FROM fleet_runs AS one
    JOIN shape ON shape.cluster = one.cluster AND shape.run = one.run AND shape.run_index = one.run_index
    WHERE shape.layers IS NOT NULL AND shape.hidden IS NOT NULL AND one.peak_bytes IS NOT NULL
), ordered AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY cluster, configuration ORDER BY begun_at, run, run_index) AS place FROM configured
), pair AS (
    SELECT
        later.cluster, later.configuration, later.run, later.run_index, later.first_day AS day, earlier.run AS run_before,
        earlier.run_index AS run_index_before, earlier.first_day AS day_before, earlier.peak_bytes AS peak_before_bytes, later.peak_bytes,
        later.peak_bytes - earlier.peak_bytes AS peak_change_bytes, later.max_reserved_bytes - earlier.max_reserved_bytes AS reserved_change_bytes,
        later.outside_bytes - earlier.outside_bytes AS outside_change_bytes, earlier.verdict AS verdict_before, later.verdict,
        earlier.gpu_name AS gpu_before, later.gpu_name AS gpu, earlier.framework_version AS version_before, later.framework_version AS version
    FROM ordered AS later
    JOIN ordered AS earlier ON earlier.cluster = later.cluster AND earlier.configuration = later.configuration AND earlier.place = later.place - 1
    WHERE ABS(later.peak_bytes - earlier.peak_bytes) > 0.01 * earlier.peak_bytes
        OR ABS(later.max_reserved_bytes - earlier.max_reserved_bytes) > 0.01 * earlier.max_reserved_bytes
        OR ABS(later.outside_bytes - earlier.outside_bytes) > 268435456
), variable AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, name, MIN(value) AS value
    FROM environment
    WHERE value IS NOT NULL
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), name
), item AS (
    SELECT cluster, run, run_index, 'argument' AS kind, name, value FROM argument WHERE nth = 1
    UNION ALL
    SELECT cluster, run, run_index, CASE WHEN LOWER(name) LIKE '%version%' THEN 'version' ELSE 'environment' END, name, value FROM variable
), sided AS (
    SELECT pair.cluster, pair.run, pair.run_index, item.kind, item.name, item.value AS value_before, CAST(NULL AS STRING) AS value_after,
        1 AS before_told, 0 AS after_told
    FROM pair
    JOIN item ON item.cluster = pair.cluster AND item.run = pair.run_before AND item.run_index = pair.run_index_before
    UNION ALL
    SELECT pair.cluster, pair.run, pair.run_index, item.kind, item.name, CAST(NULL AS STRING), item.value, 0, 1
    FROM pair
    JOIN item ON item.cluster = pair.cluster AND item.run = pair.run AND item.run_index = pair.run_index
), both_sides AS (
    SELECT cluster, run, run_index, kind = 'argument' AS by_argument, MIN(before_told) AS least, MAX(before_told) AS most
    FROM sided
    GROUP BY cluster, run, run_index, kind = 'argument'
), compared AS (
    SELECT cluster, run, run_index, kind, name, MAX(value_before) AS value_before, MAX(value_after) AS value_after
    FROM sided
    GROUP BY cluster, run, run_index, kind, name
), changed AS (
    SELECT compared.*
    FROM compared
    JOIN both_sides ON both_sides.cluster = compared.cluster AND both_sides.run = compared.run AND both_sides.run_index = compared.run_index
        AND both_sides.by_argument = (compared.kind = 'argument') AND both_sides.least = 0 AND both_sides.most = 1
    WHERE COALESCE(compared.value_before, '') <> COALESCE(compared.value_after, '')
    UNION ALL
    SELECT cluster, run, run_index, 'hardware', 'gpu_name', gpu_before, gpu FROM pair WHERE gpu_before <> gpu
    UNION ALL
    SELECT cluster, run, run_index, 'version', 'framework_version', version_before, version FROM pair WHERE version_before <> version
)
SELECT
    pair.cluster, pair.configuration, pair.run, pair.run_index, pair.day, pair.run_before, pair.run_index_before, pair.day_before,
    pair.peak_before_bytes, pair.peak_bytes, pair.peak_change_bytes, pair.reserved_change_bytes, pair.outside_change_bytes, pair.verdict_before,
    pair.verdict, changed.kind, changed.name, changed.value_before, changed.value_after
FROM pair
LEFT JOIN changed ON changed.cluster = pair.cluster AND changed.run = pair.run AND changed.run_index = pair.run_index
