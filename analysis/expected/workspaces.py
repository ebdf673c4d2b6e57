"""Buffers that live as long as the process: GEMM workspaces and Megatron's global memory buffer.

Source: ATen/cuda/CublasHandlePool.cpp (one workspace a thread, handle and stream: the forward thread and autograd's
own thread have one each), Transformer Engine `module/base.py` and `cpp_extensions/gemm.py` (one workspace, and one a
stream of grouped GEMMs), Megatron-Core `utils.py:GlobalMemoryBuffer` (one buffer a name, grown to the largest request).
"""

from __future__ import annotations

from analysis.expected.environment import Environment, cublas_workspace, te_workspace
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.theory.layout import ParallelSizes

_THREADS = 2
_GROUPED_STREAMS = 4


def workspace_bytes(model: Model, options: Options, env: Environment) -> int:
    """cuBLAS's and Transformer Engine's workspaces."""
    cublas = _THREADS * cublas_workspace(env)
    if not options.transformer_engine and not (model.experts and env.routers_use_te):
        return cublas
    grouped = _GROUPED_STREAMS if options.transformer_engine and model.experts and model.grouped_gemm and not env.old_container else 0
    return cublas + (1 + grouped) * te_workspace(env)


def global_buffer_bytes(model: Model, options: Options, sizes: ParallelSizes) -> int:
    """The buffer named `mpu`: sequence-parallel gathers, the allgather dispatcher's tokens, local attention scores share it."""
    width = options.weight_bytes
    wanted = [0]
    if options.sequence_parallel:
        wanted.append(width * model.hidden * options.tokens)
    if any(model.moe_pattern) and options.dispatcher == "allgather" and sizes.ep * sizes.etp > 1:
        wanted.append(width * model.hidden * options.local_tokens * sizes.ep * sizes.etp)
    if not options.transformer_engine and not options.legacy and options.attention != "flash":
        wanted.append(width * model.heads // options.tp * options.sequence * options.tokens)
    return max(wanted)
