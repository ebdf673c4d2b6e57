"""A diff of two attempts in sentences: the peak, what explains it, what is left, and what lies beside torch's allocated bytes."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diff.rows import Change, Diff
from analysis.rows import Overview, Rank
from analysis.verdict import size_text


def sentences(found: Diff, before: Overview, after: Overview) -> Iterator[str]:
    """What a reader should know first: the peak, what explains it, what is left, and what lies beside torch's allocated bytes."""
    old, new = _top(before, "max_allocated_bytes"), _top(after, "max_allocated_bytes")
    change = None
    if old and new:
        change = (new.max_allocated_bytes or 0) - (old.max_allocated_bytes or 0)
        sizes = f"{size_text(new.max_allocated_bytes)} on {new.name} against {size_text(old.max_allocated_bytes)} on {old.name}"
        yield f"The fullest rank of {found.after} peaked {_by(change)} that of {found.before}: {sizes}."
    yield from _explaining(found, change)
    for measure, words in (("outside_bytes", "Outside torch the most is"), ("max_reserved_bytes", "The allocator reserved at most")):
        first, second = _top(before, measure), _top(after, measure)
        if first and second and (moved := getattr(second, measure) - getattr(first, measure)):
            yield f"{words} {size_text(getattr(second, measure))}, {size_text(abs(moved))} {'more' if moved > 0 else 'less'} than before."
    printed = next((one.change_bytes for one in found.theory if one.what == "total_bytes"), None)
    if printed is not None and (printed or change):
        yield f"The printed total moved by {signed(printed)}" + (f", the measured peak by {signed(change)}." if change is not None else ".")


def _explaining(found: Diff, change: int | None) -> Iterator[str]:
    whole = found.explained.together_bytes
    if whole is None or not (whole or change):
        return
    named = [one for one in found.changes if one.explains_bytes and one.name not in found.explained.layout[1:]]
    parts = ", ".join(f"{_what(one, found)} alone {signed(one.explains_bytes or 0)}" for one in named[:5])
    yield f"By the expected ledger the changes move the fullest stage's peak by {signed(whole)}" + (f": {parts}." if parts else ".")
    if change is not None and (left := change - whole):
        yield f"{signed(left)} of the measured change is not in the ledger of the two sets of arguments."


def _what(one: Change, found: Diff) -> str:
    """A change in words; the layout's changes as one."""
    if one.name in found.explained.layout[:1] and found.explained.layout[1:]:
        return f"the layout ({', '.join(found.explained.layout)})"
    return f"{one.name} {one.before or 'unset'} -> {one.after or 'unset'}"


def _top(found: Overview, measure: str) -> Rank | None:
    return max((rank for rank in found.ranks if getattr(rank, measure) is not None), key=lambda rank: int(getattr(rank, measure)), default=None)


def _by(change: int) -> str:
    return "as high as" if not change else f"{size_text(abs(change))} {'above' if change > 0 else 'below'}"


def signed(size: int) -> str:
    """Bytes with their sign: `+2.31 GiB`."""
    return "0 B" if not size else f"{'+' if size > 0 else '-'}{size_text(abs(size))}"
