"""Rules on what the artifacts leave open and on the printed theory: ranks not seen, no device figure, a theory far from the measurement."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.coverage import shown_ranks
from analysis.findings.catalogue import advise
from analysis.findings.model import Finding, Rule, Seen
from analysis.verdict import rejects_text, size_text

_FAR = 1.25
_MUCH_OUTSIDE = 6 * 2**30


def _unseen(seen: Seen) -> Iterator[Finding]:
    covered = seen.overview.coverage
    if covered.world_size and len(covered.measured) < covered.world_size:
        missing = f"; of those that print memory, {shown_ranks(covered.missing)} are missing" if covered.missing else ""
        experts = "; expert ranks outside data-parallel rank 0 never print" if seen.moe else ""
        yield Finding("ranks_not_seen", "note", "proven", f"{len(covered.measured)} of {covered.world_size} ranks were measured{missing}{experts}: "
                      "a quiet log proves nothing about the others.", ())


def _no_device(seen: Seen) -> Iterator[Finding]:
    if reason := seen.overview.not_measurable.get("headroom"):
        yield Finding("headroom_unknown", "note", "proven", f"Headroom cannot be judged: {reason}.", ())


def _theory(seen: Seen) -> Iterator[Finding]:
    theory = seen.overview.theory
    far = [one for one in theory.compared if one.printed == "total" and (one.ratio >= _FAR or one.ratio <= 1 / _FAR)] if theory else []
    if theory and far:
        worst = max(far, key=lambda one: max(one.ratio, 1 / one.ratio))
        branch = f" by the {seen.overview.branch.card.branch} branch" if seen.overview.branch else ""
        left = sorted(seen.overview.branch.card.left_out, key=lambda one: -abs(one.bytes))[:2] if seen.overview.branch else []
        why = f"; left out: {', '.join(f'{one.name} {size_text(one.bytes)}' for one in left)}" if left else ""
        sentence = (f"The printed total {size_text(worst.printed_bytes)}{branch} stands against {size_text(worst.measured_bytes)} measured on rank "
                    f"{worst.rank} ({worst.ratio:.2f} times){why}.")
        yield Finding("theory_far_from_measured", "note", "proven", sentence, (theory.source, worst.source))


def _contradicted(seen: Seen) -> Iterator[Finding]:
    for one in seen.overview.branch.card.contradictions if seen.overview.branch else ():
        if one.kind == "mutated_argument":
            continue  # the formula itself writes that argument before the dump: nothing is wrong with the run
        source = seen.overview.branch.source if seen.overview.branch else None
        sentence = f"The printed theory contradicts the arguments: {one.sentence.rstrip('.')}."
        yield Finding("theory_contradicts_arguments", "warning", "proven", sentence, (source,) if source else ())


def _outside(seen: Seen) -> Iterator[Finding]:
    much = [rank for rank in seen.overview.ranks if rank.outside_source == "rank" and (rank.outside_bytes or 0) >= _MUCH_OUTSIDE]
    if much:
        top = max(much, key=lambda rank: rank.outside_bytes or 0)
        advice, useless = advise(seen, "outside")
        yield Finding("much_outside_torch", "warning", "proven", f"{size_text(top.outside_bytes)} lie outside torch on {top.name}: CUDA context, "
                      "communication buffers, other processes. Recompute and allocator settings cannot reach them.", (top.source,), advice, useless)


def _rejected(seen: Seen) -> Iterator[Finding]:
    if seen.overview.rejected:
        yield Finding("not_understood", "note", "proven", f"{rejects_text(seen.overview.rejected)} and could not be read.",
                      tuple(one.source for one in seen.overview.rejects[:3]))


RULES = (
    Rule("ranks_not_seen", "Ranks without a measurement", "methods/headroom.md", _unseen),
    Rule("headroom_unknown", "Headroom cannot be judged", "methods/headroom.md", _no_device),
    Rule("theory_far_from_measured", "The printed total is far from the measured peak", "methods/theory.md", _theory),
    Rule("theory_contradicts_arguments", "The printed theory contradicts the arguments", "methods/branch.md", _contradicted),
    Rule("much_outside_torch", "Much memory outside torch", "methods/communication.md", _outside),
    Rule("not_understood", "Stretches of artifacts that could not be read", "formats.md", _rejected),
)
