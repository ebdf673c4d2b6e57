-- What would be freed on the fullest stage if optimizer state, or activations, were gone?
-- Bytes of the expected peak by class: the bound of what sharding or offloading the optimizer, and of what recomputation, can give back.
WITH fullest AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY cluster, run, run_index ORDER BY peak_allocated_bytes DESC, stage) AS nth FROM stage_ledger
)
SELECT
    cluster, run, run_index, stage, ROUND(peak_allocated_bytes / 1073741824, 2) AS expected_peak_gib,
    ROUND(COALESCE(peak_classes['optimizer'], 0) / 1073741824, 2) AS optimizer_gib,
    ROUND(COALESCE(peak_classes['activations'], 0) / 1073741824, 2) AS activations_gib,
    ROUND(COALESCE(peak_classes['weights'], 0) / 1073741824, 2) AS weights_gib
FROM fullest
WHERE nth = 1
ORDER BY optimizer_gib + activations_gib DESC, cluster, run, run_index
