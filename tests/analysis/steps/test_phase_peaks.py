"""Which phase peaked: told by labels and by events, exact or only bounded, above or below training."""

from __future__ import annotations

from analysis.database import from_rows
from analysis.overview import overview
from analysis.report.keys import as_json, as_markdown
from analysis.report.text import as_text
from analysis.steps.attempt_steps import attempt_steps
from analysis.steps.phase_peaks import phase_peaks
from tests.analysis.made import GIB


def reading(iteration, peak, line, *, phase="train", scope="interval", rank=0):
    return {"rank": rank, "iteration": iteration, "phase": phase, "scope": scope, "valid": True, "line": line, "allocated_bytes": 5 * GIB,
            "max_allocated_bytes": peak * GIB, "reserved_bytes": 60 * GIB, "max_reserved_bytes": 60 * GIB}


def steps(peaks, scope="interval"):
    return [reading(step + 1, peak, 10 * (step + 1), scope=scope) for step, peak in enumerate(peaks)]


def found(**rows):
    connection = from_rows(rows)
    with attempt_steps(connection, "file", 0):
        return {one.phase: one for one in phase_peaks(connection, "file", 0)}


def iterations(count, skipped=0):
    return [{"iteration": step + 1, "skipped": int(step < skipped), "phase": "train", "line": 10 * step + 9} for step in range(count)]


def test_a_plain_run_has_its_first_optimizer_step_only():
    seen = found(rank_memory=steps([30, 20, 20, 20]), iterations=iterations(4))
    (one,) = seen.values()
    assert (one.phase, one.iteration, one.peak_bytes, one.over_bytes, one.exact) == ("first optimizer step", 1, 30 * GIB, 10 * GIB, True)
    assert one.sentence == "first optimizer step: 30.0 GiB on rank 0, iteration 1, 10.0 GiB above its training peak"
    assert found(rank_memory=steps([30, 20, 20])) == {}


def test_skipped_steps_are_no_optimizer_steps():
    one = found(rank_memory=steps([15, 15, 30, 20, 20]), iterations=iterations(5, skipped=2))["first optimizer step"]
    assert (one.iteration, one.over_bytes) == (3, 10 * GIB)


def test_what_happened_before_the_steps_that_are_read_is_not_put_into_the_first_of_them():
    """Of a long run its last steps are read: neither the first optimizer step nor the save of step 4 lies in them, that of step 18 does."""
    saves = [{"event": "checkpoint_saved", "iteration": step, "line": 10 * step + 5} for step in (4, 18)]
    connection = from_rows({"rank_memory": steps([20] * 20)[16:], "iterations": iterations(20), "job_events": saves})
    with attempt_steps(connection, "file", 0):
        told = {(one.phase, one.iteration) for one in phase_peaks(connection, "file", 0, since=17)}
        assert told == {("checkpoint save", 19)}
        assert {one.phase for one in phase_peaks(connection, "file", 0)} == {"checkpoint save", "first optimizer step"}


def test_a_checkpoint_counts_in_the_reading_after_it():
    """Saved after step 3 (line 35): step 3 was read at line 30, so what the save took is in the reading of step 4."""
    saved = [{"event": "checkpoint_saved", "iteration": 3, "line": 35}]
    one = found(rank_memory=steps([20, 20, 20, 44, 20]), job_events=saved)["checkpoint save"]
    assert (one.iteration, one.peak_bytes, one.training_bytes, one.told_by) == (4, 44 * GIB, 20 * GIB, "event")
    within = [{"event": "checkpoint_saved", "iteration": 3, "line": 25}]
    assert found(rank_memory=steps([20, 20, 44, 20, 20]), job_events=within)["checkpoint save"].iteration == 3


def test_labels_tell_the_phase_and_a_maximum_that_did_not_rise_is_a_bound():
    """Maxima since the start: the first save raised nothing above the 30 GiB that were there, the second did."""
    memory = [reading(1, 30, 10, scope="cumulative"), reading(2, 30, 20, scope="cumulative"),
              reading(2, 30, 21, phase="after_save_checkpoint", scope="cumulative")]
    one = found(rank_memory=memory)["checkpoint save"]
    assert (one.exact, one.over_bytes) == (False, 0)
    assert one.sentence.startswith("checkpoint save: at most 30.0 GiB on rank 0, iteration 2; a maximum")
    memory.append(reading(4, 37, 41, phase="after_save_checkpoint", scope="cumulative"))
    one = found(rank_memory=memory)["checkpoint save"]
    assert (one.exact, one.iteration, one.over_bytes, one.told_by) == (True, 4, 7 * GIB, "label")
    assert "checkpoint save" not in found(rank_memory=[reading(2, 30, 21, phase="before_save_checkpoint")])


def test_every_phase_has_its_labels_and_people_s_own_labels_none():
    labels = {"Before load_checkpoint": "checkpoint load", "evaluation": "evaluation", "after offload": "offload", "wake_up weights": "offload",
              "after model init": "initialisation", "cuda graph capture": "CUDA graph capture", "After scale_mask_softmax": None, "after train": None}
    for label, phase in labels.items():
        seen = found(rank_memory=[reading(1, 20, 1), reading(2, 33, 2, phase=label)])
        assert set(seen) == ({phase} if phase else set()), label


def test_the_fullest_rank_of_a_phase_is_named():
    memory = [reading(step, 20, step, rank=rank) for rank in range(3) for step in (1, 2)]
    memory += [reading(3, 30 + rank % 2, 3, rank=rank, phase="evaluation") for rank in range(3)]
    one = found(rank_memory=memory)["evaluation"]
    assert (one.rank, one.peak_bytes, one.readings, one.source.line) == (1, 31 * GIB, 3, 3)


def test_a_first_reading_spans_the_start():
    one = found(rank_memory=steps([30, 30, 30], "cumulative"), iterations=iterations(3))["first optimizer step"]
    assert (one.exact, one.training_bytes, one.over_bytes) == (False, None, None)
    assert "no training step of that rank tells its own peak" in one.sentence


def test_every_face_tells_it():
    rows = {"rank_memory": steps([20, 20, 20, 44, 20]), "job_events": [{"event": "checkpoint_saved", "iteration": 3, "line": 35}]}
    seen = overview(from_rows(rows, run="made"), "made")
    (one,) = as_json(seen)["phase_peaks"]
    assert (one["phase"], one["over_bytes"], one["source"]["line"]) == ("checkpoint save", 24 * GIB, 40)
    for text in (as_text(seen), as_markdown(seen)):
        assert "24.0 GiB above its training peak" in " ".join(text.split())
    assert "phase_above_training" in {finding.id for finding in seen.findings}
