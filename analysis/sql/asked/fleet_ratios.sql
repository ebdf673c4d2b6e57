-- How measured peaks lie over what was printed and over what is expected, in steps of 5 %, by family: how many stages of chosen
-- attempts. Records of a rank that is not told are left out where the others are placed.
WITH ratio AS (
    SELECT one.family, one.over_printed_ratio, one.over_expected_ratio
    FROM fleet_ratio AS one
    JOIN chosen ON chosen.cluster = one.cluster AND chosen.run = one.run AND chosen.run_index = one.run_index
    WHERE one.stage IS NOT NULL OR one.stages IS NULL
), told AS (
    SELECT family, 'over printed' AS against, over_printed_ratio AS ratio FROM ratio WHERE over_printed_ratio IS NOT NULL
    UNION ALL
    SELECT family, 'over expected', over_expected_ratio FROM ratio WHERE over_expected_ratio IS NOT NULL
)
SELECT COALESCE(family, 'not told') AS family, against, LEAST(ROUND(ratio * 20) / 20, 3) AS ratio, COUNT(*) AS stages
FROM told
GROUP BY COALESCE(family, 'not told'), against, LEAST(ROUND(ratio * 20) / 20, 3)
ORDER BY against, family, ratio
