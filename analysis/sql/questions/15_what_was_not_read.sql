-- Which artifacts were not understood in full?
-- Silence of the views may be a log that could not be read. Rejected stretches stand in `rejects`, the reason for a quarantine in `artifacts`.
SELECT run, kind, status, COUNT(*) AS pieces, SUM(rows) AS records, SUM(rejected) AS rejected, MIN(reason) AS reason
FROM artifacts
WHERE rejected > 0 OR status = 'quarantined'
GROUP BY run, kind, status
ORDER BY rejected DESC, run
