"""The views on history, on planted fleets: known answers, and the traps of unknown capacity, maxima that never reset, late data and equal names."""

from __future__ import annotations

import random
import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from analysis.database import connect, from_rows, records
from analysis.expected import expect_stages
from analysis.fleet import views as fleet
from analysis.overview import overview
from ingest.lake import Lake
from ingest.pipeline import ingest
from sample_data.make import RUNS
from tests.analysis.fleet.fleet_made import SIZES, START, Fleet
from tests.analysis.made import GIB, shown
from tests.analysis.test_reconcile import MODEL

ROOT = Path(__file__).resolve().parent.parent.parent
TODAY = START.date()


def asked(made: Fleet, query: str):
    return records(shown(made.whole()), query)


def one(made: Fleet, query: str):
    rows = asked(made, query)
    assert len(rows) == 1, rows
    return rows[0]


def test_an_empty_lake_has_every_view():
    connection = from_rows({})
    connection.execute("DELETE FROM artifacts")
    for name in (*fleet.VIEWS, *fleet.WORKED_OUT):
        assert records(connection, f"SELECT * FROM {name}") == []


def test_runs_of_one_name_in_two_clusters_are_two():
    made = Fleet()
    east = made.attempt("train")
    narrow = {"pipeline_model_parallel_size": 2, "world_size": 8}
    west = made.attempt("train", cluster="west", args=narrow, **narrow)
    for rank in range(16):
        made.memory(east, rank, peak=20, reserved=30)
    for rank in range(8):
        made.memory(west, rank, peak=40 + rank, reserved=60)
    rows = {row["cluster"]: row for row in asked(made, "SELECT * FROM fleet_runs")}
    assert {name: (row["ranks_measured"], row["pp"], row["fullest_rank"], row["peak_bytes"]) for name, row in rows.items()} == {
        "east": (16, 4, 0, 20 * GIB), "west": (8, 2, 7, 47 * GIB)}
    stages = {(row["cluster"], row["stage"]): row["n"] for row in asked(made, "SELECT cluster, stage, COUNT(*) AS n FROM fleet_ranks GROUP BY ALL")}
    assert stages == {("east", 0): 4, ("east", 1): 4, ("east", 2): 4, ("east", 3): 4, ("west", 0): 4, ("west", 1): 4}


def test_two_attempts_are_two_rows():
    made = Fleet()
    for run_index, peak in ((0, 20), (1, 25)):
        made.memory(made.attempt("train", run_index), 3, peak=peak, reserved=30)
    assert [(row["run_index"], row["peak_bytes"]) for row in asked(made, "SELECT * FROM fleet_runs ORDER BY run_index")] == [
        (0, 20 * GIB), (1, 25 * GIB)]


def test_verdict_says_no_more_than_is_known():
    made = Fleet()
    cases = {(60, 2, 80): "clear", (76, 2, 80): "near", (60, None, 80): "undetermined", (78.5, None, 80): "near", (60, 2, None): "undetermined"}
    for reserved, outside, total in cases:
        key = made.attempt(str((reserved, outside, total)))
        for iteration in range(1, 7):
            made.memory(key, 0, peak=reserved - 5, reserved=reserved, outside=outside, total=total, iteration=iteration)
    rows = asked(made, "SELECT run, verdict FROM fleet_runs")
    assert len(rows) == len(cases)
    assert {row["run"]: row["verdict"] for row in rows} == {str(case): verdict for case, verdict in cases.items()}


def test_an_error_without_any_measurement_is_a_run_too():
    made = Fleet()
    made.add("oom_events", made.piece("died"), rank=5, kind="cuda", requested_bytes=GIB, line=3)
    row = one(made, "SELECT * FROM fleet_runs")
    assert (row["verdict"], row["ooms"], row["ranks_measured"], row["family"]) == ("oom", 1, 0, None)


