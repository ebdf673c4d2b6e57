-- Where does the allocator hold most that is never used at one time?
-- Most reserved less the peak of allocated: fragments and cache. Above a tenth of the device, `report` names the steps that raised it.
SELECT
    run, run_index, rank, stage, ROUND(max_reserved_bytes / 1073741824, 2) AS reserved_gib, ROUND(max_allocated_bytes / 1073741824, 2) AS peak_gib,
    ROUND((max_reserved_bytes - max_allocated_bytes) / 1073741824, 2) AS not_used_gib,
    ROUND((max_reserved_bytes - max_allocated_bytes) * 100.0 / capacity_bytes, 1) AS of_the_device_percent
FROM fleet_ranks
WHERE (max_reserved_bytes - max_allocated_bytes) * 10 > capacity_bytes
ORDER BY not_used_gib DESC, run, run_index, rank
