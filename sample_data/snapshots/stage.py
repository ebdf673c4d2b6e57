"""What one rank of a dense pipeline allocates: set-up, 1F1B iterations, optimizer, checkpoint; each tensor with its stack and its class.

Megatron-Core with Transformer Engine, bf16, sequence parallelism and the distributed optimizer; core attention and both norms of a layer
are recomputed. Sizes follow from the model's arguments, tensor by tensor. Receives of the pipeline are made on a stream of their own
and freed when that stream is done with them. Backward runs on autograd's thread: what its Python functions allocate has their stack,
what its kernels allocate has none.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sample_data.ledger import Model
from sample_data.snapshots.allocator import MIB, Allocator, Block
from sample_data.snapshots.pickling import Annotation
from sample_data.snapshots.stacks import Stacks

CLASSES = ("weights", "gradient_buffer", "optimizer", "activations", "recomputed", "logits_and_loss", "workspace", "communication", "checkpoint",
           "input", "unknown")
(WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, RECOMPUTED, LOSS, WORKSPACE, COMMUNICATION, CHECKPOINT, INPUT, UNKNOWN) = range(len(CLASSES))
PIPELINE_STREAM = 94_236_871_049_728
"""A `cudaStream_t`: tensors of the pipeline's receives live on it."""

_BUCKET = 64 * 10**6
_CUBLAS_BYTES = 32 * MIB + 1024


class Sizes(NamedTuple):
    """Bytes of the tensors of a layer on one rank; `part` is of a sequence-parallel shard."""

    part: int
    whole: int
    query: int
    key: int
    qkv: int
    fc1: int
    act: int
    row: int
    softmax: int
    logits: int


def sizes(model: Model) -> Sizes:
    """Of a micro-batch, bf16."""
    shard = model.tokens // model.tensor
    query, key = (2 * shard * heads * model.kv_channels for heads in (model.heads, model.groups))
    return Sizes(part=2 * shard * model.hidden, whole=2 * model.tokens * model.hidden, query=query, key=key, qkv=query + 2 * key,
                 fc1=4 * shard * model.ffn, act=2 * shard * model.ffn, row=4 * shard, softmax=4 * shard * model.heads,
                 logits=2 * shard * model.vocabulary)


class Layer(NamedTuple):
    """What backward needs of a layer."""

    saved: dict[str, Block]
    given: Block


class MicroBatch(NamedTuple):
    """What backward needs of a micro-batch."""

    kept: list[Block]
    layers: list[Layer]
    head: dict[str, Block]


