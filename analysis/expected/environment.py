"""What the software and the hardware around a run add: GPU, allocator settings, cuBLAS and Transformer Engine workspaces.

A run says little about them: a GPU name, a few variables and at best the name of its container. Everything read here is
a property of those, never of a test or a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 2**20
KIB = 2**10

_GPUS = (("gb200", 100), ("gb300", 103), ("b200", 100), ("b300", 103), ("gh200", 90), ("h100", 90), ("h200", 90), ("h800", 90), ("h20", 90),
         ("a100", 80), ("a800", 80), ("v100", 70), ("l40", 89), ("mi300", 0), ("mi250", 0))
_DEFAULT_CAPABILITY = 80


@dataclass(frozen=True, slots=True)
class Environment:
    """`gpu` as a family name or None, `capability` the compute capability x 10 (0 for other makers), `container` the environment's name."""

    gpu: str | None
    capability: int
    container: str
    variables: Mapping[str, str]

    @property
    def expandable(self) -> bool:
        """Whether expandable segments are in force."""
        settings = self.variables.get("PYTORCH_CUDA_ALLOC_CONF", "") + "," + self.variables.get("PYTORCH_ALLOC_CONF", "")
        return "expandable_segments:true" in settings.lower()

    @property
    def deterministic(self) -> bool:
        """Whether Transformer Engine may only use deterministic kernels."""
        return self.variables.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0"

    @property
    def routers_use_te(self) -> bool:
        """Whether MoE routers run through Transformer Engine's GEMM, whatever the layers are made of (not in the oldest releases)."""
        return not ("dracooci" in self.container and self.old_container)

    @property
    def old_container(self) -> bool:
        """A long-term-support container, whose libraries are older."""
        return self.container.startswith("lts")


def environment(variables: Mapping[str, Any] | None, gpu: str | None, container: str | None) -> Environment:
    """The environment from the variables given, a GPU's name and a container's or cluster's name, each optional."""
    name = container or ""
    family = _family(gpu) or _family(name)
    capability = dict(_GPUS).get(family or "", _DEFAULT_CAPABILITY)
    return Environment(family, capability, name, {key: str(value) for key, value in (variables or {}).items()})


def _family(name: str | None) -> str | None:
    text = re.sub(r"[^a-z0-9]", "", (name or "").lower())
    return next((family for family, _ in _GPUS if family in text), None)


def cublas_workspace(env: Environment) -> int:
    """Bytes of one cuBLAS workspace: as CUBLAS_WORKSPACE_CONFIG says, else PyTorch's default of the GPU.

    Source: ATen/cuda/CublasHandlePool.cpp: `:4096:2:16:8` (8.125 MiB), 32 MiB on compute capability 9.0. On 10.0 both were
    measured, by release: 32 MiB in every run with deterministic kernels, 8.125 in most others.
    """
    config = env.variables.get("CUBLAS_WORKSPACE_CONFIG", "")
    pairs = re.findall(r":(\d+):(\d+)", config)
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * KIB
    large = env.capability // 10 == 9 or (env.capability >= 100 and env.deterministic)
    return 32 * MIB if large else (4096 * 2 + 16 * 8) * KIB


def te_workspace(env: Environment) -> int:
    """Bytes of Transformer Engine's GEMM workspace: 32 MiB from compute capability 9.0 on, 4 MiB before (module/base.py)."""
    return 32 * MIB if env.capability >= 90 else 4 * MIB


def attention_kernel(asked: str | None, env: Environment, *, transformer_engine: bool) -> str:
    """`unfused`, `fused` (cuDNN) or `flash`: as asked, else what Transformer Engine chooses here.

    Left alone it takes cuDNN's kernel on compute capability 9.0 and flash attention below; above, cuDNN has no deterministic
    backward and flash attention takes over. Its oldest releases here have no deterministic kernel with dropout and use none.
    """
    if not transformer_engine:
        return "flash" if asked == "flash" else "unfused"
    if asked in ("unfused", "local"):
        return "unfused"
    if asked in ("flash", "fused"):
        return asked
    if env.deterministic and "dracooci" in env.container:
        return "unfused"
    return "fused" if env.capability // 10 == 9 or (env.capability >= 100 and not env.deterministic) else "flash"
