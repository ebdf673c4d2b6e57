"""The part of a text report on the expected ledger: expected beside measured by stage, and where the gap goes."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.charts.ledger_rows import fullest
from analysis.reconcile import PARTS
from analysis.report.lines import wrapped
from analysis.rows import Overview

GIB = 2**30


def ledger_lines(overview: Overview) -> Iterator[str]:
    """Expected and measured of each measured stage's fullest rank, the gap's parts in GiB; empty where there is no ledger."""
    ledger = overview.ledger
    if ledger is None or not ledger.gaps:
        return
    against = ledger.gaps[0].against
    yield f"\nExpected beside measured, and where the gap to the {against} {'total' if against == 'printed' else 'peak'} goes, GiB"
    heads = ("steady", "expect.", "peak", "expect.", "gap", "resid.", "activ.", "head", "cached", "outside", "unexpl.")
    yield f"{'stage':>7}{'rank':>6}" + "".join(f"{head:>8}" for head in heads)[1:]
    for one in fullest(ledger)[:24]:
        sizes = (one.allocated_bytes, one.expected_steady_bytes, one.max_allocated_bytes, one.expected_peak_bytes, one.gap_bytes,
                 *(one.parts[name] for name in PARTS))
        yield f"{'?' if one.stage is None else one.stage:>7}{one.rank:>6}" + "".join(f"{_gib(size):>8}" for size in sizes)[1:]
    yield from _why(overview)


def _why(overview: Overview) -> Iterator[str]:
    ledger = overview.ledger
    assert ledger is not None
    for one in ledger.differences:
        parts = ", ".join(f"{name.replace('_', ' ')} {size / GIB:+.2f}" for name, size in list(one.classes.items())[:4])
        measured = "" if one.measured_bytes is None else f" (measured {one.measured_bytes / GIB:+.2f})"
        above = f"stage {one.stage} should peak {one.expected_bytes / GIB:+.2f} GiB{measured} above stage {one.neighbour}"
        yield from wrapped(f"{above}: {parts}", "  ", "    ")
    missing = dict.fromkeys(f"{name.replace('_', ' ')}: {reason}" for gap in ledger.gaps for name, reason in gap.missing.items())
    for text in list(missing)[:4]:
        yield from wrapped(f"not measurable, {text}", "  ", "    ")
    if said := ledger.expected.assumptions:
        more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
        yield from wrapped(f"assumed: {'; '.join(said[:3])}{more}", "  ", "    ")


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"
