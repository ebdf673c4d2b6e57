"""Parameters of a rank, tensor by tensor: which exist on which stage, what divides them, and in which buffer they lie.

Source: the module specs of Megatron-Core (`gpt_layer_specs.py`, `attention.py`, `multi_latent_attention.py`, `mlp.py`,
`moe/experts.py`, `moe/shared_experts.py`, `moe/router.py`, `multi_token_prediction.py`, `mamba_mixer.py`). Tensors are
kept apart because the distributed optimizer pads each to 64 elements and the allocator each to 512 bytes. Norms, router,
MLA down-projections and row-parallel biases are whole on every tensor-parallel rank; dividing a total by TP is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from analysis.expected.model import Model
from analysis.theory.layout import ParallelSizes
from analysis.theory.stages import Cell

Group = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """`count` equal parameters of `elements` each on this rank; `gemm` marks a weight that low-precision recipes quantise."""

    name: str
    elements: int
    count: int = 1
    group: Group = "dense"
    gemm: bool = False
    kind: str = "vector"

    @property
    def total(self) -> int:
        """Elements of all of them."""
        return self.elements * self.count


def cell_tensors(model: Model, sizes: ParallelSizes, cell: Cell) -> list[Tensor]:
    """Every parameter of one chunk of one stage, in the order they are built. `elements` are those of one rank."""
    tensors = [*_embedding(model, sizes, cell), *(tensor for layer in decoder_layers(model, sizes, cell) for tensor in layer)]
    if cell.final_norm:
        tensors += _norm("final_norm", model, model.hidden)
    for _ in range(_depths(model, cell)):
        tensors += _mtp(model, sizes)
    if cell.output_weight:
        tensors.append(_matrix("output_layer", _share(model.vocabulary, sizes.tp) * model.hidden, kind="head"))
        if model.tied_positions:
            tensors.append(_matrix("position_embedding", model.tied_positions * model.hidden, kind="embedding"))
    return tensors


def decoder_layers(model: Model, sizes: ParallelSizes, cell: Cell) -> Iterator[list[Tensor]]:
    """The parameters of each decoder layer of a chunk, in order."""
    for layer in range(cell.first_layer, cell.first_layer + cell.layers):
        built = layer_tensors(model, sizes, layer_kind(model, layer))
        yield [replace(tensor, gemm=False) for tensor in built] if layer in model.bf16_layers else built


def prediction_layers(model: Model, sizes: ParallelSizes, cell: Cell) -> Iterator[list[Tensor]]:
    """The parameters of each layer inside a chunk's multi-token prediction; what joins and norms them is not among them."""
    for _ in range(_depths(model, cell)):
        for kind in model.mtp_kinds:
            yield layer_tensors(model, sizes, kind)


def _depths(model: Model, cell: Cell) -> int:
    return min(cell.mtp, 1) if model.mtp_repeated else cell.mtp


def layer_kind(model: Model, layer: int) -> str:
    """`dense`, `moe`, or a letter of a hybrid pattern: M mamba, * attention, - MLP, E experts."""
    if model.pattern:
        letters = model.pattern.replace("|", "")
        return letters[layer] if layer < len(letters) else "M"
    return "moe" if model.moe_pattern[layer] else "dense"


def layer_tensors(model: Model, sizes: ParallelSizes, kind: str) -> list[Tensor]:
    """Parameters of one layer of a kind."""
    if kind in ("dense", "moe"):
        rest = _experts(model, sizes) if kind == "moe" else _mlp("mlp", model, sizes.tp, model.ffn)
        return [*_attention(model, sizes), *_norm("pre_mlp_norm", model, model.hidden), *rest]
    if kind == "M":
        return list(_mamba(model, sizes))
    if kind == "*":
        return list(_attention(model, sizes))
    norm = list(_norm("pre_mlp_norm", model, model.hidden))
    return norm + list(_experts(model, sizes) if kind == "E" else _mlp("mlp", model, sizes.tp, model.ffn))


def elements(tensors: Iterable[Tensor], group: Group | None = None) -> int:
    """Parameters on the rank, of one group or of all."""
    return sum(tensor.total for tensor in tensors if group in (None, tensor.group))


def expert_group(sizes: ParallelSizes) -> Group:
    """Experts lie in buffers of their own only where they are spread otherwise than the dense weights."""
    return "expert" if sizes.ep > 1 or sizes.etp != sizes.tp else "dense"


