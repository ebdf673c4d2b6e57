"""The one sentence of an overview: which rank came closest to its limit, or why that cannot be said.

An out-of-memory error comes first; then the smallest soft headroom; a rank of which nothing outside torch is known, if the
bound of what is left to it is smaller still; where no capacity is known, the fullest rank. The sentence never says more than the evidence beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.limits import LEAST_OUTSIDE_BYTES
from analysis.rows import Coverage, Device, Level, Near, Oom, Rank, Source, Verdict

GIB = 2**30
WORDS: dict[Level, str] = {"oom": "Out of memory", "near": "Near the limit", "undetermined": "Undetermined", "insufficient": "Too few steps",
                           "unknown": "Not measured", "clear": "Clear"}
"""Each verdict in a few words, the same on every page."""
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(size: float | None) -> str:
    """Bytes for a reader: three figures or more, `1.94 GiB`, `79.2 GiB`, `512 MiB`; `-` where unknown."""
    if size is None:
        return "-"
    for unit, name in _UNITS:
        if abs(size) >= unit:
            value = size / unit
            return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0}f} {name}"
    return f"{size:.0f} B"


def rejects_text(count: int) -> str:
    """How many stretches of text were rejects."""
    return "1 stretch looked like a record" if count == 1 else f"{count:,} stretches looked like records"


def verdict(ranks: Sequence[Rank], near: Sequence[Near], ooms: Sequence[Oom], coverage: Coverage, devices: Sequence[Device] = ()) -> Verdict:
    """The verdict on one attempt."""
    if ooms:
        return _died(ooms)
    known = [rank for rank in ranks if rank.soft_headroom_bytes is not None]
    bounded = [rank for rank in ranks if rank.headroom_bound_bytes is not None and rank.soft_headroom_bytes is None]
    closest = min(known, key=lambda rank: rank.soft_headroom_bytes or 0, default=None)
    bound = min(bounded, key=lambda rank: rank.headroom_bound_bytes or 0, default=None)
    if closest and not (bound and _left_at_most(bound) < (closest.soft_headroom_bytes or 0)):
        return _closest(closest, near, coverage, unknown=len(ranks) - len(known))
    if bound:
        return _bounded(bound, near)
    return _fullest(ranks) if ranks else _device(devices)


def _device(devices: Sequence[Device]) -> Verdict:
    """Without any rank's own figures: the fullest device, which tells nothing about torch's share."""
    told = [one for one in devices if one.left_bytes is not None]
    if not told:
        return Verdict("unknown", "Cannot judge: no rank's memory is in the artifacts.", ())
    top = min(told, key=lambda one: one.left_bytes or 0)
    where = f" of host {top.host}" if top.host else ""
    return Verdict("undetermined", f"Device {top.device}{where} was the fullest by {top.source}: {size_text(top.used_bytes)} used of "
                   f"{size_text(top.total_bytes)}; no rank's own figures are in the artifacts, so no headroom of a rank can be said.",
                   (top.read_at,))


def _died(ooms: Sequence[Oom]) -> Verdict:
    first = ooms[0]
    unnamed = f"a process ({first.rank_label})" if first.rank_label else "a process whose rank is not told"
    who = unnamed if first.rank is None else f"rank {first.rank}"
    who += "" if first.stage is None else f" (stage {first.stage})"
    when = "" if first.iteration is None else f" at iteration {first.iteration}"
    asked, free, capacity = (first.numbers.get(name) for name in ("requested_bytes", "free_bytes", "capacity_bytes"))
    said = f": it asked for {size_text(asked)}" if asked is not None else ""
    said += f" with {size_text(free)} free" if said and free is not None else ""
    said += f" of {size_text(capacity)}" if said and capacity is not None else ""
    others = f"; {len(ooms) - 1} more out-of-memory message{'s' * (len(ooms) > 2)}" if len(ooms) > 1 else ""
    return Verdict("oom", f"{who[0].upper()}{who[1:]} ran out of memory{when}{said}{others}.", tuple(one.source for one in ooms[:3]))


def _closest(rank: Rank, near: Sequence[Near], coverage: Coverage, *, unknown: int) -> Verdict:
    judged = next((one for one in near if one.rank == rank.rank), None)
    level: Level = "insufficient"
    if judged and judged.kind:
        level = "near"
    elif unknown:
        level = "undetermined"
    elif judged and judged.near == "clear":
        level = "clear"
    close = _how_near(judged)
    sentence = (f"{_name(rank)} came closest: {size_text(rank.soft_headroom_bytes)} of soft headroom of {size_text(rank.capacity_bytes)}, "
                f"{size_text(rank.hard_headroom_bytes)} of hard headroom{close}")
    if (rank.hard_headroom_bytes or 0) < 0:
        sentence += "; more was live than this capacity holds, so it is not the device's"
    sentence += f"; {unknown} measured rank{'s' * (unknown > 1)} without a known headroom" if unknown else ""
    if coverage.world_size and coverage.world_size > len(coverage.measured):
        sentence += f"; {coverage.world_size - len(coverage.measured)} of {coverage.world_size} ranks were not measured"
    return Verdict(level, sentence + ".", _places(rank))


def _left_at_most(rank: Rank) -> int:
    return (rank.headroom_bound_bytes or 0) - LEAST_OUTSIDE_BYTES


def _how_near(judged: Near | None) -> str:
    if judged is None or judged.kind is None:
        return ""
    least = "at least " if judged.unknown_steps else ""
    often = f" in {least}{judged.near_steps} of {judged.steps} steps" if judged.steps and judged.steps > 1 else ""
    return f", near the limit{often}" + (" by cached memory only" if judged.kind == "cache" else "")


def _bounded(rank: Rank, near: Sequence[Near]) -> Verdict:
    judged = next((one for one in near if one.rank == rank.rank), None)
    sentence = f"{_name(rank)} came closest: torch reserved {size_text(rank.max_reserved_bytes)} of {size_text(rank.capacity_bytes)}"
    if judged and judged.kind:
        return Verdict("near", f"{sentence}, so at most {size_text(_left_at_most(rank))} are left: near the limit.", _places(rank))
    return Verdict("undetermined", f"{sentence}, so at most {size_text(_left_at_most(rank))} are left; what lies outside torch is in no "
                   "artifact (run with --log-device-memory-used).", _places(rank))


def _fullest(ranks: Sequence[Rank]) -> Verdict:
    held = [rank for rank in ranks if rank.max_reserved_bytes is not None]
    if not held:
        top = max(ranks, key=lambda rank: rank.max_allocated_bytes or 0)
        return Verdict("undetermined", f"Cannot judge: no reserved memory and no capacity in the artifacts. {_name(top)} allocated most: "
                       f"{size_text(top.max_allocated_bytes)} at its peak.", _places(top))
    top = max(held, key=lambda rank: (rank.max_reserved_bytes or 0, rank.max_allocated_bytes or 0))
    return Verdict("undetermined", f"Cannot judge how close: no capacity in the artifacts, give --capacity. {_name(top)} is the fullest: "
                   f"{size_text(top.max_reserved_bytes)} reserved, {size_text(top.max_allocated_bytes)} allocated at its peak.", _places(top))


def _name(rank: Rank) -> str:
    return rank.name[0].upper() + rank.name[1:]


def _places(rank: Rank) -> tuple[Source, ...]:
    return (rank.source,) if rank.source == rank.peak_source else (rank.peak_source, rank.source)
