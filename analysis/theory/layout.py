"""Which rank sits where: rank -> (tp, cp, ep, etp, dp, edp, pp), the groups of each kind, and which ranks print which line.

Source: `RankGenerator` and `initialize_model_parallel` of Megatron-Core. A rank is a number in mixed radix whose digits
are the axes of `order`, the leftmost axis varying fastest. Two grids lie over the same ranks: the dense one
(tp, cp, dp, pp) and the expert one (etp, ep, edp, pp), which has no cp; both give the same pipeline stage. Up to core
0.9 there is one grid and the expert axis is carved out of dp. Guessing `rank // (world / pp)` is wrong under
`--use-tp-pp-dp-mapping`, and reading ep off the dense grid is wrong with CP or ETP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from analysis.theory.arguments import Args, native_args, whole
from analysis.theory.stages import virtual_stages
from ingest.errors import LedgerError

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
MAPPING_ORDER = "tp-cp-ep-pp-dp"
MAPPING_ORDER_BEFORE_CORE_0_12 = "tp-pp-dp"
AXES = ("tp", "cp", "ep", "dp", "pp")

GROUP_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("dense", ("tp",)), "cp": ("dense", ("cp",)), "dp": ("dense", ("dp",)), "pp": ("dense", ("pp",)),
    "dp_cp": ("dense", ("dp", "cp")), "tp_pp_model_parallel": ("dense", ("tp", "pp")),
    "ep": ("expert", ("ep",)), "expert_tp": ("expert", ("tp",)), "expert_dp": ("expert", ("dp",)), "tp_ep": ("expert", ("tp", "ep")),
    "ep_independent": ("expert", ("ep",)), "tp_ep_independent": ("expert", ("tp", "ep")), "dp_independent_ep": ("expert", ("dp",)),
}
"""Kind of group -> (grid, axes that vary inside a group); the last three are the names of core <= 0.9."""


@dataclass(frozen=True, slots=True)
class ParallelSizes:
    """The sizes of every axis; `dp` is without cp, `edp` is the data-parallel size of the experts, `vpp` the chunks a rank (1 without VPP)."""

    world_size: int
    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    edp: int
    pp: int
    vpp: int = 1
    order: str = DEFAULT_ORDER
    one_grid: bool = False
    optimizer_instances: int = 1

    def grid(self, kind: str) -> tuple[tuple[str, int], ...]:
        """The axes of a grid, fastest first, each with its size; `kind` is dense or expert."""
        if kind == "dense":
            sizes = {"tp": self.tp, "cp": self.cp, "ep": 1, "dp": self.dp, "pp": self.pp}
        else:
            sizes = {"tp": self.etp, "cp": self.cp if self.one_grid else 1, "ep": self.ep, "dp": self.edp, "pp": self.pp}
        return tuple((axis, sizes[axis]) for axis in _complete(self.order, sizes))

    def stride(self, kind: str, axis: str) -> int:
        """How far apart two ranks are that differ by one on this axis alone: a rank's place on it is its number over this, modulo the axis's size."""
        grid = self.grid(kind)
        return prod(size for _, size in grid[:[name for name, _ in grid].index(axis)])


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a rank sits on each axis; `instance` and `shard` place it in the distributed optimizer."""

    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    edp: int
    pp: int
    instance: int = 0
    shard: int = 0


def parallel_sizes(args: Args, *, era: str = "current") -> ParallelSizes:
    """The sizes Megatron derives from its arguments.

    `era` is `current`, `core_0.11` (the mapping flag means tp-pp-dp), or `core_0.9` (that, and one grid with the expert
    axis inside dp). An `order` among the arguments overrides the default. Raises LedgerError where sizes do not multiply to the world.
    """
    args = native_args(args)
    if era not in ("current", "core_0.11", "core_0.9"):
        raise LedgerError(f"era is {era!r}; current, core_0.11 or core_0.9 would fit")
    tp, pp, cp, ep = (whole(args, f"{axis}_parallel_size", 1) for axis in ("tensor_model", "pipeline_model", "context", "expert_model"))
    if (remat := whole(args, "gtp_weight_remat_size", 1)) > 1:
        raise LedgerError(f"argument gtp_weight_remat_size is {remat}; this rank map knows only 1")
    old = era == "core_0.9"
    etp = tp if old else whole(args, "expert_tensor_parallel_size", tp)
    world = _world(args, tp * pp * cp)
    dp = world // (tp * pp * cp)
    if (given := args.get("data_parallel_size")) not in (None, dp):
        raise LedgerError(f"argument data_parallel_size is {given!r}; world_size {world} over TP {tp} x PP {pp} x CP {cp} leaves {dp}")
    sizes = ParallelSizes(world, tp, cp, ep, etp, dp, _expert_dp(world, dp, pp, ep, etp, old), pp, virtual_stages(args) or 1, _order(args, era), old,
                          whole(args, "num_distributed_optimizer_instances", 1))
    _check(sizes)
    return sizes


