"""One run as the classes read it: everything that is the same on every stage, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.expected.environment import Environment, attention_kernel
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.theory.inflight import Schedule
from analysis.theory.layout import ParallelSizes
from analysis.theory.stages import StageLayout


@dataclass(frozen=True, slots=True)
class Run:
    """Model, options, sizes, layers of each stage, schedule and environment.

    `first_step` where a peak covers a run's first step only; `communication` is asked for the bytes that communication holds inside torch's
    allocator on a stage (registered pools). NCCL's own buffers lie outside torch and are no part of what is allocated.
    """

    model: Model
    options: Options
    sizes: ParallelSizes
    layout: StageLayout
    plan: Schedule
    env: Environment
    first_step: bool = False
    communication: Callable[[Run, int], int] | None = None

    @property
    def kernel(self) -> str:
        """The attention kernel that runs."""
        return attention_kernel(self.options.attention, self.env, transformer_engine=self.options.transformer_engine)