def _share(width: int, parts: int) -> int:
    return -(-width // parts)


def _matrix(name: str, size: int, *, kind: str = "matrix", group: Group = "dense", count: int = 1) -> Tensor:
    return Tensor(name, size, count, group, kind in ("matrix", "grouped"), kind)


def _norm(name: str, model: Model, width: int) -> Iterator[Tensor]:
    yield Tensor(name, width, model.norm)


def _embedding(model: Model, sizes: ParallelSizes, cell: Cell) -> Iterator[Tensor]:
    if not (cell.embedding or cell.embedding_copy):
        return
    yield _matrix("embedding", _share(model.vocabulary, sizes.tp) * model.hidden, kind="embedding")
    if model.positions:
        yield _matrix("position_embedding", model.positions * model.hidden, kind="embedding")


def _attention(model: Model, sizes: ParallelSizes) -> Iterator[Tensor]:
    yield from _norm("input_norm", model, model.hidden)
    if model.mla:
        yield from _latent_attention(model, sizes)
        return
    groups = max(model.groups // sizes.tp, 1)
    width = model.query // sizes.tp + 2 * groups * model.head_width
    yield _matrix("linear_qkv", width * model.hidden)
    if model.qkv_bias:
        yield Tensor("linear_qkv_bias", width)
    if model.qk_norm:
        yield Tensor("qk_norm", model.head_width, 2 * model.norm)
    yield _matrix("linear_proj", model.query // sizes.tp * model.hidden)
    if model.bias:
        yield Tensor("linear_proj_bias", model.hidden)


def _latent_attention(model: Model, sizes: ParallelSizes) -> Iterator[Tensor]:
    """Down-projections are whole on every rank, up-projections are divided by heads; only the output may have a bias."""
    heads = model.heads // sizes.tp
    query = heads * (model.nope_width + model.rope_width)
    if model.q_latent:
        yield _matrix("q_down", model.q_latent * model.hidden)
        yield _matrix("q_up", query * model.q_latent)
    else:
        yield _matrix("q_proj", query * model.hidden)
    yield _matrix("kv_down", (model.kv_latent + model.rope_width) * model.hidden)
    yield _matrix("kv_up", heads * (model.nope_width + model.value_width) * model.kv_latent)
    if model.qk_norm:
        yield from _norm("kv_norm", model, model.kv_latent)
        if model.q_latent:
            yield from _norm("q_norm", model, model.q_latent)
    yield _matrix("linear_proj", heads * model.value_width * model.hidden)
    if model.bias:
        yield Tensor("linear_proj_bias", model.hidden)


def _mlp(name: str, model: Model, tp: int, width: int, *, group: Group = "dense", count: int = 1, hidden: int = 0, bias: bool | None = None,
         kind: str = "matrix") -> Iterator[Tensor]:
    hidden, bias = hidden or model.hidden, model.bias if bias is None else bias
    inner = model.gate * _share(width, tp)
    yield _matrix(f"{name}_fc1", inner * hidden, group=group, count=count, kind=kind)
    if bias:
        yield Tensor(f"{name}_fc1_bias", inner, count, group)
    yield _matrix(f"{name}_fc2", _share(width, tp) * hidden, group=group, count=count, kind=kind)
    if bias:
        yield Tensor(f"{name}_fc2_bias", hidden, count, group)


def _experts(model: Model, sizes: ParallelSizes) -> Iterator[Tensor]:
    """Router and latent projections whole, local experts divided by ETP, the shared expert by TP."""
    yield Tensor("router", model.experts * model.hidden, kind="router")
    if model.bias:
        yield Tensor("router_bias", model.experts)
    if model.latent:
        yield _matrix("latent_projection", model.latent * model.hidden, count=2)
    local = model.experts // sizes.ep
    yield from _mlp("experts", model, sizes.etp, model.expert_ffn, group=expert_group(sizes), count=local, hidden=model.latent,
                    kind="grouped" if model.grouped_gemm else "matrix")
    if model.shared_ffn:
        yield from _mlp("shared", model, sizes.tp, model.shared_ffn)
        if model.shared_gate:
            yield Tensor("shared_gate", model.hidden)


def _mtp(model: Model, sizes: ParallelSizes) -> Iterator[Tensor]:
    """Norms of embedding and hidden state, their joint projection, the layers of a depth, and a final norm."""
    yield from _norm("mtp_embedding_norm", model, model.hidden)
    yield from _norm("mtp_hidden_norm", model, model.hidden)
    yield _matrix("mtp_projection", 2 * model.hidden * _share(model.hidden, sizes.tp))
    for kind in model.mtp_kinds:
        yield from layer_tensors(model, sizes, kind)
    yield from _norm("mtp_final_norm", model, model.hidden)


def _mamba(model: Model, sizes: ParallelSizes) -> Iterator[Tensor]:
    """A Mamba-2 mixer: in-projection (z, x, B, C, dt), depthwise convolution, A, D and dt per head, gated norm, out-projection."""
    mamba, tp = model.mamba, sizes.tp
    heads, groups = mamba.heads // tp, max(mamba.groups // tp, 1)
    inner, state = heads * mamba.head_width, groups * mamba.state
    yield from _norm("input_norm", model, model.hidden)
    yield _matrix("in_projection", (2 * inner + 2 * state + heads) * model.hidden)
    yield Tensor("convolution", (inner + 2 * state) * mamba.convolution)
    yield Tensor("convolution_bias", inner + 2 * state)
    yield Tensor("per_head", heads, 3)
    yield Tensor("gated_norm", inner)
    yield _matrix("out_projection", inner * model.hidden)
