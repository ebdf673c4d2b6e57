-- What was left at the fullest instant of each cell of a rank x step picture. Parameters: $run, $run_index, $ranks, $left (capacity less what lies
-- outside torch, one a rank), $steps (cells along the steps) and $rows (cells along the ranks). Neighbouring ranks and steps share a cell that shows
-- its worst: the smallest headroom. `exact` is false where every peak of the cell is only an upper bound.
WITH judged AS (
    SELECT UNNEST($ranks) AS rank, UNNEST($left) AS left_bytes
), step AS (
    SELECT
        steps.rank, steps.iteration, steps.exact, steps.touched, judged.left_bytes - steps.max_allocated_bytes AS headroom_bytes,
        DENSE_RANK() OVER (ORDER BY steps.iteration) - 1 AS column_at, DENSE_RANK() OVER (ORDER BY steps.rank) - 1 AS row_at
    FROM rank_steps AS steps
    JOIN judged ON judged.rank = steps.rank
    WHERE steps.run = $run AND steps.run_index = $run_index AND steps.max_allocated_bytes IS NOT NULL
), extent AS (
    SELECT MAX(column_at) + 1 AS columns, MAX(row_at) + 1 AS rows FROM step
), placed AS (
    SELECT
        step.*, CAST(FLOOR(column_at / CEIL(GREATEST(extent.columns, 1) / CAST($steps AS DOUBLE))) AS INTEGER) AS cell_column,
        CAST(FLOOR(row_at / CEIL(GREATEST(extent.rows, 1) / CAST($rows AS DOUBLE))) AS INTEGER) AS cell_row
    FROM step CROSS JOIN extent
), ordered AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY cell_row, cell_column ORDER BY headroom_bytes, rank, iteration) AS nth FROM placed
)
SELECT
    cell_row, cell_column, MIN(rank) AS first_rank, MAX(rank) AS last_rank, MIN(iteration) AS first_iteration, MAX(iteration) AS last_iteration,
    MIN(headroom_bytes) AS headroom_bytes, MAX(CASE WHEN nth = 1 THEN rank END) AS worst_rank,
    MAX(CASE WHEN nth = 1 THEN iteration END) AS worst_iteration, BOOL_OR(exact) AS exact, BOOL_OR(touched) AS touched
FROM ordered
GROUP BY cell_row, cell_column
ORDER BY cell_row, cell_column
