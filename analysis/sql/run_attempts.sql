-- One row an attempt: its facts (`attempt_facts`), its iterations, and how many ranks its records name.
WITH named AS (
    SELECT run, run_index, CAST(NULL AS INTEGER) AS rank FROM runs
    UNION SELECT run, run_index, CAST(NULL AS INTEGER) AS rank FROM run_args
    UNION SELECT run, run_index, CAST(NULL AS INTEGER) AS rank FROM theory_reports
    UNION SELECT run, run_index, CAST(NULL AS INTEGER) AS rank FROM parameter_counts
    UNION SELECT run, run_index, rank AS rank FROM rank_memory
    UNION SELECT run, run_index, rank AS rank FROM memory_stats
    UNION SELECT run, run_index, CAST(NULL AS INTEGER) AS rank FROM iterations
    UNION SELECT run, run_index, rank AS rank FROM expert_load
    UNION SELECT run, run_index, rank AS rank FROM oom_events
    UNION SELECT run, run_index, rank AS rank FROM memory_summary
    UNION SELECT run, run_index, rank AS rank FROM device_memory
    UNION SELECT run, run_index, rank AS rank FROM nccl_allocations
    UNION SELECT run, run_index, rank AS rank FROM nccl_communicators
    UNION SELECT run, run_index, rank AS rank FROM snapshots
    UNION SELECT run, run_index, rank AS rank FROM rank_day
), attempt AS (
    SELECT run, run_index, COUNT(rank) AS ranks_seen FROM named GROUP BY run, run_index
), measured_count AS (
    SELECT run, run_index, COUNT(rank) AS ranks_measured
    FROM (
        SELECT run, run_index, rank FROM rank_memory WHERE COALESCE(valid, TRUE)
        UNION SELECT run, run_index, rank FROM rank_day WHERE records > 0
    ) AS measured
    GROUP BY run, run_index
), steps AS (
    SELECT
        run, run_index, MIN(iteration) AS first_iteration, MAX(iteration) AS last_iteration, MAX(train_iterations) AS train_iterations,
        MIN(iterations.timestamp) AS first_time, MAX(iterations.timestamp) AS last_time
    FROM iterations
    GROUP BY run, run_index
)
SELECT
    attempt.run, attempt.run_index, facts.artifact, facts.month, facts.cluster, facts.framework, facts.framework_version,
    facts.world_size, facts.tensor_model_parallel_size, facts.pipeline_model_parallel_size, facts.virtual_pipeline_model_parallel_size,
    facts.context_parallel_size, facts.expert_model_parallel_size, facts.expert_tensor_parallel_size, facts.data_parallel_size,
    facts.num_microbatches, facts.vocab_size, facts.padded_vocab_size, facts.params_dtype, facts.gpu_name, facts.capacity_bytes,
    LEAST(facts.started_at, steps.first_time) AS started_at, GREATEST(facts.ended_at, steps.last_time) AS ended_at, facts.line,
    attempt.ranks_seen, COALESCE(measured_count.ranks_measured, 0) AS ranks_measured,
    steps.first_iteration, steps.last_iteration, steps.train_iterations
FROM attempt
LEFT JOIN attempt_facts AS facts ON facts.run = attempt.run AND facts.run_index = attempt.run_index
LEFT JOIN measured_count ON measured_count.run = attempt.run AND measured_count.run_index = attempt.run_index
LEFT JOIN steps ON steps.run = attempt.run AND steps.run_index = attempt.run_index
