"""Ranks that run out of memory although torch caches enough: in pieces (B1), pending on another stream (B2), in private pools (B3).

A rank of a dense model's first stage is run forward on a device with a limit, by the caching allocator of `snapshots`, until a request fails.
What is cached at that instant, and of which kind, is counted from the allocator's own segments: the truth, which no message tells apart.
The failing step is the same forward pass each time; what came before differs: packed sequences of changing lengths, gathered weights that
a slow communication stream still holds, CUDA graphs captured for several shapes.
"""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from sample_data.ledger import WORKSPACE_BYTES, Model, parameters
from sample_data.snapshots.allocator import ALLOCATED, INACTIVE, PENDING, Allocator, Block, OutOfMemory
from sample_data.snapshots.pickling import Pickler
from sample_data.snapshots.stacks import Stacks
from sample_data.snapshots.stage import ACTIVATIONS, COMMUNICATION, GRADIENTS, OPTIMIZER, PIPELINE_STREAM, WEIGHTS, WORKSPACE, sizes

DEVICES = 8
RING = 1200
"""Events that the ring buffer holds."""
MICRO_BATCHES = 3
IN_FLIGHT = 2
_BUCKET_PARTS = 16


class Reading(NamedTuple):
    """Bytes after a step, and the most so far."""

    allocated: int
    peak: int
    reserved: int


class State(NamedTuple):
    """The device when the request failed, in bytes. `allocated` is in blocks in use; the other kinds are what torch caches."""

    requested: int
    free: int
    reserved: int
    allocated: int
    split: int
    pending: int
    private: int
    largest_split: int


@dataclass(frozen=True, slots=True)
class Death:
    """A run of one rank: its reading after each step, the device at the end, and the snapshot."""

    readings: tuple[Reading, ...]
    state: State
    snapshot: bytes


