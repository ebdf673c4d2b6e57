-- One row a pipeline stage of an attempt: the peak measured on its fullest rank, over what was printed and over what is expected of the stage, with what
-- attempts are grouped by: family, GPU, branch and newest generation of the formula that prints the text. A stage of which no rank was measured
-- has a row without a measure; so has, with a null stage, an attempt whose sizes are not known.
WITH ranked AS (
    SELECT * FROM fleet_ranks
), measured AS (
    SELECT
        cluster, run, run_index, stage, COUNT(*) AS ranks_measured, MAX(max_allocated_bytes) AS max_allocated_bytes,
        MAX(max_reserved_bytes) AS max_reserved_bytes, MAX(outside_bytes) AS outside_bytes
    FROM ranked
    WHERE max_allocated_bytes IS NOT NULL
    GROUP BY cluster, run, run_index, stage
), fullest AS (
    SELECT cluster, run, run_index, stage, rank, ROW_NUMBER() OVER (
        PARTITION BY cluster, run, run_index, stage ORDER BY max_allocated_bytes DESC, rank
    ) AS nth
    FROM ranked
    WHERE max_allocated_bytes IS NOT NULL
), days AS (
    SELECT cluster, run, run_index, MIN(first_day) AS first_day, MAX(last_day) AS last_day, MIN(capacity_bytes) AS capacity_bytes
    FROM ranked
    GROUP BY cluster, run, run_index
), staged AS (
    SELECT
        grid.cluster, grid.run, grid.run_index, stage.stage, grid.stages, grid.family, stage.expected_peak_bytes, stage.expected_steady_bytes,
        COALESCE(grid.reason, stage.reason) AS reason
    FROM fleet_grid AS grid
    LEFT JOIN fleet_stages AS stage ON stage.cluster = grid.cluster AND stage.run = grid.run AND stage.run_index = grid.run_index
    UNION ALL
    SELECT measured.cluster, measured.run, measured.run_index, CAST(NULL AS INT), grid.stages, grid.family, CAST(NULL AS BIGINT),
        CAST(NULL AS BIGINT), 'the rank of the record is not told'
    FROM measured
    JOIN fleet_grid AS grid ON grid.cluster = measured.cluster AND grid.run = measured.run AND grid.run_index = measured.run_index
    WHERE measured.stage IS NULL AND grid.stages IS NOT NULL
)
SELECT
    staged.cluster, staged.run, staged.run_index, staged.stage, staged.stages,
    CASE WHEN staged.stage IS NULL THEN NULL WHEN staged.stages = 1 THEN 'only' WHEN staged.stage = 0 THEN 'first'
         WHEN staged.stage = staged.stages - 1 THEN 'last' ELSE 'middle' END AS place,
    staged.family,
    CASE WHEN attempt.gpu_name IS NOT NULL THEN attempt.gpu_name WHEN days.capacity_bytes IS NOT NULL
         THEN CONCAT(CAST(CAST(ROUND(days.capacity_bytes / 1073741824) AS INT) AS STRING), ' GiB device') END AS gpu,
    formula.branch, formula.generation, days.first_day, days.last_day, COALESCE(measured.ranks_measured, 0) AS ranks_measured,
    fullest.rank AS fullest_rank, measured.max_allocated_bytes, measured.max_reserved_bytes, measured.outside_bytes,
    formula.total_bytes AS printed_bytes, staged.expected_peak_bytes, staged.expected_steady_bytes,
    measured.max_allocated_bytes * 1.0 / formula.total_bytes AS over_printed_ratio,
    measured.max_allocated_bytes * 1.0 / staged.expected_peak_bytes AS over_expected_ratio, staged.reason AS not_expected
FROM staged
JOIN fleet_attempts AS attempt ON attempt.cluster = staged.cluster AND attempt.run = staged.run AND attempt.run_index = staged.run_index
LEFT JOIN measured ON measured.cluster = staged.cluster AND measured.run = staged.run AND measured.run_index = staged.run_index
    AND COALESCE(measured.stage, -1) = COALESCE(staged.stage, -1)
LEFT JOIN fullest ON fullest.cluster = staged.cluster AND fullest.run = staged.run AND fullest.run_index = staged.run_index
    AND COALESCE(fullest.stage, -1) = COALESCE(staged.stage, -1) AND fullest.nth = 1
LEFT JOIN days ON days.cluster = staged.cluster AND days.run = staged.run AND days.run_index = staged.run_index
LEFT JOIN fleet_formula AS formula ON formula.cluster = staged.cluster AND formula.run = staged.run AND formula.run_index = staged.run_index
    AND formula.total_bytes > 0
