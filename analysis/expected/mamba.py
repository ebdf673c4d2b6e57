"""Tensors a Mamba-2 layer keeps from forward to backward, one micro-batch.

Source: Megatron-Core `ssm/mamba_mixer.py` and the kernel `mamba_split_conv1d_scan_combined` it uses for training: that keeps the in-projection's
output whole (z, x, B, C and dt in one tensor, the convolution is made again), the scan's output before its gated norm, and
nothing of the states; the out-projection keeps its input. There is no term that grows with the square of the sequence.
"""

from __future__ import annotations

from analysis.expected.activations import Saved
from analysis.expected.model import Model
from analysis.expected.options import Options


def mamba_layer(model: Model, options: Options) -> Saved:
    """One Mamba layer with its norm and residual; heads and groups are divided by TP."""
    width, tokens, local, mixer = options.weight_bytes, options.tokens, options.local_tokens, model.mamba
    heads, groups = mixer.heads // options.tp, max(mixer.groups // options.tp, 1)
    inner = heads * mixer.head_width
    projected = 2 * inner + 2 * groups * mixer.state + heads
    saved = {"attention_input": options.residual_bytes * model.hidden * local, "attention_norm": width * model.hidden * local,
             "attention_norm_statistics": 4 * model.norm * local, "mamba_projected": width * projected * tokens,
             "mamba_scanned": width * inner * tokens, "mamba_output": width * inner * tokens}
    if options.hidden_dropout:
        saved["attention_dropout_mask"] = model.hidden * local
    return saved
