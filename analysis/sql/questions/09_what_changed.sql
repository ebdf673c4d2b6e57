-- What changed between one run of a configuration and the next, where its memory changed?
-- Same model, layout, batch and sequence; arguments, environment, versions and hardware are compared. A pair with nothing named differs in
-- nothing that the artifacts tell. `hbmledger diff` says how many bytes each argument explains.
SELECT
    run_before, run, ROUND(peak_change_bytes / 1073741824, 2) AS peak_change_gib, COALESCE(name, 'nothing told') AS what,
    COALESCE(value_before, 'unset') AS was, COALESCE(value_after, 'unset') AS became
FROM fleet_drift
ORDER BY ABS(peak_change_bytes) DESC, run_before, run, what
