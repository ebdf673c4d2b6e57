"""The overview of a run made by hand: every number is worked out beside it."""

from __future__ import annotations

import json

import pytest

from analysis.capacity import given_capacity
from analysis.database import from_rows
from analysis.overview import overview
from ingest.errors import LedgerError
from tests.analysis.made import GIB, SEEN, dense_run, memory, shown


def of(rows, **options):
    return overview(shown(rows, "r", "r.log"), "r", **options)


def test_without_capacity_the_fullest_rank_is_named_and_nothing_is_judged():
    found = of(dense_run())
    assert found.verdict.level == "undetermined"
    assert found.verdict.sentence == ("Cannot judge how close: no capacity in the artifacts, give --capacity. Rank 0 (stage 0) is the fullest: "
                                      "32.0 GiB reserved, 24.0 GiB allocated at its peak.")
    assert [str(one) for one in found.verdict.evidence] == ["r.log:100"]
    assert {one.near for one in found.near_limit} == {"undetermined"}
    assert found.not_measurable["headroom"].startswith("no capacity")


def test_headroom_is_capacity_less_outside_less_peaks():
    found = of(dense_run(), capacity=given_capacity("40GiB"))
    last = next(rank for rank in found.ranks if rank.rank == 13)
    assert (last.outside_bytes, last.outside_source) == (2 * GIB, "stage")
    assert (last.soft_headroom_bytes, last.hard_headroom_bytes) == (7 * GIB, 15 * GIB)
    first = next(rank for rank in found.ranks if rank.rank == 0)
    assert (first.soft_headroom_bytes, first.headroom_bound_bytes) == (None, 8 * GIB)
    assert found.verdict.sentence.startswith("Rank 12 (stage 3) came closest: 7.00 GiB of soft headroom of 40.0 GiB, 15.0 GiB of hard headroom")
    assert "6 measured ranks without a known headroom; 8 of 16 ranks were not measured" in found.verdict.sentence
    assert found.verdict.level == "undetermined"


def test_a_bound_is_said_where_nothing_outside_torch_was_measured():
    rows = dense_run()
    del rows["rank_memory"][6]["device_used_bytes"]
    found = of(rows, capacity=given_capacity("40GiB"))
    assert "torch reserved 32.0 GiB of 40.0 GiB, so at most 7.50 GiB are left" in found.verdict.sentence
    assert {one.near for one in found.near_limit} == {"undetermined"}
    near = of(rows, capacity=given_capacity("34GiB"))
    assert (near.verdict.level, near.near_limit[0].kind, near.near_limit[0].near) == ("near", "cache", "insufficient")


def test_a_rank_whose_bound_is_below_every_known_headroom_is_named():
    rows = dense_run()
    rows["rank_memory"][0] |= {"reserved_bytes": 36 * GIB, "max_reserved_bytes": 36 * GIB}
    found = of(rows, capacity=given_capacity("40GiB")).verdict
    assert found.sentence.startswith("Rank 0 (stage 0) came closest: torch reserved 36.0 GiB of 40.0 GiB, so at most 3.50 GiB are left")
    assert found.level == "undetermined"


