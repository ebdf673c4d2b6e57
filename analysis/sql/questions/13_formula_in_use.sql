-- Which branch and generation of the printed formula do the runs use?
-- The newest generation that prints the text to its last digit; confidence `proven` or `solved` means that the arithmetic agrees.
SELECT branch, generation, confidence, COUNT(*) AS attempts, MIN(run) AS for_example
FROM fleet_formula
GROUP BY branch, generation, confidence
ORDER BY attempts DESC, branch, generation, confidence
