"""What an origin is written in: lines that add up, and the objects of one stage that they are read from.

Source: the ledger's own objects (cells, tensors, buffers, chunks, moments), made by the same calls as in `stage.py`. No size is worked out a second
time: a line asks the function that the class asked, so that an explanation cannot stay behind when a formula is mended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.expected.chunk import chunk_bytes
from analysis.expected.expect import read_run
from analysis.expected.instants import ChunkBytes, Moments, fullest
from analysis.expected.parameters import Tensor, cell_tensors
from analysis.expected.run import Run
from analysis.expected.weights import Buffer, buffers
from analysis.theory.stages import Cell

if TYPE_CHECKING:
    from analysis.reconcile import Expected

TIMES = " · "
ROUNDING = "rounding to the allocator's blocks"
CUT = "each tensor is cut for itself"


@dataclass(frozen=True, slots=True)
class Line:
    """One addend of a class: what it is, its formula in symbols and in numbers, and its bytes."""

    what: str
    symbols: str
    numbers: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Parts:
    """One stage as the ledger sees it: cells, tensors and buffers of its chunks, what a micro-batch keeps of each, fullest moments and peak."""

    run: Run
    cells: tuple[Cell, ...]
    tensors: tuple[tuple[Tensor, ...], ...]
    chunks: tuple[list[Buffer], ...]
    alive: tuple[ChunkBytes, ...]
    moments: Moments
    stage: int
    instant: str

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All chunks' buffers."""
        return tuple(buffer for chunk in self.chunks for buffer in chunk)


def parts_of(expected: Expected, stage: int) -> Parts:
    """The objects of one stage, from the question that the expectation answers."""
    run = read_run(expected.args, expected.microbatches or 1, expected.environment, expected.gpu, None)
    cells = run.layout.of_stage(stage)
    tensors = [cell_tensors(run.model, run.sizes, cell) for cell in cells]
    alive = [chunk_bytes(run, cell, each) for cell, each in zip(cells, tensors, strict=True)]
    return Parts(run, cells, tuple(tuple(each) for each in tensors), tuple(buffers(each, run.sizes, run.options) for each in tensors), tuple(alive),
                 fullest(run.plan, stage, alive, later_backwards=run.options.legacy_gradients), stage, expected.stages[stage].peak_instant)


def product(*factors: int) -> str:
    """Factors as they are multiplied."""
    return TIMES.join(f"{factor:,}" for factor in factors)


def rest(what: str, total: int, lines: list[Line], symbols: str = "", numbers: str = "") -> list[Line]:
    """The lines with one more for what the model's own function gives beyond them, where it does."""
    left = total - sum(line.bytes for line in lines)
    return [*lines, Line(what, symbols, numbers, left)] if left else lines
