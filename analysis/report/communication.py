"""The part of a text report on communication: each rank's interval beside what was measured outside torch, communicators, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from analysis.communication.rows import CommunicatorUse, RankCommunication
from analysis.coverage import shown_ranks
from analysis.report.lines import places, wrapped
from analysis.rows import Overview
from analysis.verdict import size_text

GIB = 2**30
SHOWN = 12


def communication_lines(overview: Overview) -> Iterator[str]:
    """The section; nothing where no artifact shows any communication."""
    found = overview.communication
    if found is None or not (found.ranks or found.warnings or found.late):
        return
    if found.ranks:
        yield "\nCommunication outside torch, GiB"
        yield f"  {'rank':>24}{'lower':>9}{'estimate':>10}{'upper':>9}{'outside':>10}{'unexplained':>13}"
        alike = [list(group) for _, group in groupby(found.ranks, _as_shown)]
        for group in alike[:SHOWN]:
            one = group[0]
            cells = (one.lower_bytes, one.estimate_bytes, one.upper_bytes, one.outside_bytes, one.unexplained_bytes)
            yield f"  {_who(group):>24}" + "".join(f"{_gib(size):>{width}}" for size, width in zip(cells, (9, 10, 9, 10, 13), strict=True))
        if len(alike) > SHOWN:
            yield f"  and {sum(map(len, alike[SHOWN:]))} more ranks"
        yield from (line for one in found.ranks[:1] for line in _beside(one))
    for use in found.communicators[:SHOWN]:
        yield from wrapped(_use(use), "  ", "    ")
    if len(found.communicators) > SHOWN:
        yield f"  and {len(found.communicators) - SHOWN} more kinds of communicators"
    for late in [one for one in found.late if one.exceeds] or found.late[:1]:
        left = "" if late.headroom_bytes is None else f"; {size_text(late.headroom_bytes)} was left there"
        who = "an unnamed rank" if late.rank is None else f"rank {late.rank}"
        yield from wrapped(f"set up after the first step on {who}: a communicator of {late.ranks} ranks ({late.name or 'not named'}), "
                           f"up to {size_text(late.upper_bytes)}{left}", "  ", "    ")
        yield from places((late.source,))
    for warned in found.warnings:
        yield from wrapped(warned.sentence, "  ", "    ")
        yield from places((warned.source,) if warned.source else ())
    for said in found.assumptions:
        yield from wrapped(f"assumed: {said}", "  ", "    ")
    if found.ranks and found.ranks[0].source:
        yield from places((found.ranks[0].source,))


def _beside(one: RankCommunication) -> Iterator[str]:
    """Other libraries and what the lines of allocations add up to, on the first rank."""
    said = [(one.deepep_bytes, "DeepEP buffers by its rule"), (one.hccl_bytes, "HCCL buffers by its rule"),
            (one.allocated_bytes, "device allocations in NCCL's ALLOC lines"), (one.host_bytes, "host allocations there, not on the device"),
            (one.nvls_printed_bytes, "NVLS blocks printed")]
    for size, words in said:
        if size is not None:
            yield f"    {words}: {size_text(size)}" + ("" if one.rank is None else f" (rank {one.rank})")


def _use(one: CommunicatorUse) -> str:
    parts = ", ".join(f"{name.replace('_', ' ')} {size_text(size)}" for name, size in one.protocols.items())
    times = f"{one.communicators} x " if one.communicators > 1 else ""
    where = "" if one.fullest_rank is None else f" on rank {one.fullest_rank}"
    return (f"{times}{one.name or 'not named'}, {one.ranks} ranks, seen on {one.seen_on}: {size_text(one.estimate_bytes)}{where}, at most "
            f"{size_text(one.upper_bytes)}" + (f" ({parts})" if parts else ""))


def _who(group: Sequence[RankCommunication]) -> str:
    numbers = tuple(sorted(one.rank for one in group if one.rank is not None))
    text = shown_ranks(numbers) if numbers else group[0].who
    return text if len(text) <= 24 else f"{text[:20]}..."


def _as_shown(one: RankCommunication) -> tuple[object, ...]:
    sizes = (one.lower_bytes, one.estimate_bytes, one.upper_bytes, one.outside_bytes, one.unexplained_bytes)
    return (*map(_gib, sizes), one.rank is None and one.who)


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"
