"""Rules on communication: a communicator set up late that may not have fitted, and settings of its libraries that are known to harm.

Sources: NCCL connects at first use and allocates with cudaMalloc, which stalls the device (methods/communication.md); the settings are found by
`analysis.nccl_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings.model import Finding, Rule, Seen
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
                      "device and can hang the collective. Use it once before the first step.", (worst.source,))


def _settings(seen: Seen) -> Iterator[Finding]:
    found = seen.overview.communication
    for one in found.warnings if found else ():
        yield Finding(one.id, "note" if one.id == "nccl_connects_at_init" else "warning", "proven", one.sentence, (one.source,) if one.source else ())


RULES = (
    Rule("late_communicator", "A communicator set up after the first step", _SOURCE, _late),
    Rule("communication_settings", "Settings of NCCL and the allocator known to harm", _SOURCE, _settings),
)
