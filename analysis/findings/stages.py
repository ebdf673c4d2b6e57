"""Rules on stages: a first or last stage above the middle, uneven layouts, and an estimate that averages them."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings.catalogue import advise
from analysis.findings.model import Finding, Rule, Seen
from analysis.verdict import size_text

_HEAVY = 0.05
_SOURCE = "methods/theory.md"


def _first_or_last(seen: Seen) -> Iterator[Finding]:
    for which, symptom, why in (("first", "first_stage", "the embedding and the most micro-batches in flight"),
                                ("last", "last_stage", "the head, the logits and the loss")):
        above = [one for one in seen.overview.surpluses if one.which == which and one.surplus_ratio >= _HEAVY]
        if not above:
            continue
        top = max(above, key=lambda one: one.surplus_ratio)
        advice, useless = advise(seen, symptom)
        measures = ", ".join(f"{one.measure.replace('_', ' ')} {size_text(one.surplus_bytes)} ({one.surplus_ratio:+.0%})" for one in above)
        stage = next((one for one in seen.overview.ranks if one.stage == top.stage), None)
        yield Finding(f"{which}_stage_heavy", "warning", "proven", f"The {which} stage holds more than the middle ones: {measures}. It has {why}.",
                      (stage.peak_source,) if stage else (), advice, useless)


def _uneven(seen: Seen) -> Iterator[Finding]:
    held = {one.stage: one.max_allocated_bytes for one in seen.overview.stages if one.stage is not None and one.max_allocated_bytes}
    if len(held) < 2:
        return
    mean, most = sum(held.values()) / len(held), max(held.values())
    if most >= 1.2 * mean:
        stage = max(held, key=lambda one: held[one])
        sentence = (f"Stage {stage} peaks at {size_text(most)}, {most / mean - 1:.0%} above the mean of the stages: an estimate that averages them "
                    f"reads {1 - mean / most:.1%} low where it matters.")
        yield Finding("stages_uneven", "note", "proven", sentence, tuple(rank.peak_source for rank in seen.overview.ranks if rank.stage == stage)[:1])


RULES = (
    Rule("stage_heavy", "The first or last stage stands above the middle", _SOURCE, _first_or_last),
    Rule("stages_uneven", "Stages differ: an average hides the one that dies", _SOURCE, _uneven),
)
