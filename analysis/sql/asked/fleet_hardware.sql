-- By cluster and device: attempts, ranks, verdicts, and the most that lay outside torch.
SELECT
    cluster, COALESCE(gpu, 'not told') AS gpu, COUNT(*) AS attempts, CAST(SUM(ranks_measured) AS BIGINT) AS ranks_measured,
    SUM(CASE WHEN verdict = 'oom' THEN 1 ELSE 0 END) AS died, SUM(CASE WHEN verdict = 'near' THEN 1 ELSE 0 END) AS near,
    MIN(capacity_bytes) AS capacity_bytes, MEDIAN(outside_bytes) AS median_outside_bytes, MAX(outside_bytes) AS outside_bytes,
    MIN(soft_headroom_bytes) AS soft_headroom_bytes
FROM chosen
GROUP BY cluster, COALESCE(gpu, 'not told')
ORDER BY attempts DESC, cluster, gpu
