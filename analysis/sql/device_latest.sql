-- One row a device that nvidia-smi and its like list: most used over all valid readings, where it was read.
WITH reading AS (
    SELECT *, ROW_NUMBER() OVER (
        PARTITION BY run, run_index, rank, host, device, source ORDER BY COALESCE(used_bytes, -1) DESC, artifact, line
    ) AS nth
    FROM device_memory
    WHERE COALESCE(valid, TRUE) AND COALESCE(source, '') <> 'host'
), counted AS (
    SELECT run, run_index, rank, host, device, source, COUNT(*) AS readings
    FROM device_memory
    WHERE COALESCE(valid, TRUE) AND COALESCE(source, '') <> 'host'
    GROUP BY run, run_index, rank, host, device, source
)
SELECT
    reading.run, reading.run_index, reading.rank, reading.host, reading.device, reading.device_name, reading.source, reading.used_bytes,
    reading.total_bytes, reading.total_bytes - reading.used_bytes AS left_bytes, counted.readings, reading.artifact, reading.line
FROM reading
JOIN counted ON counted.run = reading.run AND counted.run_index = reading.run_index AND COALESCE(counted.device, -1) = COALESCE(reading.device, -1)
    AND COALESCE(counted.rank, -1) = COALESCE(reading.rank, -1) AND COALESCE(counted.host, '') = COALESCE(reading.host, '')
    AND COALESCE(counted.source, '') = COALESCE(reading.source, '')
WHERE reading.nth = 1