def test_first_and_last_stage_against_the_median_of_the_middle():
    found = of(dense_run())
    sized = {(one.which, one.measure): (one.surplus_bytes / GIB, one.surplus_ratio, one.middle_stages) for one in found.surpluses}
    assert sized["first", "max_allocated_bytes"] == (4, pytest.approx(0.2), 2)
    assert sized["last", "allocated_bytes"] == (1.5, pytest.approx(0.15), 2)
    assert [(one.stage, one.ranks, one.max_reserved_bytes // GIB) for one in found.stages] == [(0, 2, 32), (1, 2, 28), (2, 2, 28), (3, 2, 31)]


def test_coverage_names_only_what_was_seen():
    rows = dense_run()
    rows["rank_memory"] = [row for row in rows["rank_memory"] if row["rank"] != 5]
    found = of(rows).coverage
    assert found.ranks == tuple(rank for rank in SEEN if rank != 5)
    assert (found.expected, found.missing) == (SEEN, (5,))
    assert found.sentence == "seen 7 of 16 ranks; only the 8 of data-parallel rank 0 print memory, 1 of them missing"
    rows["oom_events"] = [{"rank": 6, "line": 300}]
    assert of(rows).coverage.sentence.startswith("seen 8 of 16 ranks; memory of 7")


def test_invalid_records_and_records_without_a_rank_never_enter_a_stage():
    rows = dense_run()
    rows["rank_memory"] += [memory(0, line=700, peak=70, reserved=79, valid=False), memory(None, line=701, peak=60, reserved=61, rank_label="last")]
    found = of(rows)
    assert max(stage.max_reserved_bytes for stage in found.stages) == 32 * GIB
    assert (found.coverage.unplaced_records, found.coverage.invalid_records) == (1, 1)
    alone = next(rank for rank in found.ranks if rank.rank is None)
    assert (alone.rank_label, alone.stage, alone.name) == ("last", None, "an unnamed rank (last)")
    assert len(found.near_limit) == 8


def test_the_last_training_record_is_steady_and_the_peak_is_over_all():
    rows = dense_run()
    rows["rank_memory"] += [memory(0, line=800, allocated=13, peak=26, reserved=35, iteration=20),
                            memory(0, line=900, allocated=20, peak=30, reserved=38, iteration=30, phase="after_save_checkpoint")]
    rank = of(rows).ranks[0]
    assert (rank.allocated_bytes, rank.iteration, rank.source.line) == (13 * GIB, 20, 800)
    assert (rank.max_allocated_bytes, rank.peak_source.line, rank.records) == (30 * GIB, 900, 3)


def test_out_of_memory_comes_first_and_a_case_needs_proof():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 12, "iteration": 31, "requested_bytes": 2 * GIB, "free_bytes": GIB, "capacity_bytes": 40 * GIB, "kind": "cuda",
                           "allocated_bytes": 30 * GIB, "reserved_unallocated_bytes": 4 * GIB, "line": 400},
                          {"rank": 1, "requested_bytes": 90 * GIB, "capacity_bytes": 40 * GIB, "kind": "cuda", "line": 410},
                          {"kind": "host", "line": 420}]
    found = of(rows)
    assert found.verdict.level == "oom"
    assert found.verdict.sentence == ("Rank 12 (stage 3) ran out of memory at iteration 31: it asked for 2.00 GiB with 1.00 GiB free of 40.0 GiB; "
                                      "2 more out-of-memory messages.")
    assert [one.case for one in found.ooms] == ["B", "D", "F"]
    assert (found.ooms[0].missing, found.ooms[1].missing) == (("snapshot",), ("free_bytes", "allocated_bytes", "reserved_bytes"))
    last = next(rank for rank in found.ranks if rank.rank == 12)
    assert (last.outside_bytes, last.outside_source) == (2 * GIB, "rank")
    assert next(one for one in found.near_limit if one.rank == 12).reason.startswith("it ran out of memory")


def test_outside_of_a_rank_that_died_comes_from_its_message():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 0, "free_bytes": GIB, "capacity_bytes": 40 * GIB, "allocated_bytes": 30 * GIB,
                           "reserved_unallocated_bytes": 4 * GIB}]
    rank = of(rows).ranks[0]
    assert (rank.outside_bytes, rank.soft_headroom_bytes) == (5 * GIB, 3 * GIB)


def test_printed_theory_stands_beside_rank_0_and_the_fullest():
    rows = dense_run()
    rows["theory_reports"] = [{"iteration": 10, "weight_and_optimizer_bytes": 10 * GIB, "activation_bytes": 2 * GIB, "total_bytes": 12 * GIB,
                               "line": 80, "shape": "full", "producer": "other", "text": "Theoretical memory footprints: ..."}]
    rows["rank_memory"][1]["max_allocated_bytes"] = 25 * GIB
    theory = of(rows).theory
    assert [(one.printed, one.rank, round(one.ratio, 3)) for one in theory.compared] == [
        ("total", 0, 2.0), ("total", 1, 2.083), ("weight and optimizer", 0, 1.2)]
    assert str(theory.source) == "r.log:80"
    assert of(rows).branch.card.branch == "undecided"


def test_steps_with_interval_peaks_are_counted_one_by_one():
    rows = dense_run()
    rows["rank_memory"] = [memory(3, line=step, iteration=step, scope="interval", peak=20, reserved=38 if step % 2 else 20,
                                  device_used_bytes=40 * GIB if step == 1 else None) for step in range(1, 11)]
    rows["memory_stats"] = [{"rank": 3, "iteration": step, "scope": "interval", "num_alloc_retries": 4 if step >= 8 else 1, "valid": True}
                            for step in range(1, 11)]
    one = of(rows, capacity=given_capacity("41GiB")).near_limit[0]
    assert (one.near, one.kind, one.near_steps, one.steps) == ("occasional", "cache", 6, 10)
    assert 0.2 < one.low < 0.6 < one.high < 0.9


