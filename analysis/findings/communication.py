"""Rules on communication: a communicator set up late that may not have fitted, and settings of its libraries that are known to harm.

Sources: NCCL connects at first use and allocates with cudaMalloc, which stalls the device (methods/communication.md); the settings are found by
`analysis.communication.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analysis.findings.catalogue import advise
from analysis.findings.model import Finding, Rule, Seen, Severity
from analysis.verdict import size_text

_SOURCE = "methods/communication.md"


def _late(seen: Seen) -> Iterator[Finding]:
    found = seen.overview.communication
    short = [one for one in found.late if one.exceeds] if found else []
    if short:
        worst = max(short, key=lambda one: one.upper_bytes - (one.headroom_bytes or 0))
        who = "an unnamed rank" if worst.rank is None else f"rank {worst.rank}"
        yield Finding("late_communicator", "warning", "possible", f"A communicator of {worst.ranks} ranks was set up after the first step on {who}: "
                      f"it may need up to {size_text(worst.upper_bytes)} and {size_text(worst.headroom_bytes)} was left; the allocation stalls the "
                      "device and can hang the collective. Use it once before the first step.", (worst.source,), *advise(seen, "communication"))


def _warned(id_: str, severity: Severity) -> Callable[[Seen], Iterator[Finding]]:
    def look(seen: Seen) -> Iterator[Finding]:
        found = seen.overview.communication
        for one in found.warnings if found else ():
            if one.id == id_:
                yield Finding(id_, severity, "proven", one.sentence, (one.source,) if one.source else ())
    return look


RULES = (
    Rule("late_communicator", "A communicator set up after the first step", _SOURCE, _late),
    Rule("expandable_with_max_split", "Expandable segments with max_split_size_mb", _SOURCE, _warned("expandable_with_max_split", "warning")),
    Rule("nccl_value_ignored", "A value that NCCL does not understand", _SOURCE, _warned("nccl_value_ignored", "warning")),
    Rule("nccl_values_differ", "A variable of NCCL that differs between ranks", _SOURCE, _warned("nccl_values_differ", "warning")),
    Rule("nccl_connects_at_init", "Communicators that connect when they are set up", _SOURCE, _warned("nccl_connects_at_init", "note")),
)
