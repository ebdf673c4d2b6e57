"""Bytes that fp8 and fp4 recipes add to or take from the weights, and to the tensors a layer saves.

Source: Transformer Engine `tensor/float8_tensor.py`, `mxfp8_tensor.py`, `module/base.py` (cached weight workspaces),
Megatron-Core `fp8_utils.py`. Only GEMM weights of quantised layers count: not embedding, head, norms, router. Hopper's fp8 GEMM needs
a transposed copy; Blackwell's per-tensor recipes do not, its block-scaled ones (mxfp8, nvfp4, blockwise) keep row and column copies.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.activations import Saved
from analysis.expected.environment import Environment
from analysis.expected.options import Options
from analysis.expected.parameters import Tensor

_PER_TENSOR = ("delayed", "tensorwise")
_QUANTISED_INPUTS = ("attention_norm", "mlp_norm", "mlp_act", "experts_input", "experts_act", "shared_act")
_SCALES = 16


def quantised_weight_bytes(tensors: Iterable[Tensor], options: Options, env: Environment) -> int:
    """Bytes beyond the 2 a parameter of the weights' own class; negative where low-precision parameters replace them."""
    if options.fp8 is None:
        return 0
    elements = sum(tensor.total for tensor in tensors if tensor.gemm)
    copies = 1 if options.fp8_recipe in _PER_TENSOR and env.capability >= 100 else 2
    scales = 2 * elements // (2 * _SCALES) if options.fp8_recipe == "mxfp8" else 0
    replaced = options.weight_bytes if options.fp8_parameters else 0
    return (copies - replaced) * elements + scales


def quantised_saved(saved: Saved, options: Options) -> Saved:
    """A layer's saved tensors under a low-precision recipe: GEMM inputs in 1 byte, the output projection's own copy beside O."""
    if options.fp8 is None:
        return saved
    smaller = {name: size // options.weight_bytes if name in _QUANTISED_INPUTS else size for name, size in saved.items()}
    if "attention_output" in saved and "q_latent" not in saved:
        smaller["attention_output_quantised"] = saved["attention_output"] // options.weight_bytes
    return smaller