def test_capacity_of_the_rank_comes_before_that_of_another():
    made = Fleet()
    key = made.attempt("train")
    made.memory(key, 0, peak=10, reserved=20, total=40)
    made.memory(key, 1, peak=10, reserved=20, total=80)
    made.memory(key, 2, peak=10, reserved=20, total=None)
    assert [row["capacity_bytes"] // GIB for row in asked(made, "SELECT * FROM fleet_ranks ORDER BY rank")] == [40, 80, 40]


def test_outside_is_taken_from_the_stage_where_the_rank_tells_none():
    made = Fleet()
    key = made.attempt("train")
    for rank, outside in ((0, 3), (1, None), (4, None)):
        made.memory(key, rank, peak=10, reserved=20, outside=outside)
    assert [row["outside_bytes"] for row in asked(made, "SELECT * FROM fleet_ranks ORDER BY rank")] == [3 * GIB, 3 * GIB, None]


def test_near_records_are_those_of_the_raw_rows():
    """Every count lies within its bounds, and is exact where the bounds meet."""
    made, chance = Fleet(), random.Random(7)
    key = made.attempt("train")
    truth: dict[tuple[int, date], list[bool]] = {}
    for rank in range(4):
        for day in range(3):
            for iteration in range(40):
                reserved = chance.uniform(70, 78)
                made.memory(key, rank, peak=reserved - chance.uniform(0.5, 4), reserved=reserved, day=day, iteration=iteration)
                truth.setdefault((rank, TODAY + timedelta(days=day)), []).append(int(reserved * GIB) >= 80 * GIB - 2 * GIB - 80 * GIB * 3 // 100)
    rows = asked(made, "SELECT * FROM fleet_near_limit")
    assert len(rows) == 12
    for row in rows:
        near = sum(truth[row["rank"], row["day"]])
        assert row["near_least"] <= near <= row["near_most"] <= row["records"] == 40
        assert row["near_most"] - row["near_least"] <= 6
        assert row["month"] == "2026-10"


def test_near_records_are_exact_where_no_level_is_cut():
    made = Fleet()
    key = made.attempt("train")
    for iteration in range(10):
        made.memory(key, 0, peak=70, reserved=76 if iteration < 3 else 72, iteration=iteration)
    row = one(made, "SELECT * FROM fleet_near_limit")
    assert (row["near_least"], row["near_most"], row["hard_near_most"], row["near_class"], row["near_kind"]) == (3, 3, 0, "occasional", "cache")
    assert (row["soft_headroom_bytes"], row["hard_headroom_bytes"]) == (2 * GIB, 8 * GIB)


def test_class_follows_the_share_of_near_records():
    made = Fleet()
    cases = {(8, 10): "stable", (7, 10): "occasional", (0, 10): "clear", (2, 4): "insufficient"}
    for near, count in cases:
        key = made.attempt(f"{near} of {count}")
        for at in range(count):
            made.memory(key, 0, peak=60, reserved=77 if at < near else 65, iteration=at)
    rows = asked(made, "SELECT run, near_class FROM fleet_near_limit")
    assert len(rows) == len(cases)
    assert {row["run"]: row["near_class"] for row in rows} == {f"{near} of {count}": name for (near, count), name in cases.items()}


def test_a_maximum_that_never_resets_convicts_one_step_only():
    made = Fleet()
    key = made.attempt("train")
    for day in range(3):
        for at in range(6):
            made.memory(key, 0, peak=60, reserved=70 if day == 0 else 77, day=day, iteration=10 * day + at, scope="cumulative")
    rows = asked(made, "SELECT * FROM fleet_near_limit ORDER BY day")
    assert [(row["near_least"], row["near_most"], row["near_class"]) for row in rows] == [
        (0, 0, "clear"), (1, 6, "insufficient"), (0, 6, "insufficient")]


def test_unknown_capacity_is_undetermined_and_unknown_outside_never_clear():
    made = Fleet()
    blind, bare = made.attempt("blind"), made.attempt("bare")
    for at in range(6):
        made.memory(blind, 0, peak=60, reserved=70, total=None, iteration=at)
        made.memory(bare, 0, peak=60, reserved=70, outside=None, iteration=at)
        made.memory(bare, 1, peak=60, reserved=79, outside=None, iteration=at)
    found = {(row["run"], row["rank"]): row["near_class"] for row in asked(made, "SELECT * FROM fleet_near_limit")}
    assert found == {("blind", 0): "undetermined", ("bare", 0): "undetermined", ("bare", 1): "stable"}


def test_late_data_stands_on_its_own_day_and_changes_nothing_else():
    made, whole = Fleet(), Fleet()
    for filled, late in ((made, True), (whole, False)):
        key = filled.attempt("train")
        filled.memory(key, 0, peak=60, reserved=70, day=2, iteration=20)
        after = filled.piece("train", name="1", ingested=START + timedelta(days=40)) if late else key
        filled.memory(after, 0, peak=65, reserved=77, day=1, iteration=10)
    query = "SELECT run, rank, day, records, near_least, near_most, soft_headroom_bytes FROM fleet_near_limit ORDER BY day"
    assert asked(made, query) == asked(whole, query)
    assert [row["day"] for row in asked(made, query)] == [TODAY + timedelta(days=1), TODAY + timedelta(days=2)]


def test_a_record_without_time_stands_on_the_day_of_its_ingest():
    made = Fleet()
    key = made.attempt("train")
    made.memory(key, 0, peak=60, reserved=70, timed=False)
    assert one(made, "SELECT * FROM fleet_near_limit")["day"] == TODAY


def test_ratio_stands_over_what_was_printed_and_what_is_expected():
    made = Fleet()
    key = made.attempt("train", printed_gib=20)
    for rank in range(8):
        made.memory(key, rank, peak=24 if rank < 4 else 18, reserved=30)
    stages = expect_stages({**SIZES, **MODEL}, microbatches=8)
    rows = asked(made, "SELECT * FROM fleet_ratio ORDER BY stage")
    assert [row["place"] for row in rows] == ["first", "middle", "middle", "last"]
    assert [row["ranks_measured"] for row in rows] == [4, 4, 0, 0]
    assert [row["over_printed_ratio"] for row in rows] == pytest.approx([1.2, 0.9, None, None])
    assert [row["expected_peak_bytes"] for row in rows] == [stage.peak_allocated_bytes for stage in stages]
    assert rows[0]["over_expected_ratio"] == pytest.approx(24 * GIB / stages[0].peak_allocated_bytes)
    assert {(row["family"], row["gpu"]) for row in rows} == {("dense", "80 GiB device")}


def test_without_arguments_a_run_has_no_expectation_but_a_reason():
    made = Fleet()
    made.memory(made.piece("bare"), 0, peak=20, reserved=30)
    row = one(made, "SELECT * FROM fleet_ratio")
    assert (row["stage"], row["expected_peak_bytes"], row["family"]) == (None, None, None)
    assert row["not_expected"] == "the world size is in no artifact, so no rank can be placed on a stage"
    assert row["max_allocated_bytes"] == 20 * GIB


@pytest.mark.parametrize(("args", "name"), [
    ({}, "dense"), ({"num_experts": 8}, "MoE"), ({"num_experts": 8, "multi_latent_attention": True}, "MoE, MLA"), ({"fp8": "hybrid"}, "dense, fp8"),
    ({"hybrid_override_pattern": "M-M*"}, "hybrid")])
def test_family_is_told_by_the_arguments(args, name):
    assert fleet.family({**MODEL, **args}) == name
    assert fleet.family({"world_size": 8}) is None


def drifting(peak_after: float, *, cluster: str = "east", variables: tuple[str, str] = ("2.20", "2.27"), **args):
    made = Fleet()
    for run, day, peak, version, changed in (("first", 0, 20, variables[0], {}), ("second", 7, peak_after, variables[1], args)):
        where = "east" if run == "first" else cluster
        key = made.attempt(run, cluster=where, args={"save": f"/data/{run}", **changed}, started=START + timedelta(days=day))
        made.add("environment", key, name="NCCL version", value=version, line=5)
        made.memory(key, 0, peak=peak, reserved=30, day=day)
    return made


def test_drift_names_what_changed_between_two_runs_of_one_configuration():
    rows = asked(drifting(25, recompute_granularity="selective"), "SELECT * FROM fleet_drift ORDER BY name")
    assert [(row["kind"], row["name"], row["value_before"], row["value_after"]) for row in rows] == [
        ("version", "NCCL version", "2.20", "2.27"), ("argument", "recompute_granularity", None, "selective")]
    assert {(row["run_before"], row["run"], row["peak_change_bytes"]) for row in rows} == {("first", "second", 5 * GIB)}


def test_drift_that_nothing_explains_says_so():
    row = one(drifting(25, variables=("2.20", "2.20")), "SELECT * FROM fleet_drift")
    assert (row["name"], row["peak_change_bytes"]) == (None, 5 * GIB)


@pytest.mark.parametrize("made", [drifting(20.1), drifting(25, hidden_size=8192), drifting(25, micro_batch_size=2), drifting(25, cluster="west")],
                         ids=["memory stays", "another model", "another batch", "another cluster"])
def test_no_drift(made):
    assert asked(made, "SELECT * FROM fleet_drift") == []


def test_drift_sees_new_hardware_and_memory_outside_torch():
    made = Fleet()
    for run, day, gpu, outside in (("first", 0, "NVIDIA A100-SXM4-80GB", 2), ("second", 7, "NVIDIA H100 80GB HBM3", 4)):
        made.memory(made.attempt(run, started=START + timedelta(days=day), gpu_name=gpu), 0, peak=20, reserved=30, day=day, outside=outside)
    row = one(made, "SELECT * FROM fleet_drift")
    assert (row["kind"], row["value_before"], row["value_after"], row["outside_change_bytes"]) == (
        "hardware", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", 2 * GIB)


def test_outside_torch_tells_the_host_that_stands_out():
    made = Fleet()
    key = made.attempt("train")
    for rank in range(4):
        made.memory(key, rank, peak=20, reserved=30, outside=7 if rank == 2 else 2)
        made.add("environment", key, rank=rank, host=f"node{rank // 2}", name="NCCL_ALGO", value="Ring", line=3)
    made.memory(key, 5, peak=20, reserved=30, outside=None)
    rows = asked(made, "SELECT * FROM fleet_outside_torch ORDER BY over_median_bytes DESC, rank")
    assert [(row["rank"], row["host"], row["over_median_bytes"]) for row in rows] == [
        (2, "node1", 5 * GIB), (0, "node0", 0), (1, "node0", 0), (3, "node1", 0)]


def test_errors_have_stage_and_the_case_that_a_report_gives():
    made = Fleet()
    key = made.attempt("train")
    for at in range(1, 6):
        made.memory(key, 9, peak=60, reserved=75, iteration=at, outside=2)
    made.add("oom_events", key, rank=9, iteration=6, kind="cuda", requested_bytes=GIB, capacity_bytes=80 * GIB, free_bytes=GIB // 2,
             allocated_bytes=60 * GIB, reserved_unallocated_bytes=17 * GIB, line=500)
    made.add("oom_events", key, rank=None, rank_label="last", kind="cuda", line=501)
    made.add("job_events", key, rank=3, event="host_killed", line=502)
    rows = asked(made, "SELECT * FROM fleet_oom ORDER BY line")
    reported = overview(made.connection(), "train").ooms
    assert [(row["rank"], row["stage"], row["oom_case"]) for row in rows] == [(9, 2, reported[0].case), (None, None, "unknown"), (3, 0, "F")]
    assert rows[0]["reason"] == reported[0].reason
    assert rows[0]["before_steady_bytes"] == 30 * GIB


def test_arguments_that_are_left_out_are_read_by_no_ledger_and_no_formula():
    texts = [path.read_text(encoding="utf-8") for part in ("expected", "theory") for path in (ROOT / "analysis" / part).glob("*.py")]
    named = {name for text in texts for name in re.findall(r"[\"']([a-z][a-z0-9_]+)[\"']", text)}
    rows = from_rows({"run_args": [{"name": name, "value": "1", "line": 1} for name in named]})
    kept = {row["name"] for row in records(rows, "SELECT name FROM fleet_arguments")}
    read = {name for text in texts for name in re.findall(r"(?:args|known|given|asked)(?:\.get\(|\[)[\"']([a-z0-9_]+)[\"']", text)}
    assert len(read) > 60
    assert read <= kept


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("samples") / "lake")
    ingest([ROOT / "sample_data" / run for run in RUNS if run != "truth"], lake)
    return connect(lake)


@pytest.mark.parametrize("run", [run for run in RUNS if run != "truth"])
def test_a_report_and_the_fleet_agree_on_a_sample(samples, run):
    row, found = records(samples, "SELECT * FROM fleet_runs WHERE run = ?", [run])[0], overview(samples, run)
    top = max(found.ranks, key=lambda rank: rank.peak_bytes or 0, default=None)
    least = min((rank.soft_headroom_bytes for rank in found.ranks if rank.soft_headroom_bytes is not None), default=None)
    assert (row["verdict"], row["peak_bytes"], row["fullest_rank"]) == (found.verdict.level, top and top.peak_bytes, top and top.rank)
    assert (row["soft_headroom_bytes"], row["ranks_measured"], row["ooms"]) == (
        least, sum(rank.rank is not None for rank in found.ranks), len(found.ooms))
    cases = records(samples, "SELECT rank, stage, oom_case FROM fleet_oom WHERE run = ? ORDER BY line", [run])
    assert [(case["rank"], case["stage"], case["oom_case"][:1]) for case in cases] == [(one.rank, one.stage, one.case[:1]) for one in found.ooms]
    expected = records(samples, "SELECT stage, expected_peak_bytes AS peak FROM fleet_ratio WHERE run = ? AND stage IS NOT NULL", [run])
    assert {one["stage"]: one["peak"] for one in expected} == {
        stage: one.peak_allocated_bytes for stage, one in found.ledger.expected.stages.items()}


def test_formulas_are_those_of_the_branch_cards(samples):
    cards = {row["run"]: (row["branch"], row["confidence"]) for row in records(samples, "SELECT * FROM fleet_formula")}
    reported = {run: overview(samples, run).branch.card for run in cards}
    assert cards == {run: (card.branch, card.confidence) for run, card in reported.items()}
    assert len(cards) >= 3
