-- One row an attempt of a cluster: the facts of its artifacts merged. Runs of one name in two clusters are two. An attempt of which only measurements
-- or out-of-memory errors are known has a row too; its facts are null.
WITH attempt AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index FROM runs
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0) FROM run_args
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0) FROM theory_reports
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0) FROM rank_day
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0) FROM oom_events
    UNION SELECT COALESCE(cluster, 'default'), run, COALESCE(run_index, 0) FROM job_events
), facts AS (
    SELECT
        COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index,
        COALESCE(MAX(CASE WHEN framework <> 'megatron-lm' THEN framework END), MAX(framework)) AS framework,
        MAX(framework_version) AS framework_version, MAX(world_size) AS world_size,
        MAX(tensor_model_parallel_size) AS tensor_model_parallel_size, MAX(pipeline_model_parallel_size) AS pipeline_model_parallel_size,
        MAX(virtual_pipeline_model_parallel_size) AS virtual_pipeline_model_parallel_size, MAX(context_parallel_size) AS context_parallel_size,
        MAX(expert_model_parallel_size) AS expert_model_parallel_size, MAX(expert_tensor_parallel_size) AS expert_tensor_parallel_size,
        MAX(data_parallel_size) AS data_parallel_size, MAX(num_microbatches) AS num_microbatches, MAX(vocab_size) AS vocab_size,
        MAX(padded_vocab_size) AS padded_vocab_size, MAX(gpu_name) AS gpu_name, MIN(capacity_bytes) AS capacity_bytes,
        MIN(started_at) AS started_at, MAX(ended_at) AS ended_at
    FROM runs
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0)
)
SELECT
    attempt.cluster, attempt.run, attempt.run_index, facts.framework, facts.framework_version, facts.world_size, facts.tensor_model_parallel_size,
    facts.pipeline_model_parallel_size, facts.virtual_pipeline_model_parallel_size, facts.context_parallel_size, facts.expert_model_parallel_size,
    facts.expert_tensor_parallel_size, facts.data_parallel_size, facts.num_microbatches, facts.vocab_size, facts.padded_vocab_size, facts.gpu_name,
    facts.capacity_bytes, facts.started_at, facts.ended_at
FROM attempt
LEFT JOIN facts ON facts.cluster = attempt.cluster AND facts.run = attempt.run AND facts.run_index = attempt.run_index
