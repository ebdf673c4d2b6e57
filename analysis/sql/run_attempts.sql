-- One row an attempt: the facts of all its artifacts merged, sizes that only its arguments tell, and how many ranks its records name.
WITH attempt AS (
    SELECT run, run_index FROM runs
    UNION SELECT run, run_index FROM run_args
    UNION SELECT run, run_index FROM theory_reports
    UNION SELECT run, run_index FROM parameter_counts
    UNION SELECT run, run_index FROM rank_memory
    UNION SELECT run, run_index FROM memory_stats
    UNION SELECT run, run_index FROM iterations
    UNION SELECT run, run_index FROM expert_load
    UNION SELECT run, run_index FROM oom_events
    UNION SELECT run, run_index FROM memory_summary
    UNION SELECT run, run_index FROM device_memory
    UNION SELECT run, run_index FROM nccl_allocations
    UNION SELECT run, run_index FROM nccl_communicators
    UNION SELECT run, run_index FROM snapshots
), facts AS (
    SELECT
        run, run_index,
        MIN(artifact) AS artifact, MIN(month) AS month, MIN(cluster) AS cluster, MIN(line) AS line,
        COALESCE(MAX(CASE WHEN framework <> 'megatron-lm' THEN framework END), MAX(framework)) AS framework, MAX(framework_version) AS framework_version, MAX(world_size) AS world_size,
        MAX(tensor_model_parallel_size) AS tensor_model_parallel_size, MAX(pipeline_model_parallel_size) AS pipeline_model_parallel_size,
        MAX(virtual_pipeline_model_parallel_size) AS virtual_pipeline_model_parallel_size, MAX(context_parallel_size) AS context_parallel_size,
        MAX(expert_model_parallel_size) AS expert_model_parallel_size, MAX(expert_tensor_parallel_size) AS expert_tensor_parallel_size,
        MAX(data_parallel_size) AS data_parallel_size, MAX(num_microbatches) AS num_microbatches, MAX(vocab_size) AS vocab_size,
        MAX(padded_vocab_size) AS padded_vocab_size, MAX(params_dtype) AS params_dtype, MAX(gpu_name) AS gpu_name,
        MIN(capacity_bytes) AS capacity_bytes, MIN(started_at) AS started_at, MAX(ended_at) AS ended_at
    FROM runs
    GROUP BY run, run_index
), printed AS (
    SELECT
        run, run_index,
        MAX(CASE WHEN name = 'world_size' THEN TRY_CAST(value AS INTEGER) END) AS world_size,
        MAX(CASE WHEN name = 'tensor_model_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS tensor_model_parallel_size,
        MAX(CASE WHEN name = 'pipeline_model_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS pipeline_model_parallel_size,
        MAX(CASE WHEN name = 'virtual_pipeline_model_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS virtual_pipeline_model_parallel_size,
        MAX(CASE WHEN name = 'context_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS context_parallel_size,
        MAX(CASE WHEN name = 'expert_model_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS expert_model_parallel_size,
        MAX(CASE WHEN name = 'expert_tensor_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS expert_tensor_parallel_size,
        MAX(CASE WHEN name = 'data_parallel_size' THEN TRY_CAST(value AS INTEGER) END) AS data_parallel_size
    FROM run_args
    GROUP BY run, run_index
), named_rank AS (
    SELECT run, run_index, rank FROM rank_memory WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM memory_stats WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM oom_events WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM memory_summary WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM device_memory WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM expert_load WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM snapshots WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM nccl_allocations WHERE rank IS NOT NULL
    UNION SELECT run, run_index, rank FROM nccl_communicators WHERE rank IS NOT NULL
), rank_count AS (
    SELECT run, run_index, COUNT(DISTINCT rank) AS ranks_seen FROM named_rank GROUP BY run, run_index
), measured_count AS (
    SELECT run, run_index, COUNT(DISTINCT rank) AS ranks_measured
    FROM rank_memory
    WHERE rank IS NOT NULL AND COALESCE(valid, TRUE)
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
    COALESCE(facts.world_size, printed.world_size) AS world_size,
    COALESCE(facts.tensor_model_parallel_size, printed.tensor_model_parallel_size) AS tensor_model_parallel_size,
    COALESCE(facts.pipeline_model_parallel_size, printed.pipeline_model_parallel_size) AS pipeline_model_parallel_size,
    COALESCE(facts.virtual_pipeline_model_parallel_size, printed.virtual_pipeline_model_parallel_size) AS virtual_pipeline_model_parallel_size,
    COALESCE(facts.context_parallel_size, printed.context_parallel_size) AS context_parallel_size,
    COALESCE(facts.expert_model_parallel_size, printed.expert_model_parallel_size) AS expert_model_parallel_size,
    COALESCE(facts.expert_tensor_parallel_size, printed.expert_tensor_parallel_size) AS expert_tensor_parallel_size,
    COALESCE(facts.data_parallel_size, printed.data_parallel_size) AS data_parallel_size,
    facts.num_microbatches, facts.vocab_size, facts.padded_vocab_size, facts.params_dtype, facts.gpu_name, facts.capacity_bytes,
    LEAST(facts.started_at, steps.first_time) AS started_at, GREATEST(facts.ended_at, steps.last_time) AS ended_at, facts.line, COALESCE(rank_count.ranks_seen, 0) AS ranks_seen,
    COALESCE(measured_count.ranks_measured, 0) AS ranks_measured, steps.first_iteration, steps.last_iteration, steps.train_iterations
FROM attempt
LEFT JOIN facts ON facts.run = attempt.run AND facts.run_index = attempt.run_index
LEFT JOIN printed ON printed.run = attempt.run AND printed.run_index = attempt.run_index
LEFT JOIN rank_count ON rank_count.run = attempt.run AND rank_count.run_index = attempt.run_index
LEFT JOIN measured_count ON measured_count.run = attempt.run AND measured_count.run_index = attempt.run_index
LEFT JOIN steps ON steps.run = attempt.run AND steps.run_index = attempt.run_index