class Rank:
    """One rank of a stage: `setup`, `iteration`, `checkpoint` drive its allocator."""

    def __init__(self, model: Model, stage: int, micro_batches: int, allocator: Allocator) -> None:
        self.model, self.allocator, self.stacks = model, allocator, Stacks()
        self.annotations: list[Annotation] = []
        self._size, self._micro_batches = sizes(model), micro_batches
        self._first, self._last, self._ahead = stage == 0, stage == model.pipeline - 1, model.pipeline - 1 - stage
        self._pending: deque[Block] = deque()
        self._once: dict[str, Block] = {}
        self._shards: list[int] = []
        self._iteration = 0

    def _new(self, tensor: str, size: int, kind: int, detail: str = "", stream: int = 0) -> Block:
        while self._pending and stream == 0:
            self.allocator.complete_free(self._pending.popleft())
        return self.allocator.malloc(size, self.stacks.of(tensor, detail), kind, stream)

    def _free(self, *blocks: Block) -> None:
        for block in blocks:
            self.allocator.free(block)

    def _pass(self, tensor: str, size: int, kind: int, detail: str = "") -> None:
        self._free(self._new(tensor, size, kind, detail))

    def _keep(self, tensor: str, size: int, kind: int) -> None:
        """Made once and held for ever."""
        if tensor not in self._once:
            self._once[tensor] = self._new(tensor, size, kind)

    def setup(self) -> None:
        """Before recording a few blocks; then parameters, the buffers they move to, and the main parameters."""
        for size in (4096, 512, 512, 24 * 1024, 2 * MIB + 512):
            self.allocator.malloc(size, -1, UNKNOWN)
        self.allocator.recording = True
        parameters = self._parameters()
        total = sum(block.requested for block in parameters) // 2
        self._new("parameter buffer", 2 * total, WEIGHTS)
        self._new("gradient buffer", 4 * total, GRADIENTS)
        self._free(*parameters)
        for start in range(0, total, _BUCKET):
            self._shards.append(min(_BUCKET, total - start) // self.model.data)
            self._new("main parameter", 4 * self._shards[-1], OPTIMIZER)

    def _parameters(self) -> list[Block]:
        model = self.model
        hidden, shard = 2 * model.hidden, 2 * model.hidden // model.tensor
        query, key = model.heads * model.kv_channels, model.groups * model.kv_channels
        made = [self._new("embedding weight", shard * model.vocabulary, WEIGHTS)] if self._first else []
        for _ in range(model.layers // model.pipeline):
            made.append(self._new("norm weight", hidden, WEIGHTS))
            made += [self._new("layer weight", shard * width, WEIGHTS, "attention.py:413") for width in (query, query + 2 * key)]
            made.append(self._new("norm weight", hidden, WEIGHTS))
            made += [self._new("layer weight", shard * width, WEIGHTS, "mlp.py:219") for width in (2 * model.ffn, model.ffn)]
        if self._last:
            made += [self._new("norm weight", hidden, WEIGHTS), self._new("output weight", shard * model.vocabulary, WEIGHTS)]
        return made

    def iteration(self) -> None:
        """One training step under 1F1B."""
        self._iteration += 1
        self._mark("START", f"ProfilerStep#{self._iteration}")
        flying: deque[MicroBatch] = deque()
        for _ in range(self._micro_batches):
            flying.append(self._forward())
            if len(flying) > self._ahead:
                self._backward(flying.popleft())
        while flying:
            self._backward(flying.popleft())
        self._pass("norm gradients together", 4 * self.model.hidden * 2 * self.model.layers // self.model.pipeline, COMMUNICATION)
        self._step()
        self._mark("END", f"ProfilerStep#{self._iteration}")

    def checkpoint(self) -> None:
        """States of random generators gathered from all ranks before the shards are written from the device."""
        own = [self._new("object", size, CHECKPOINT) for size in (16_640, 8, 8 * self.model.world)]
        self._free(self._new("gathered objects", 16_640 * self.model.world, CHECKPOINT), *own)

    def _forward(self) -> MicroBatch:
        size, model = self._size, self.model
        kept = [self._new("batch", 8 * model.tokens, INPUT) for _ in range(2)] if self._first or self._last else []
        if self._first:
            kept.append(self._new("masked tokens", 8 * model.tokens, ACTIVATIONS))
            embedded = self._new("embedded", size.whole, ACTIVATIONS)
            hidden = self._new("scattered embedding", size.part, COMMUNICATION)
            self._free(embedded)
        else:
            hidden = self._new("receive forward", size.part, COMMUNICATION, stream=PIPELINE_STREAM)
        kept.append(hidden)
        self._keep("rope", 4 * model.sequence * model.kv_channels, ACTIVATIONS)
        layers = [self._forward_layer() for _ in range(model.layers // model.pipeline)]
        if self._last:
            return MicroBatch(kept, layers, self._forward_head())
        self._free(layers[-1].given)
        return MicroBatch(kept, layers, {})

    def _forward_layer(self) -> Layer:
        size, new = self._size, self._new
        saved = {"row 1": new("norm 1", size.row, ACTIVATIONS)}
        norm = new("norm 1", size.part, ACTIVATIONS)
        gathered = new("qkv gather", size.whole, COMMUNICATION)
        self._keep("cublas workspace", _CUBLAS_BYTES, WORKSPACE)
        qkv = new("qkv", size.qkv, ACTIVATIONS)
        self._free(gathered, norm)
        saved |= {name: new(name, bytes_, ACTIVATIONS) for name, bytes_ in (("query", size.query), ("key", size.key), ("value", size.key))}
        self._free(qkv)
        saved["attention"] = new("core attention", size.query, ACTIVATIONS)
        self._free(*[new("core attention", bytes_, ACTIVATIONS) for bytes_ in (size.softmax, 16)])
        after = self._row_parallel("proj", "proj scatter")
        saved["residual"] = new("residual 1", size.part, ACTIVATIONS)
        self._free(after)
        saved["row 2"] = new("norm 2", size.row, ACTIVATIONS)
        norm = new("norm 2", size.part, ACTIVATIONS)
        gathered = new("fc1 gather", size.whole, COMMUNICATION)
        saved["fc1"] = new("fc1", size.fc1, ACTIVATIONS)
        self._free(gathered, norm)
        saved["swiglu"] = new("swiglu", size.act, ACTIVATIONS)
        after = self._row_parallel("fc2", "fc2 scatter")
        given = new("residual 2", size.part, ACTIVATIONS)
        self._free(after)
        return Layer(saved, given)

    def _row_parallel(self, gemm: str, scatter: str) -> Block:
        """The whole product, then this rank's shard of the sum over ranks."""
        product = self._new(gemm, self._size.whole, ACTIVATIONS)
        part = self._new(scatter, self._size.part, COMMUNICATION)
        self._free(product)
        return part

    def _forward_head(self) -> dict[str, Block]:
        size, new = self._size, self._new
        head = {"row": new("final norm", size.row, ACTIVATIONS), "norm": new("final norm", size.part, ACTIVATIONS)}
        self._keep("head gather", size.whole, COMMUNICATION)
        logits = new("logits", size.logits, LOSS)
        head["softmax"] = new("float logits", 2 * size.logits, LOSS)
        maximum = new("logits maximum", 4 * self.model.tokens, LOSS)
        head["mask"] = new("target mask", self.model.tokens, LOSS, "46")
        head["masked"] = new("target mask", 8 * self.model.tokens, LOSS, "47")
        sums = [new("target mask", 4 * self.model.tokens, LOSS, line) for line in ("58", "63")]
        head["loss"] = new("loss", 4 * self.model.tokens, LOSS)
        self._free(logits, maximum, *sums)
        head["sum"] = new("loss sum", 4, LOSS)
        return head

    def _backward(self, batch: MicroBatch) -> None:
        gradient = self._backward_head(batch) if self._last else self._new("receive backward", self._size.part, COMMUNICATION, stream=PIPELINE_STREAM)
        for at in reversed(range(len(batch.layers))):
            given = batch.layers[at].given
            if self._last or at < len(batch.layers) - 1:
                self._free(given)
            gradient = self._backward_layer(batch.layers[at].saved, gradient)
        self._release(gradient)
        for block in batch.kept:
            self._release(block)

    def _release(self, block: Block) -> None:
        """At once where one stream used the block, else when the other is done."""
        if block.segment.stream:
            self.allocator.request_free(block)
            self._pending.append(block)
        else:
            self._free(block)

    def _backward_head(self, batch: MicroBatch) -> Block:
        size, new, head = self._size, self._new, batch.head
        self._free(head["sum"])
        self._pass("softmax update", 4 * self.model.tokens, LOSS)
        logits = new("native backward", size.logits, LOSS)
        self._free(head["softmax"], head["mask"], head["masked"], head["loss"])
        whole = new("head input gradient", size.whole, ACTIVATIONS)
        part = new("head scatter", size.part, COMMUNICATION)
        self._free(whole, logits)
        gradient = new("norm gradient", size.part, ACTIVATIONS)
        self._pass("norm gradient", 2 * self.model.hidden, ACTIVATIONS)
        self._free(part, head["norm"], head["row"])
        return gradient

    def _backward_layer(self, saved: dict[str, Block], gradient: Block) -> Block:
        size, new = self._size, self._new
        whole = new("output gradient gather", size.whole, COMMUNICATION)
        act = new("input gradient", size.act, ACTIVATIONS)
        self._free(whole, saved["swiglu"])
        fc1 = new("swiglu gradient", size.fc1, ACTIVATIONS)
        self._free(act, saved["fc1"])
        gradient = self._backward_column("recomputed norm 2", fc1, saved["row 2"], gradient)
        self._free(saved["residual"])
        whole = new("output gradient gather", size.whole, COMMUNICATION)
        attention = new("input gradient", size.query, ACTIVATIONS)
        self._free(whole, saved["attention"])
        again = [new("recomputed attention", bytes_, RECOMPUTED) for bytes_ in (size.query, size.softmax, 16)]
        parts = [new("attention gradient", bytes_, ACTIVATIONS) for bytes_ in (size.query, size.key, size.key)]
        self._free(attention, *again, saved["query"], saved["key"], saved["value"])
        turned = [new("rope gradient", bytes_, ACTIVATIONS) for bytes_ in (size.query, size.key)]
        self._free(*parts[:2])
        qkv = new("native backward", size.qkv, ACTIVATIONS)
        self._free(*turned, parts[2])
        return self._backward_column("recomputed norm 1", qkv, saved["row 1"], gradient)

    def _backward_column(self, norm: str, output: Block, row: Block, residual: Block) -> Block:
        """Backward of a norm and the column-parallel linear behind it: `output` is the gradient of what the linear gave."""
        size, new = self._size, self._new
        again = [new(norm, size.row, RECOMPUTED), new(norm, size.part, RECOMPUTED)]
        gathered = new("input gather", size.whole, COMMUNICATION)
        whole = new("input gradient", size.whole, ACTIVATIONS)
        part = new("input gradient scatter", size.part, COMMUNICATION)
        self._free(whole, gathered, output)
        inner = new("norm gradient", size.part, ACTIVATIONS)
        self._pass("norm gradient", 2 * self.model.hidden, ACTIVATIONS)
        self._free(part, row, *again)
        total = new("native backward", size.part, ACTIVATIONS)
        self._free(inner)
        self._release(residual)
        return total

    def _step(self) -> None:
        for line in ("108", "112"):
            self._pass("gradient norm", 4, OPTIMIZER, line)
        name = "Optimizer.step#FusedAdam.step"
        self._mark("START", name)
        if self._iteration == 1:
            for shard in self._shards:
                for line in ("462", "466"):
                    self._new("moment", 4 * shard, OPTIMIZER, line)
        self._pass("adam scratch", 4, OPTIMIZER)
        self._mark("END", name)

    def _mark(self, stage: str, name: str) -> None:
        self.allocator.now_us += 7
        self.annotations.append((stage, name, self.allocator.now_us))
