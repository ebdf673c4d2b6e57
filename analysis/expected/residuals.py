"""How far measured runs lay from their expectation: bounds of measured / expected - 1, a kind of run.

Written by `benchmarks/accuracy.py --write` from 439 runs; kinds are those of `calibration.kinds`. Kinds with fewer than 30 runs
have their extremes instead.
"""

STEADY = {
    "dense": (0.00001, 0.00551),
    "dense_pipeline": (-0.00397, 0.02491),
    "experts": (-0.00028, 0.01155),
    "latent": (-0.01597, 0.01385),
    "low_precision": (0.00205, 0.33871),
    "sharded": (0.00034, 0.13276),
}
PEAK = {
    "experts": (-0.02385, 0.31227),
    "kernel_asked": (-0.00087, 0.01280),
    "kernel_chosen": (-0.00406, 0.08919),
    "latent": (-0.48633, 0.09361),
    "low_precision": (-0.09597, 0.03762),
    "sharded": (0.00258, 0.01777),
}
