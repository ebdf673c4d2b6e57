"""The gap's parts add up to the byte on every sample and whole log, and say what cannot be measured instead of zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.database import connect, from_rows
from analysis.overview import overview
from analysis.reconcile import PARTS, expected_of, gap_of
from analysis.rows import Source, Theory
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.analysis.made import GIB, dense_run

ROOT = Path(__file__).resolve().parents[2]
MODEL = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32, "seq_length": 4096, "micro_batch_size": 1,
         "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "world_size": 16, "padded_vocab_size": 32000, "bf16": True,
         "sequence_parallel": True, "use_distributed_optimizer": True, "swiglu": True, "transformer_impl": "transformer_engine"}


def run_of(**theory):
    rows = dense_run()
    rows["run_args"] += [{"name": name, "value": str(value), "origin": "dump", "line": 40} for name, value in MODEL.items()]
    rows["runs"][0]["num_microbatches"] = 8
    if theory:
        rows["theory_reports"] = [{"line": 50, "iteration": 10, **theory}]
    return overview(from_rows(rows, run="made"), "made")


def adds_up(found):
    for one in found.ledger.gaps:
        assert set(one.parts) == set(PARTS)
        assert sum(size for size in one.parts.values() if size is not None) == one.gap_bytes == one.held_bytes - one.base_bytes
        assert {name for name, size in one.parts.items() if size is None} == set(one.missing)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("gap") / "lake")
    ingest([ROOT / "sample_data"], lake)
    return connect(lake)


@pytest.mark.parametrize("run", ["dense_7b5_pp2", "moe_16ranks", "oom_run"])
def test_parts_add_up_on_the_samples(samples, run):
    found = overview(samples, run)
    assert found.ledger.gaps
    adds_up(found)


def test_parts_add_up_on_every_whole_log(shared, tmp_path):
    lake = Lake(tmp_path / "lake")
    logs = [path for folder in ("files", "real") for path in sorted((shared / "data/logs" / folder).iterdir()) if ".expected" not in path.name]
    ingest([path for path in logs if path.suffix != ".json"], lake)
    connection = connect(lake)
    runs = connection.execute("SELECT run, run_index FROM run_attempts ORDER BY ALL").fetchall()
    assert len(runs) > 10
    seen = 0
    for run, run_index in runs:
        found = overview(connection, run, run_index)
        adds_up(found)
        seen += len(found.ledger.gaps)
    assert seen >= 160


def test_real_ranks_are_explained(shared, tmp_path):
    """Of two real runs of 32 and 128 ranks less than 3 % of the peak stays unexplained on any rank."""
    lake = Lake(tmp_path / "lake")
    ingest(sorted((shared / "data/logs/real").glob("dense*.gz")), lake)
    connection = connect(lake)
    runs = connection.execute("SELECT run, run_index FROM run_attempts").fetchall()
    gaps = [one for run, run_index in runs for one in overview(connection, run, run_index).ledger.gaps]
    assert len(gaps) == 32 + 128
    assert [one for one in gaps if abs(one.parts["unexplained"]) >= 0.03 * one.max_allocated_bytes] == []


def test_the_parts_of_a_rank_by_hand():
    found = run_of(total_bytes=12 * GIB, weight_and_optimizer_bytes=9 * GIB, activation_bytes=3 * GIB)
    one = next(gap for gap in found.ledger.gaps if gap.rank == 12)  # 23 GiB at its peak, 31 reserved, 33 used on the device
    row = found.ledger.expected.stages[3]
    head = row.peak_classes.get("loss", 0)
    assert one.against == "printed"
    assert one.gap_bytes == (31 + 2 - 12) * GIB
    assert one.parts["cached"] == 8 * GIB
    assert one.parts["outside_torch"] == 2 * GIB
    assert one.parts["unexplained"] == 23 * GIB - row.peak_allocated_bytes
    assert one.parts["resident_difference"] == row.steady_allocated_bytes - 9 * GIB
    assert one.parts["activation_difference"] == row.peak_allocated_bytes - row.steady_allocated_bytes - head - 3 * GIB
    assert one.parts["last_stage_head"] == head


def test_without_a_printed_theory_the_gap_is_taken_from_the_expected_peak():
    one = run_of().ledger.gaps[0]
    assert (one.against, one.base_bytes) == ("expected", one.expected_peak_bytes)
    assert one.parts["resident_difference"] is None
    assert "printed" in one.missing["resident_difference"]


def test_without_arguments_the_reason_is_said():
    found = overview(from_rows({**dense_run(), "theory_reports": [{"line": 5, "total_bytes": 12 * GIB}]}, run="made"), "made")
    one = found.ledger.gaps[0]
    assert one.parts["unexplained"] == 12 * GIB
    assert one.missing["resident_difference"].startswith("the arguments do not tell the model")
    assert found.ledger.expected.reason


def test_a_hybrid_pattern_tells_how_many_layers_there_are():
    """As in Megatron, whose own count is then not given: a letter a layer, the stages between bars."""
    pattern = {**MODEL, "num_layers": None, "hybrid_layer_pattern": "*-*-|*-*-", "pipeline_model_parallel_size": 2}
    counted = {**pattern, "num_layers": 8}
    told, same = (expected_of(args, 8, {}, "H100") for args in (pattern, counted))
    assert told.reason is None
    assert [row.steady_allocated_bytes for row in told.stages.values()] == [row.steady_allocated_bytes for row in same.stages.values()] != []


def test_a_rank_without_reserved_memory_has_no_cached_part():
    found = run_of()
    rank = next(one for one in found.ranks if one.rank == 0)
    from dataclasses import replace

    one = gap_of(replace(rank, max_reserved_bytes=None), None, found.ledger.expected)
    assert one.parts["cached"] is None
    assert one.parts["outside_torch"] is None


def test_an_illegal_layout_is_a_reason_not_an_error():
    expected = expected_of({**MODEL, "tensor_model_parallel_size": 3}, 8, {}, None)
    assert not expected.stages
    assert "world_size" in expected.reason or "tensor" in expected.reason


def test_the_ends_say_which_classes_make_them_heavy():
    first, last = run_of().ledger.differences
    assert (first.stage, first.neighbour, last.stage, last.neighbour) == (0, 1, 3, 2)
    assert first.measured_bytes == 4 * GIB
    assert sum(first.classes.values()) == first.expected_bytes
    assert "activations" in first.classes


def test_theory_without_its_halves_stands_with_what_stays():
    found = run_of()
    rank = next(one for one in found.ranks if one.rank == 0)
    theory = Theory(None, None, 12 * GIB, 10, None, None, None, 1, Source("x", 1))
    one = gap_of(rank, theory, found.ledger.expected)
    assert sum(size for size in one.parts.values() if size is not None) == one.gap_bytes
