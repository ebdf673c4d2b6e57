"""Rules on out-of-memory errors: one finding a case, with what would have let the request fit and what could not."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings.catalogue import advise
from analysis.findings.model import Confidence, Finding, Rule, Seen
from analysis.rows import Oom
from analysis.verdict import size_text

_SYMPTOMS = {"A": "activations", "B": "fragmentation", "B1": "fragmentation", "B2": "streams", "B3": "graph_pools", "C": "outside",
             "D": "giant", "E": "not_torch", "F": "host", "G": "cap"}
_LARGE = 0.2
"""A request of this share of the device is a class of its own."""
_CANNOT = {"A": "allocator settings cannot help", "B": "more recompute cannot help", "C": "recompute and allocator settings cannot help",
           "D": "allocator settings cannot help", "E": "fewer activations alone cannot help", "F": "device settings cannot help"}


def _died(seen: Seen) -> Iterator[Finding]:
    cases: dict[str, list[Oom]] = {}
    for one in seen.overview.ooms:
        cases.setdefault(one.case, []).append(one)
    for case, events in cases.items():
        first = next((one for one in events if one.first_failure), events[0])
        symptom = _symptom(seen, case, first)
        advice, useless = advise(seen, symptom) if symptom else ((), ())
        confidence: Confidence = "likely" if case == "unknown" or set(first.missing) - {"snapshot"} else "proven"
        cannot = f"; {_CANNOT[case[0]]}" if case[0] in _CANNOT else ""
        yield Finding(f"oom_{case.lower()}", "error", confidence if case != "unknown" else "possible",
                      f"{_who(first)} ran out of memory{_asked(first)}: {first.reason}{cannot}.{_others(events)}",
                      tuple(one.source for one in events[:3]), advice, useless)


def _symptom(seen: Seen, case: str, event: Oom) -> str | None:
    """A full device that dies before its first reading is full of what stays; a request that is itself large is the one to cut up."""
    if case != "A":
        return _SYMPTOMS.get(case)
    if _large(event):
        return "giant"
    begun = seen.overview.ranks or event.iteration or seen.overview.configuration.last_iteration
    return "activations" if begun else "resident"


def _large(event: Oom) -> bool:
    asked, capacity = event.numbers.get("requested_bytes"), event.numbers.get("capacity_bytes")
    return bool(asked and capacity and asked >= _LARGE * capacity)


def _who(one: Oom) -> str:
    return f"Rank {one.rank}" if one.rank is not None else "A process whose rank is not told"


def _asked(one: Oom) -> str:
    asked = one.numbers.get("requested_bytes")
    when = f" at iteration {one.iteration}" if one.iteration is not None else ""
    share = f", {asked / one.numbers['capacity_bytes']:.0%} of the device" if asked is not None and _large(one) else ""
    return when + (f", asking for {size_text(asked)}{share}" if asked is not None else "")


def _others(events: list[Oom]) -> str:
    return "" if len(events) == 1 else f" {len(events) - 1} more of this kind."


def _starts(seen: Seen) -> Iterator[Finding]:
    tried = seen.overview.starts
    if tried and tried.died:
        if tried.low is None or tried.high is None:
            sentence = (f"{tried.died} of {tried.starts} starts of this run ran out of memory; no chance follows, since the starts differ in "
                        f"{', '.join(tried.changed)}.")
            yield Finding("starts_die", "warning", "proven", sentence, (tried.source,) if tried.source else ())
            return
        sentence = (f"{tried.died} of {tried.starts} starts of this run ran out of memory: the chance of a start lies between {tried.low:.0%} and "
                    f"{tried.high:.0%} (95 %). What one start survived says little about the next.")
        yield Finding("starts_die", "warning", "proven", sentence, (tried.source,) if tried.source else ())


RULES = (Rule("starts_die", "The same run dies in some of its starts", "methods/oom.md", _starts),
         Rule("oom", "A request did not fit: the case by counterfactual", "methods/oom.md", _died),)
