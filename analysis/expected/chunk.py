"""What one chunk of one stage keeps of one micro-batch, and the largest window of a layer's backward.

Source: as of `activations.py`, `moe.py`, `mamba.py`, `recompute.py`, `head.py`; here they are put together layer by layer, because
dense, expert, Mamba and MTP layers of one chunk differ, and full recomputation keeps one input for every N of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analysis.expected.activations import Saved, attention, dense_layer, mlp
from analysis.expected.boundary import boundary_tensor
from analysis.expected.head import embedding_bytes, head_bytes
from analysis.expected.instants import ChunkBytes
from analysis.expected.low_precision import quantised_saved
from analysis.expected.mamba import mamba_layer
from analysis.expected.moe import moe_mlp
from analysis.expected.parameters import Tensor, layer_kind
from analysis.expected.recompute import Kept, kept
from analysis.expected.run import Run
from analysis.expected.transients import backward_bytes
from analysis.theory.stages import Cell


def chunk_bytes(run: Run, cell: Cell, tensors: list[Tensor]) -> ChunkBytes:
    """Saved bytes and windows of one chunk and micro-batch."""
    largest = largest_gemm(tensors)
    layers = list(chunk_layers(run, cell))
    saved = sum(one.saved for _, one, _ in layers)
    window = max((window_bytes(run, one) + one.offloaded + backward_bytes(made, largest, run.model.hidden, run.options) for _, one, made in layers),
                 default=0)
    if cell.embedding:
        saved += embedding_bytes(run.model, run.options)
    if run.options.legacy_gradients:
        saved += boundary_tensor(run.model, run.options)
    layer = max((sum(made.values()) for *_, made in layers), default=0)
    loss = head_bytes(run.model, run.options, cell.mtp).peak + last_offloaded(layers) if cell.loss else 0
    return ChunkBytes(saved, window, loss, layer)


def last_offloaded(layers: Sequence[tuple[str, Kept, Saved]]) -> int:
    """What stays on the device of the last layer before the loss, whose backward comes at once."""
    return layers[-1][1].offloaded if layers else 0


def layer_saved(run: Run, kind: str) -> Saved:
    """What one layer of a kind keeps without recomputation."""
    model, options = run.model, run.options
    if kind in ("moe", "E"):
        moe = moe_mlp(model, options, run.sizes)
        return moe if kind == "E" else {**attention(model, options, run.kernel), **moe}
    if kind == "M":
        return mamba_layer(model, options)
    if kind == "*":
        return attention(model, options, run.kernel)
    return mlp(model, options, model.ffn) if kind == "-" else dense_layer(model, options, run.kernel)


def largest_gemm(tensors: Iterable[Tensor]) -> int:
    """Elements of the largest weight whose gradient a GEMM makes."""
    return max((tensor.elements for tensor in tensors if tensor.gemm), default=0)


def chunk_layers(run: Run, cell: Cell) -> Iterator[tuple[str, Kept, Saved]]:
    """Each decoder and MTP layer: its kind, what it keeps, and what it makes."""
    for index in range(cell.layers):
        layer = cell.first_layer + index
        kind = layer_kind(run.model, layer)
        made = layer_saved(run, kind)
        if layer not in run.model.bf16_layers:
            made = quantised_saved(made, run.options)
        yield kind, kept(made, run.model, run.options, index=index), made
    for index, kind in enumerate(run.model.mtp_kinds * cell.mtp, cell.layers):
        made = quantised_saved(layer_saved(run, kind), run.options)
        yield kind, kept(made, run.model, run.options, index=index, decoder=False), made


def window_bytes(run: Run, one: Kept) -> int:
    """Uniform full recomputation makes N layers at once."""
    options = run.options
    return one.window * (options.recompute_layers if options.recompute == "full" and options.recompute_method != "block" else 1)
