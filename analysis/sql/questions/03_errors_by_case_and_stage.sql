-- Which kinds of out-of-memory errors happen, and on which stage?
-- Cases: docs/methods/oom.md. A full, B cached memory that was not used, C too much outside torch, D a request that never fits, E another allocator,
-- F host memory, G a cap below the device.
SELECT oom_case, stage, COUNT(*) AS errors, MIN(run) AS for_example, ROUND(MAX(requested_bytes) / 1048576, 0) AS largest_request_mib
FROM fleet_oom
GROUP BY oom_case, stage
ORDER BY oom_case, stage