class Worker:
    """One rank of the first stage: `setup`, then `step` until the device is full."""

    def __init__(self, model: Model, limit: int, seed: int) -> None:
        self.model, self.allocator, self.stacks = model, Allocator(seed, limit), Stacks()
        self.lagging, self.gather_stream = False, 0
        self._pending: list[Block] = []
        self._peak = 0

    def new(self, tensor: str, size: int, kind: int, stream: int = 0, pool: int = 0) -> Block:
        """A tensor."""
        block = self.allocator.malloc(size, self.stacks.of(tensor, _DETAILS.get(tensor, "")), kind, stream, pool)
        self._peak = max(self._peak, self.allocator.allocated)
        return block

    def setup(self) -> None:
        """State: bf16 weights, fp32 gradients, main parameters and two moments in parts."""
        self.allocator.recording = True
        count = parameters(self.model, 0)
        self.new("parameter buffer", 2 * count, WEIGHTS)
        self.new("gradient buffer", 4 * count, GRADIENTS)
        for _ in range(_BUCKET_PARTS):
            self.new("main parameter", 4 * count // _BUCKET_PARTS, OPTIMIZER)
        self.new("cublas workspace", WORKSPACE_BYTES, WORKSPACE)

    def optimizer(self) -> None:
        """Moments are made in the first step."""
        for _ in range(2 * _BUCKET_PARTS):
            self.new("moment", 4 * parameters(self.model, 0) // _BUCKET_PARTS, OPTIMIZER)

    def step(self, lengths: Iterable[int]) -> None:
        """One training step; a micro-batch a length, in tokens."""
        flying: list[list[list[Block]]] = []
        for tokens in lengths:
            flying.append(self._forward(tokens))
            if len(flying) == IN_FLIGHT:
                self._backward(flying.pop(0))
        while flying:
            self._backward(flying.pop(0))
        self._caught_up()

    def reading(self) -> Reading:
        """After a step."""
        return Reading(self.allocator.allocated, self._peak, self.allocator.reserved)

    def _forward(self, tokens: int) -> list[list[Block]]:
        return [self._layer(tokens) for _ in range(self.model.layers // self.model.pipeline)]

    def _layer(self, tokens: int) -> list[Block]:
        size, new = sizes(replace(self.model, sequence=tokens, micro_batch=1)), self.new
        gathered = new("qkv gather", size.whole, COMMUNICATION, self.gather_stream)
        saved = [new("qkv", size.qkv, ACTIVATIONS)]
        self._release(gathered)
        saved += [new("core attention", size.query, ACTIVATIONS), new("residual 1", size.part, ACTIVATIONS)]
        gathered = new("fc1 gather", size.whole, COMMUNICATION, self.gather_stream)
        saved.append(new("fc1", size.fc1, ACTIVATIONS))
        self._release(gathered)
        return [*saved, new("swiglu", size.act, ACTIVATIONS), new("residual 2", size.part, ACTIVATIONS)]

    def _release(self, block: Block) -> None:
        """At once, or when the communication stream, which lags, is done with it."""
        if not self.lagging:
            self.allocator.free(block)
            return
        self.allocator.request_free(block)
        self._pending.append(block)

    def _caught_up(self) -> None:
        while self._pending:
            self.allocator.complete_free(self._pending.pop())

    def _backward(self, layers: list[list[Block]]) -> None:
        while layers:
            saved = layers.pop()
            gradient = self.new("input gradient", saved[-1].requested, ACTIVATIONS)
            for block in saved:
                self.allocator.free(block)
            self.allocator.free(gradient)

    def capture(self, pool: int, tokens: int) -> None:
        """A CUDA graph of a few layers in a private pool: its temporaries are free again, and of use to no other pool."""
        size = sizes(replace(self.model, sequence=tokens, micro_batch=1))
        kept = self.new("residual 2", size.part, ACTIVATIONS, pool=pool)
        made = [self.new(name, bytes_, ACTIVATIONS, pool=pool) for name, bytes_ in (("fc1", size.fc1), ("swiglu", size.act), ("qkv", size.qkv))]
        for block in made:
            self.allocator.free(block)
        assert kept.state == ALLOCATED


_DETAILS = {"moment": "475"}
"""What the gap of a stack says."""


def pieces(model: Model, limit: int) -> Death:
    """B1: packed sequences of another length in each micro-batch."""
    chance = random.Random(31)
    worker = Worker(model, limit, 31)
    return _until_death(worker, lambda: chance.randrange(model.tokens * 5 // 8, model.tokens + 1, 128), lambda step: None)


def streams(model: Model, limit: int, last: int) -> Death:
    """B2: in step `last` the communication stream falls behind."""
    worker = Worker(model, limit, 32)
    worker.gather_stream = PIPELINE_STREAM

    def before(step: int) -> None:
        worker.lagging = step == last

    return _until_death(worker, lambda: model.tokens, before)


def graphs(model: Model, limit: int, last: int, shapes: int) -> Death:
    """B3: before step `last` graphs are captured, each in a pool of its own."""
    worker = Worker(model, limit, 33)

    def before(step: int) -> None:
        for shape in range(shapes if step == last else 0):
            worker.capture(shape + 1, model.tokens * (shape + 4) // (shapes + 4))

    return _until_death(worker, lambda: model.tokens, before)


def _until_death(worker: Worker, tokens: Callable[[], int], before: Callable[[int], None]) -> Death:
    worker.setup()
    readings: list[Reading] = []
    try:
        while len(readings) < 100:
            step = len(readings) + 1
            before(step)
            worker.step(tokens() for _ in range(MICRO_BATCHES))
            if step == 1:
                worker.optimizer()
            readings.append(worker.reading())
    except OutOfMemory as error:
        return Death(tuple(readings), _state(worker.allocator, error), _snapshot(worker))
    raise AssertionError("it fits")


def _state(allocator: Allocator, error: OutOfMemory) -> State:
    blocks = [block for segment in allocator.segments for block in segment.blocks()]
    split = [block.size for block in blocks if block.state == INACTIVE and not block.segment.pool]
    return State(
        requested=error.size, free=error.free, reserved=allocator.reserved, allocated=allocator.allocated, split=sum(split),
        pending=sum(block.size for block in blocks if block.state == PENDING),
        private=sum(block.size for block in blocks if block.state == INACTIVE and block.segment.pool), largest_split=max(split, default=0))


def _snapshot(worker: Worker) -> bytes:
    raw = io.BytesIO()
    first = max(0, len(worker.allocator.trace) - RING)
    Pickler(raw, worker.stacks.all).snapshot(worker.allocator, first, 0, DEVICES, ())
    return gzip.compress(raw.getvalue(), 9, mtime=0)
