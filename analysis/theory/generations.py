"""The generations of Megatron-LM's printed memory formula, each as a small difference from the one before.

Source: the history of `theoretical_memory_usage.py` on NVIDIA/Megatron-LM main up to 2026-08-22. A release belongs to a
generation by the branch it was cut from, not by its date (core 0.18 never got G15, core 0.16 never G12), so releases
are listed, not computed. G03x is a variant that never reached main: G03's numbers with G01's text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Generation:
    """One meaning of the printed number: where it is from, and the switches in which generations differ.

    `ffn` the MLP has its real width (else 4h); `experts` whether a MoE layer counts all its experts, in every layer or by the
    pattern of MoE layers (which brings MLA, shared experts and MTP too); `gated` SwiGLU has its third matrix; `kv_channels` the head width is
    an argument of its own; `norm_by_type` RMSNorm has one vector, LayerNorm two (else always two); `active_counts` counts of
    active parameters are printed; `expert_shards` experts are divided by EP and ETP, norms and routers by nothing; `latent` routed experts work on
    moe_latent_size; `split_counts` three lines of counts instead of one; `outside` what happens outside sequence parallelism
    with selective recomputation; `hybrid` what a hybrid model does, recognised by `hybrid_argument`.
    """

    name: str
    commit: str
    on_main: str | None
    releases: tuple[str, ...]
    ffn: bool = False
    experts: Literal["ignored", "every_layer", "pattern"] = "ignored"
    gated: bool = False
    kv_channels: bool = False
    norm_by_type: bool = False
    active_counts: bool = False
    expert_shards: bool = False
    latent: bool = False
    split_counts: bool = False
    outside: Literal["silent", "weights_only", "without_sp"] = "silent"
    hybrid: Literal["ignored", "raises", "prints"] = "ignored"
    hybrid_argument: Literal["is_hybrid_model", "hybrid_layer_pattern"] = "is_hybrid_model"

    @property
    def by_block(self) -> bool:
        """Whether layers are counted one kind at a time (G09 on) instead of in one closed form."""
        return self.experts == "pattern"


_G01 = Generation("G01", "0bbdc62354", "2023-11-28", ("core_v0.5.0", "InstructRetro"))
_G02 = replace(_G01, name="G02", commit="9530e19988", on_main="2024-03-01", releases=(), split_counts=True)
_G03X = replace(_G01, name="G03x", commit="9677b3bbc2", on_main=None, releases=(), ffn=True)
_G03 = replace(_G02, name="G03", commit="0c1e53dd3d", on_main="2024-03-02", ffn=True)
_G04 = replace(_G03, name="G04", commit="fbf600bb5e", on_main="2024-03-13", experts="every_layer")
_G05 = replace(_G04, name="G05", commit="e116d81ed7", on_main="2024-03-25", releases=("core_v0.6.0",), gated=True)
_G06 = replace(_G05, name="G06", commit="2bfe9beaae", on_main="2024-04-04", kv_channels=True, outside="weights_only", releases=(
    "core 0.7.x", "core 0.8.x", "core 0.9.x", "core 0.10.x", "core 0.11.x", "24.09-alpha", "24.09-beta", "NVLM-1.0"))
_G07 = replace(_G06, name="G07", commit="b957578e76", on_main="2025-03-17", releases=(), hybrid="raises")
_G08 = replace(_G07, name="G08", commit="196283318f", on_main="2025-03-20", releases=("25.04-alpha",), hybrid="prints")
_G09 = replace(_G08, name="G09", commit="d4f9a6f7b4", on_main="2025-04-03", releases=("core 0.12.x", "core 0.13.x", "core 0.14.x"), experts="pattern")
_G10 = replace(_G09, name="G10", commit="a6c6250f9c", on_main="2025-08-26", outside="without_sp", releases=(
    "core 0.15.x", "25.09-alpha", "core_dev_r0.15", "core_dev_r0.16"))
_G11 = replace(_G10, name="G11", commit="9ad5906556", on_main="2026-01-30", releases=("core 0.16.x",), norm_by_type=True)
_G12 = replace(_G11, name="G12", commit="7418b1b8fb", on_main="2026-02-26", releases=(), hybrid_argument="hybrid_layer_pattern")
_G13 = replace(_G12, name="G13", commit="b4e4d9618e", on_main="2026-03-21", releases=("core 0.17.x", "26.04-alpha"), active_counts=True)
_G14 = replace(_G13, name="G14", commit="a7c9e8c44a", on_main="2026-05-14", releases=("core 0.18.x", "dev since 2026-06-09"), expert_shards=True)
_G15 = replace(_G14, name="G15", commit="1bcb3b9e0b", on_main="2026-06-15", latent=True, releases=(
    "core 0.19.x", "main (0.20)", "dev since 2026-06-25"))

GENERATIONS: tuple[Generation, ...] = (
    _G01, _G02, _G03, _G03X, _G04, _G05, _G06, _G07, _G08, _G09, _G10, _G11, _G12, _G13, _G14, _G15,
)
BY_NAME: dict[str, Generation] = {generation.name: generation for generation in GENERATIONS}
NEWEST = _G15
