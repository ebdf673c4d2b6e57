"""Which layers each pipeline stage and virtual stage holds, and where embedding, MTP, final norm and loss live.

Source: `get_num_layers_to_build`, `get_transformer_layer_offset` and `gpt_model.py` of Megatron-Core. A layout string comes before
first/last overrides, those before the even split with embedding and loss accounted. Cells are listed chunk-major (index =
chunk x PP + stage), which is the order of the layers; `num_layers / PP` is wrong for every uneven split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.theory.arguments import Args, native_args, whole
from analysis.theory.layout_string import NAME as LAYOUT
from analysis.theory.layout_string import check_layout, parse_layout
from ingest.errors import LedgerError

_FIRST, _LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"

_VIRTUAL = (LAYOUT, "num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage")


@dataclass(frozen=True, slots=True)
class Cell:
    """One chunk of one stage: `layers` decoder layers from global index `first_layer` (from 0), `mtp` MTP layers.

    `embedding` is the input embedding, `embedding_copy` the copy that an MTP cell keeps, `loss` the output layer with the final
    norm, `output_weight` whether that layer has a weight of its own here (untied, or tied across stages).
    """

    stage: int
    chunk: int
    first_layer: int
    layers: int
    embedding: bool
    mtp: int
    loss: bool
    output_weight: bool

    @property
    def embedding_copy(self) -> bool:
        """An MTP cell that is not the first embeds again."""
        return self.mtp > 0 and not self.embedding

    @property
    def final_norm(self) -> bool:
        """The final norm stands before the output layer."""
        return self.loss


@dataclass(frozen=True, slots=True)
class StageLayout:
    """All cells, chunk-major, of `pp` stages x `chunks` virtual stages (1 without VPP)."""

    pp: int
    chunks: int
    cells: tuple[Cell, ...]

    def of_stage(self, stage: int) -> tuple[Cell, ...]:
        """The cells of a stage, by chunk."""
        return self.cells[stage::self.pp]

    def layers_of_stage(self, stage: int) -> int:
        """Decoder layers on a stage over all its chunks."""
        return sum(cell.layers for cell in self.of_stage(stage))

    @property
    def even(self) -> bool:
        """Whether every stage holds the same number of decoder layers."""
        return len({self.layers_of_stage(stage) for stage in range(self.pp)}) == 1


def stage_layout(args: Args) -> StageLayout:
    """Place every layer. Raises LedgerError with one sentence where the split does not work out."""
    args = native_args(args)
    pp = whole(args, "pipeline_model_parallel_size", 1)
    mtp = whole(args, "mtp_num_layers", 0, least=0)
    cells = _written_cells(args, pp, mtp)
    if cells is None:
        counts = _split(args, pp)
        cells = ["t" * count for count in counts]
        _end(cells, mtp)
    untied = bool(args.get("untie_embeddings_and_output_weights"))
    return StageLayout(pp, len(cells) // pp, _placed(cells, pp, output_weight=untied or pp > 1))


def virtual_stages(args: Args) -> int | None:
    """VPP as Megatron derives it: given, or from a layout, the stages a rank or the layers a virtual stage; None where there is only one."""
    args = native_args(args)
    if args.get("virtual_pipeline_model_parallel_size") is not None:
        return whole(args, "virtual_pipeline_model_parallel_size")
    if all(args.get(name) is None for name in _VIRTUAL):
        return None
    chunks = stage_layout(args).chunks
    return chunks if chunks > 1 else None


def _written_cells(args: Args, pp: int, mtp: int) -> list[str] | None:
    """Cells that an argument spells out: a layout, or the bars of a hybrid pattern; None where neither does."""
    layers = whole(args, "num_layers")
    if args.get(LAYOUT) is not None:
        if given := [name for name in (_FIRST, _LAST) if args.get(name) is not None]:
            raise LedgerError(f"argument {given[0]} is {args[given[0]]}; None would fit beside {LAYOUT}")
        cells = parse_layout(args[LAYOUT])
        check_layout(cells, pp, layers, mtp)
        return cells
    pattern = str(args.get("hybrid_layer_pattern") or "").split("/")[0]
    if "|" not in pattern:
        return None
    cells = ["t" * len(part) for part in pattern.split("|")]
    if len(cells) % pp:
        raise LedgerError(f"argument hybrid_layer_pattern has {len(cells)} parts; a multiple of pipeline_model_parallel_size {pp} would fit")
    _end(cells, mtp)
    return cells


def _end(cells: list[str], mtp: int) -> None:
    """Embedding before the first cell, MTP and loss after the last, which is the same cell without a pipeline."""
    cells[0] = "E" + cells[0]
    cells[-1] += "m" * mtp + "L"


def _placed(cells: list[str], pp: int, *, output_weight: bool) -> tuple[Cell, ...]:
    placed, first = [], 0
    for index, cell in enumerate(cells):
        loss = "L" in cell
        placed.append(Cell(index % pp, index // pp, first, cell.count("t"), "E" in cell, cell.count("m"), loss, loss and output_weight))
        first += cell.count("t")
    return tuple(placed)


def _split(args: Args, pp: int) -> list[int]:
    """Decoder layers of each cell, chunk-major, from overrides or the even split."""
    ranks, accounted = _per_rank(args, pp)
    chunks = _chunks(args, ranks, pp)
    for stage, count in enumerate(ranks):
        if count % chunks:
            raise LedgerError(f"argument num_layers is {args['num_layers']}: stage {stage} gets {count}; a multiple of {chunks} chunks would fit")
    cells = [count // chunks for _ in range(chunks) for count in ranks]
    for cell, (name, slot) in zip((0, -1), accounted, strict=True):
        cells[cell] -= slot
        if cells[cell] < 0:
            raise LedgerError(f"argument {name} is True, but its cell has no layer to give; more layers or fewer chunks would fit")
    return cells


def _per_rank(args: Args, pp: int) -> tuple[list[int], tuple[tuple[str, int], tuple[str, int]]]:
    """Layer slots of each stage, and whether embedding and loss take one each."""
    layers = whole(args, "num_layers")
    names = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    accounted = (names[0], int(bool(args.get(names[0])))), (names[1], int(bool(args.get(names[1]))))
    if args.get(_FIRST) is not None or args.get(_LAST) is not None:
        if used := [name for name, slot in accounted if slot]:
            raise LedgerError(f"argument {used[0]} is True; False would fit beside {_FIRST} or {_LAST}")
        return _overridden(args, pp, layers), accounted
    slots = layers + accounted[0][1] + accounted[1][1]
    if slots % pp:
        near = ", ".join(str(size) for size in _divisors(slots, around=pp))
        counted = f"num_layers {layers}" if slots == layers else f"num_layers {layers} with embedding and loss accounted, {slots},"
        raise LedgerError(f"argument pipeline_model_parallel_size is {pp} and does not divide {counted}; "
                          f"{near}, or a {LAYOUT}, {_FIRST} or {_LAST} would fit")
    return [slots // pp] * pp, accounted


def _overridden(args: Args, pp: int, layers: int) -> list[int]:
    given = {0: args.get(_FIRST), pp - 1: args.get(_LAST)}
    fixed = {stage: whole(args, _FIRST if stage == 0 else _LAST, least=0) for stage, value in given.items() if value is not None}
    if args.get(_FIRST) is not None and pp == 1:
        fixed = {0: whole(args, _FIRST)}
    left, middle = layers - sum(fixed.values()), pp - len(fixed)
    if left < 0 or (left % middle if middle else left):
        shown = f"{_FIRST} is {args.get(_FIRST)} and {_LAST} is {args.get(_LAST)}"
        raise LedgerError(f"argument {shown}: {left} of num_layers {layers} are left for {middle} stages; a multiple of {middle} would fit")
    return [fixed.get(stage, left // middle if middle else 0) for stage in range(pp)]


def _chunks(args: Args, ranks: list[int], pp: int) -> int:
    """Virtual stages a rank, from whichever argument gives them; without a pipeline there are none."""
    if pp == 1:
        return 1
    if args.get("virtual_pipeline_model_parallel_size") is not None:
        return whole(args, "virtual_pipeline_model_parallel_size")
    if args.get("num_virtual_stages_per_pipeline_rank") is not None:
        return whole(args, "num_virtual_stages_per_pipeline_rank")
    if args.get("num_layers_per_virtual_pipeline_stage") is None:
        return 1
    each: Any = whole(args, "num_layers_per_virtual_pipeline_stage")
    if ranks[0] % each:
        raise LedgerError(f"argument num_layers_per_virtual_pipeline_stage is {each}; a divisor of the {ranks[0]} layers of a stage would fit")
    return int(ranks[0] // each)


def _divisors(number: int, *, around: int) -> list[int]:
    """The nearest divisors below and above a size."""
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    below, above = [size for size in divisors if size < around], [size for size in divisors if size > around]
    return below[-1:] + above[:1]