def test_maxima_since_the_start_clear_every_step_or_prove_one():
    rows = dense_run()
    clear = of(rows, capacity=given_capacity("50GiB")).near_limit
    assert [(one.near, one.near_steps, one.steps) for one in clear if one.rank == 12] == [("clear", 0, 10)]
    close = of(rows, capacity=given_capacity("34GiB")).near_limit
    assert [(one.near, one.kind, one.near_steps) for one in close if one.rank == 12] == [("insufficient", "cache", 1)]
    rows["job_events"] = [{"event": "checkpoint_loaded", "iteration": 8}]
    assert next(one for one in of(rows, capacity=given_capacity("50GiB")).near_limit if one.rank == 12).near == "insufficient"


def test_the_usual_capacity_of_a_named_device_is_used_and_named():
    rows = dense_run()
    rows["runs"][0]["gpu_name"] = "NVIDIA A100-SXM4-80GB"
    rank = of(rows).ranks[-1]
    assert (rank.capacity_bytes, rank.capacity_source) == (int(79.2 * GIB), "usual for A100-80")


def test_attempts_are_told_apart_and_named():
    rows = dense_run()
    rows["rank_memory"].append(memory(0, line=999, run_index=1))
    found = of(rows)
    assert (found.run_index, found.attempts, len(found.ranks)) == (1, (0, 1), 1)
    assert found.not_measurable["stages"] == "the world size is in no artifact, so no rank can be placed on a stage"
    assert len(of(rows, run_index=0).ranks) == 8
    with pytest.raises(LedgerError, match=r"no attempt 7 — it has r#0, r#1"):
        of(rows, run_index=7)


def test_devices_without_a_rank_are_told_of_and_judge_no_rank():
    rows = {"device_memory": [{"device": 3, "host": "n1", "used_bytes": used * GIB, "total_bytes": 80 * GIB, "source": "nvidia-smi",
                               "line": used} for used in (70, 76, 71)]}
    found = of(rows)
    assert found.verdict.sentence.startswith("Device 3 of host n1 was the fullest by nvidia-smi: 76.0 GiB used of 80.0 GiB; no rank's own figures")
    assert (found.devices[0].left_bytes, found.devices[0].readings, str(found.devices[0].read_at)) == (4 * GIB, 3, "r.log:76")
    assert (found.ranks, found.coverage.ranks, found.records) == ((), (), {"device_memory": 3})


def test_stages_say_which_layers_they_hold():
    assert [one.holds for one in of(dense_run()).stages] == ["8 layers, embedding", "8 layers", "8 layers", "8 layers, head"]
    rows = dense_run()
    rows["run_args"].pop()
    assert [one.holds for one in of(rows).stages] == [None] * 4


def test_sizes_that_only_arguments_tell_are_facts_of_the_attempt():
    rows = dense_run()
    rows["runs"] = []
    facts = from_rows(rows).execute("SELECT world_size, pipeline_model_parallel_size, context_parallel_size FROM run_attempts").fetchall()
    assert facts == [(16, 4, None)]


def test_an_unknown_run_names_those_near_it():
    with pytest.raises(LedgerError, match="no run 'dense_7b' — near it: dense_7b5"):
        overview(from_rows(dense_run(), "dense_7b5"), "dense_7b")


def test_sizes_that_contradict_one_another_leave_stages_unknown_and_say_so():
    rows = dense_run()
    rows["runs"][0]["world_size"] = 18
    rows["run_args"] = []
    found = of(rows)
    assert [one.stage for one in found.stages] == [None]
    assert found.not_measurable["stages"].startswith("the sizes contradict one another: argument world_size is 18")


def test_stages_of_the_real_runs_hold_10_to_18_percent_more_at_both_ends(shared):
    """Figures of the logs as the shared folder lists them; allocated after a step, each stage by its fullest rank."""
    expected = json.loads((shared / "data/logs/real/expected.json").read_text())
    for name, stages, first, last in (("dense_tp4_pp8.out.gz", 8, 10.4, 9.8), ("dense_tp4_pp32.out.gz", 32, 18.3, 17.2)):
        own = [{**row, "valid": True, "phase": "train", "scope": "cumulative"} for row in expected[name]["rank_memory"]]
        facts = {"world_size": 4 * stages, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": stages}
        found = of({"runs": [facts], "rank_memory": own})
        assert len(found.stages) == stages
        sized = {(one.which, one.measure): round(100 * one.surplus_ratio, 1) for one in found.surpluses}
        assert (sized["first", "allocated_bytes"], sized["last", "allocated_bytes"]) == (first, last)
