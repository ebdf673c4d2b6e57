-- How measured peaks lie over what was printed and over what is expected, by family, as quantiles (the value at rank p n, rounded up) over the stages
-- of chosen attempts. Records of a rank that is not told are left out where the others are placed.
WITH ratio AS (
    SELECT one.family, one.over_printed_ratio, one.over_expected_ratio
    FROM fleet_ratio AS one
    JOIN chosen ON chosen.cluster = one.cluster AND chosen.run = one.run AND chosen.run_index = one.run_index
    WHERE one.stage IS NOT NULL OR one.stages IS NULL
), told AS (
    SELECT COALESCE(family, 'not told') AS family, 'over printed' AS against, over_printed_ratio AS ratio
    FROM ratio
    WHERE over_printed_ratio IS NOT NULL
    UNION ALL
    SELECT COALESCE(family, 'not told'), 'over expected', over_expected_ratio FROM ratio WHERE over_expected_ratio IS NOT NULL
), placed AS (
    SELECT
        family, against, ratio, ROW_NUMBER() OVER (PARTITION BY family, against ORDER BY ratio) AS nth,
        COUNT(*) OVER (PARTITION BY family, against) AS n
    FROM told
)
SELECT
    family, against, COUNT(*) AS stages, MIN(ratio) AS least, MAX(CASE WHEN nth = CEIL(n * 0.1) THEN ratio END) AS low,
    MAX(CASE WHEN nth = CEIL(n * 0.25) THEN ratio END) AS quarter, MAX(CASE WHEN nth = CEIL(n * 0.5) THEN ratio END) AS middle,
    MAX(CASE WHEN nth = CEIL(n * 0.75) THEN ratio END) AS three_quarters, MAX(CASE WHEN nth = CEIL(n * 0.9) THEN ratio END) AS high,
    MAX(ratio) AS most
FROM placed
GROUP BY family, against
ORDER BY against, family
