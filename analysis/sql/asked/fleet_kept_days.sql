-- Ranks of each attempt by class and day.
SELECT cluster, run, run_index, day, month, near_class, COUNT(*) AS ranks FROM fleet_near_limit GROUP BY cluster, run, run_index, day, month, near_class
