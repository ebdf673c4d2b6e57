-- One row an argument of an attempt of a cluster as one artifact tells it, without those that shape no memory: where a run reads and writes, what it
-- logs, how it learns. They differ between runs of one configuration; a test holds that neither the ledger nor the formula reads one.
SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, name, value, origin, artifact, line
FROM run_args
WHERE name NOT LIKE '%_path' AND name NOT LIKE '%_paths' AND name NOT LIKE '%_dir' AND name NOT LIKE '%_file' AND name NOT LIKE '%_interval'
    AND name NOT LIKE '%_iters' AND name NOT LIKE '%_samples' AND name NOT LIKE '%_port' AND name NOT LIKE '%_addr' AND name NOT LIKE '%_prefix'
    AND name NOT LIKE 'wandb_%' AND name NOT LIKE 'tensorboard_%' AND name NOT LIKE 'log_%' AND name NOT LIKE 'lr_%' AND name NOT LIKE 'eval_%'
    AND name NOT LIKE 'exit_%' AND name NOT LIKE 'rerun_%' AND name NOT LIKE 'straggler_%' AND name NOT LIKE '%weight_decay%'
    AND name NOT IN ('save', 'load', 'seed', 'rank', 'local_rank', 'lr', 'min_lr', 'adam_beta1', 'adam_beta2', 'adam_eps', 'clip_grad', 'split',
        'consumed_train_samples', 'consumed_valid_samples', 'init_method_std')