def coordinates(rank: int, sizes: ParallelSizes) -> Coordinates:
    """Where a global rank sits on both grids."""
    if not 0 <= rank < sizes.world_size:
        raise LedgerError(f"rank is {rank}; a rank from 0 to {sizes.world_size - 1} would fit")
    dense, expert = _digits(rank, sizes.grid("dense")), _digits(rank, sizes.grid("expert"))
    member = _index(rank, sizes, ("dp", "cp"))
    part = sizes.dp * sizes.cp // sizes.optimizer_instances
    return Coordinates(dense["tp"], dense["cp"], expert["ep"], expert["tp"], dense["dp"], expert["dp"], dense["pp"], member // part, member % part)


def stage_of_rank(rank: int, sizes: ParallelSizes) -> int:
    """The pipeline stage of a global rank."""
    return _digits(rank, sizes.grid("dense"))["pp"]


def groups(kind: str, sizes: ParallelSizes) -> list[list[int]]:
    """Every group of a kind of `GROUP_KINDS`, each as its ranks ascending."""
    if kind not in GROUP_KINDS:
        raise LedgerError(f"group kind is {kind!r}; one of {', '.join(GROUP_KINDS)} would fit")
    name, inside = GROUP_KINDS[kind]
    grid = sizes.grid(name)
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(sizes.world_size):
        digits = _digits(rank, grid)
        found.setdefault(tuple(digits[axis] for axis, _ in grid if axis not in inside), []).append(rank)
    return sorted(found.values())


def report_memory_ranks(sizes: ParallelSizes) -> list[int]:
    """Ranks that print `[Rank r] ... memory (MB)`: data-parallel rank 0, CP not counted in."""
    return [rank for rank in range(sizes.world_size) if _digits(rank, sizes.grid("dense"))["dp"] == 0]


def parameter_count_ranks(sizes: ParallelSizes, *, each_cp: bool = False) -> list[int]:
    """Ranks that print their number of parameters; `each_cp` for releases before core 0.13, which repeat the line on each CP rank."""
    return [rank for rank in report_memory_ranks(sizes) if each_cp or _digits(rank, sizes.grid("dense"))["cp"] == 0]


def line_ranks(sizes: ParallelSizes) -> dict[str, list[int]]:
    """Which ranks print which line."""
    last = [sizes.world_size - 1]
    return {"theory": [0], "arguments": [0], "rank_memory": report_memory_ranks(sizes), "parameter_count": parameter_count_ranks(sizes),
            "iteration": last, "timers": last, "tensorboard": last, "validation": last}


def _digits(rank: int, grid: Iterable[tuple[str, int]]) -> dict[str, int]:
    digits = {}
    for axis, size in grid:
        rank, digits[axis] = divmod(rank, size)
    return digits


def _index(rank: int, sizes: ParallelSizes, axes: tuple[str, ...]) -> int:
    """Position of a rank within its dense group over `axes`."""
    grid = sizes.grid("dense")
    digits, index, stride = _digits(rank, grid), 0, 1
    for axis, size in grid:
        if axis in axes:
            index += digits[axis] * stride
            stride *= size
    return index


def _complete(order: str, sizes: dict[str, int]) -> list[str]:
    """The axes of an order; an axis of size 1 may be left out, any other must be named."""
    tokens = order.lower().split("-")
    for axis, size in sizes.items():
        if axis not in tokens:
            if size != 1:
                raise LedgerError(f"argument order is {order!r} and leaves out {axis} of size {size}; {DEFAULT_ORDER} would fit")
            tokens.append(axis)
    return tokens


def _order(args: Args, era: str) -> str:
    order = args.get("order")
    if order is None:
        mapping = MAPPING_ORDER if era == "current" else MAPPING_ORDER_BEFORE_CORE_0_12
        order = mapping if args.get("use_tp_pp_dp_mapping") else DEFAULT_ORDER
    tokens = str(order).lower().split("-")
    if sorted(set(tokens)) != sorted(tokens) or not set(tokens) <= set(AXES):
        raise LedgerError(f"argument order is {order!r}; {', '.join(AXES)} joined by '-', each once, would fit, such as {DEFAULT_ORDER}")
    return "-".join(tokens)


def _world(args: Args, model: int) -> int:
    if args.get("world_size") is None:
        return model * whole(args, "data_parallel_size")
    world = whole(args, "world_size")
    if world % model:
        raise LedgerError(f"argument world_size is {world}; a multiple of TP x PP x CP = {model} would fit")
    return world


def _expert_dp(world: int, dp: int, pp: int, ep: int, etp: int, old: bool) -> int:
    whole_size, part = (dp, ep) if old else (world, etp * ep * pp)
    if whole_size % part:
        of = f"data-parallel size {dp}" if old else f"world_size {world} over PP {pp} and ETP {etp}, {world // (pp * etp)},"
        raise LedgerError(f"argument expert_model_parallel_size is {ep}; a divisor of {of} would fit")
    return whole_size // part


def _check(sizes: ParallelSizes) -> None:
    """The sizes that Megatron itself refuses."""
    both = sizes.dp * sizes.cp
    if both % sizes.optimizer_instances:
        raise LedgerError(f"argument num_distributed_optimizer_instances is {sizes.optimizer_instances}; a divisor of DP x CP = {both} would fit")
    if sizes.one_grid:
        if sizes.ep > 1 and "ep-dp" not in sizes.order and "dp-ep" not in sizes.order:
            raise LedgerError(f"argument order is {sizes.order!r}; with one grid ep and dp must stand side by side, as in {DEFAULT_ORDER}")
        return
    agree = sizes.stride("dense", "pp") == sizes.stride("expert", "pp") and (sizes.order.endswith("pp") or sizes.edp == sizes.dp)
    if sizes.pp > 1 and not agree:
        raise LedgerError(f"argument order is {sizes.order!r} with PP {sizes.pp}, and expert_model_parallel_size is {sizes.ep}: the dense and the "
                          "expert grid would disagree on the stage of a rank; an order that ends in pp, or ETP x EP = TP x CP, would fit")
