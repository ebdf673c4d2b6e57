"""Small tensors that modules keep for good: rotary caches, and the stand-in weight gradients of fused accumulation.

Source: Megatron-Core `models/common/embeddings/yarn_rotary_pos_embedding.py` (each latent-attention layer has its own cosines, sines and angles,
fp32), Transformer Engine `module/base.py:get_dummy_wgrad` (one tensor a weight shape, so that autograd has something to return
when the GEMM has already added to the gradient buffer).
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.expected.parameters import Tensor

_ANGLES_COSINES_SINES = 3


def rotary_bytes(model: Model, layers: int) -> int:
    """Caches of `layers` latent-attention layers."""
    return layers * _ANGLES_COSINES_SINES * 4 * model.yarn_positions * model.rope_width


def stand_in_bytes(tensors: Iterable[Tensor], options: Options) -> int:
    """One weight gradient's worth of each shape of Transformer Engine weights, where accumulation is fused."""
    if not options.gradient_fusion or not options.transformer_engine:
        return 0
    shapes = {(tensor.name, tensor.elements) for tensor in tensors if tensor.kind in ("matrix", "grouped")}
    return options.weight_bytes * sum(size for _, size in shapes)
