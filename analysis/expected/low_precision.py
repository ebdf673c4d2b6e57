"""Bytes that fp8 and fp4 recipes add to or take from the weights, and to the tensors a layer saves.

Source: Transformer Engine `tensor/float8_tensor.py`, `mxfp8_tensor.py`, `module/base.py` (cached weight workspaces),
Megatron-Core `fp8_utils.py`. Only GEMM weights of quantised layers count: not embedding, head, norms, router. Hopper's fp8 GEMM needs
a transposed copy; Blackwell's per-tensor recipes do not, its block-scaled ones (mxfp8, nvfp4, blockwise) keep row and column copies.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.activations import Saved
from analysis.expected.environment import Environment
from analysis.expected.fsdp import divided
from analysis.expected.options import Options
from analysis.expected.weights import Buffer

_PER_TENSOR = ("delayed", "tensorwise")
_QUANTISED_INPUTS = ("attention_norm", "mlp_norm", "mlp_act", "experts_input", "experts_act", "shared_act")
_SCALES = 16


def quantised_weight_bytes(chunk: Iterable[Buffer], options: Options, env: Environment) -> int:
    """Bytes of quantised weights: copies beside the weights, or the parameters themselves (`replaced_bytes` are then not among the weights)."""
    if options.fp8 is None:
        return 0
    copies = quantised_copies(options, env)
    return sum((copies * size + scale_bytes(size, options)) // quantised_shards(options, buffer)
               for buffer in chunk for size in (gemm_elements([buffer]),))


def replaced_bytes(chunk: Iterable[Buffer], options: Options) -> int:
    """Bytes of weights that are not there because their parameters are quantised ones."""
    if options.fp8 is None or not options.fp8_parameters:
        return 0
    return sum(options.weight_bytes * gemm_elements([buffer]) // quantised_shards(options, buffer) for buffer in chunk)


def quantised_copies(options: Options, env: Environment) -> int:
    """Copies of a GEMM weight in one byte an element. FSDP drops the transposed one of a quantised parameter after its layer; mxfp8's columns are a
    buffer of their own."""
    per_tensor = options.fp8_recipe in _PER_TENSOR
    sharded = options.fp8_parameters and options.fsdp == "optim_grads_params"
    return 1 if (per_tensor and env.capability >= 100) or (sharded and options.fp8_recipe != "mxfp8") else 2


def quantised_shards(options: Options, buffer: Buffer) -> int:
    """Over how many ranks FSDP cuts quantised parameters; quantised copies that the GEMMs keep for themselves are whole."""
    return divided("weights", options, buffer.shards) if options.fp8_parameters else 1


def gemm_elements(chunk: Iterable[Buffer]) -> int:
    """Elements of the weights that a recipe quantises."""
    return sum(tensor.total for buffer in chunk for tensor in buffer.tensors if tensor.gemm)


def scale_bytes(elements: int, options: Options) -> int:
    """mxfp8's scales: a byte for 32 elements of each of the two copies."""
    return elements // _SCALES if options.fp8_recipe == "mxfp8" else 0


def quantised_saved(saved: Saved, options: Options) -> Saved:
    """A layer's saved tensors under a low-precision recipe: GEMM inputs in 1 byte, the output projection's own copy beside O."""
    if options.fp8 is None:
        return saved
    smaller = {name: size // options.weight_bytes if name in _QUANTISED_INPUTS else size for name, size in saved.items()}
    if "attention_output" in saved and "q_latent" not in saved:
        smaller["attention_output_quantised"] = saved["attention_output"] // options.weight_bytes
    return smaller
