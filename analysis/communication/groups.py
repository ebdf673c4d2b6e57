"""Which of Megatron's process groups a communicator is: by its size, its place in it, and the members that other ranks' logs prove.

A communicator has no name in the log. Rank r's group of a kind is known from the run's sizes; it fits where it has as many ranks as the
communicator and r stands at the communicator's own rank in it. Groups with the same ranks have the same name here ("dp_cp, dp"),
because nothing printed tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from analysis.theory.layout import GROUP_KINDS, ParallelSizes, groups

_OLD = {"ep_independent", "tp_ep_independent", "dp_independent_ep"}
LARGEST_WORLD = 65_536


def name_of(sizes: ParallelSizes | None, rank: int | None, ranks: int, own_rank: int | None, members: Iterable[int] = ()) -> str | None:
    """The kinds that fit, joined by commas; `world` for all ranks; null where the sizes or the rank are unknown or nothing fits."""
    if sizes is None or rank is None or not 0 <= rank < sizes.world_size or sizes.world_size > LARGEST_WORLD:
        return None
    found = []
    for kind in GROUP_KINDS:
        if (kind in _OLD) == sizes.one_grid or kind in ("tp", "cp", "dp", "pp", "dp_cp", "tp_pp_model_parallel"):
            group = _group_of(kind, sizes).get(rank, ())
            if len(group) == ranks and (own_rank is None or group[own_rank:own_rank + 1] == (rank,)) and set(members) <= set(group):
                found.append(kind)
    if ranks == sizes.world_size:
        found.insert(0, "world")
    return ", ".join(dict.fromkeys(found)) or None


@lru_cache(maxsize=64)
def _group_of(kind: str, sizes: ParallelSizes) -> dict[int, tuple[int, ...]]:
    return {rank: tuple(group) for group in groups(kind, sizes) for rank in group}
