-- One row an attempt that has facts or arguments: the facts of all its artifacts merged, and sizes that only its arguments tell.
WITH attempt AS (
    SELECT run, run_index FROM runs
    UNION SELECT run, run_index FROM run_args
), facts AS (
    SELECT
        run, run_index,
        MIN(artifact) AS artifact, MIN(month) AS month, MIN(cluster) AS cluster, MIN(line) AS line,
        COALESCE(MAX(CASE WHEN framework <> 'megatron-lm' THEN framework END), MAX(framework)) AS framework,
        MAX(framework_version) AS framework_version, MAX(world_size) AS world_size,
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
    facts.started_at, facts.ended_at, facts.line
FROM attempt
LEFT JOIN facts ON facts.run = attempt.run AND facts.run_index = attempt.run_index
LEFT JOIN printed ON printed.run = attempt.run AND printed.run_index = attempt.run_index
