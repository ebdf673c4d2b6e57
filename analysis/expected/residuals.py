"""How far measured runs lay from their expectation: 5 % and 95 % quantiles of measured / expected - 1, a kind of run.

Written by `benchmarks/accuracy.py --write` from 439 runs; kinds are those of `calibration.kinds`. Kinds with fewer than 30 runs
have their extremes instead.
"""

STEADY = {"dense": (0.00001, 0.00551), "dense_pipeline": (0.00000, 0.02636), "experts": (-0.00022, 0.01248), "rare": (-0.01311, 1.19825)}
PEAK = {"experts": (-0.02385, 0.31227), "kernel_asked": (0.00003, 0.02305), "kernel_chosen": (-0.00142, 0.06018), "rare": (-0.48633, 0.09361)}
