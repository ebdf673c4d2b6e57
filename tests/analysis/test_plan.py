"""A plan keeps the run's own residual, follows Megatron's sizes, and refuses what Megatron refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.plan.change import Before, fit, plan
from analysis.reconcile import expected_of
from cli import main
from ingest.errors import LedgerError
from tests.analysis.test_reconcile import MODEL

GIB = 2**30
MODEL = {**MODEL, "global_batch_size": 16}
ROOT = Path(__file__).resolve().parents[2]


def expected(**more):
    found = expected_of({**MODEL, **more}, 8, {}, "H100")
    assert not found.reason
    return found


def test_no_change_gives_the_measured_peaks_back():
    known = expected()
    measured = {stage: row.peak_allocated_bytes + (stage + 1) * 10**8 for stage, row in known.stages.items()}
    before = Before({stage: size - known.stages[stage].peak_allocated_bytes for stage, size in measured.items()}, GIB, 80 * GIB)
    found = plan(known, before, {})
    assert {one.stage: one.peak_bytes for one in found.stages} == measured
    assert found.saved_bytes == 0
    assert {one.saved_bytes for one in found.stages} == {0}


def test_micro_batches_follow_the_global_batch():
    found = plan(expected(), Before({}, None, None), {"micro_batch_size": 2})
    assert (found.microbatches, found.sizes["dp"]) == (4, 2)
    assert found.fits == "unknown"


def test_the_data_parallel_size_follows_tensor_parallelism():
    found = plan(expected(), Before({}, None, None), {"tensor_model_parallel_size": 4})
    assert (found.sizes["dp"], found.microbatches) == (1, 16)


def test_full_recompute_saves_and_more_micro_batches_do_not():
    known, before = expected(), Before({}, None, None)
    assert plan(known, before, {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}).saved_bytes > GIB
    assert plan(known, before, {"global_batch_size": 32}).saved_bytes == 0


@pytest.mark.parametrize(("changes", "said"), [
    ({"tensor_model_parallel_size": 3}, "world_size|heads"), ({"pipeline_model_parallel_size": 5}, "world_size|layers"),
    ({"micro_batch_size": 3}, "global_batch_size"), ({"num_layers": 31}, "num_layers|layers"), ({"micro_batch_size": 0}, "micro_batch_size"),
])
def test_illegal_settings_are_refused_with_the_reason(changes, said):
    with pytest.raises(LedgerError, match=said):
        plan(expected(), Before({}, None, None), changes)


def test_more_stages_take_the_residual_of_the_stage_they_come_from():
    known = expected()
    found = plan(known, Before({0: GIB, 1: 0, 2: 0, 3: 2 * GIB}, None, None), {"pipeline_model_parallel_size": 8})
    assert [one.residual_bytes for one in found.stages] == [GIB, 0, 0, 0, 0, 0, 0, 2 * GIB]
    assert {one.saved_bytes for one in found.stages} == {None}


@pytest.mark.parametrize(("low", "high", "outside", "answer"), [
    (70, 75, 4, "fits"), (70, 77, 4, "may fit"), (77, 79, 4, "does not fit"), (70, 75, None, "fits")])
def test_fits(low, high, outside, answer):
    assert fit(low * GIB, high * GIB, Before({}, None if outside is None else outside * GIB, 80 * GIB)) == answer


def test_the_command(tmp_path, capsys):
    run = str(ROOT / "sample_data/dense_7b5_pp2")
    assert main(["plan", run, "--set", "micro_batch_size=1", "recompute_granularity=full", "recompute_method=uniform", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["saved_bytes"] > 0
    assert found["changes"]["micro_batch_size"] == 1
    assert main(["plan", run]) == 0
    assert "saves" in capsys.readouterr().out
    assert main(["plan", run, "--set", "tensor_model_parallel_size=3"]) == 2
    assert main(["plan", run, "--set", "nonsense"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err
    assert main(["plan", run, "--gpu", "H200"]) == 0


def test_a_change_that_nothing_reads_is_told(capsys):
    log = str(Path(__file__).resolve().parents[2] / "sample_data" / "dense_7b5_pp2" / "train.log")
    assert main(["plan", log, "--set", "recompute_granularty=full", "micro_batch_size=1"]) == 0
    assert "assumed: recompute_granularty is no argument of this run and moves nothing in the ledger; check its name" in capsys.readouterr().out
    assert main(["plan", log, "--set", "recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]) == 0
    assert "check its name" not in capsys.readouterr().out


@pytest.mark.parametrize(("changes", "said"), [
    ({"recompute_granularity": "ful"}, "recompute_granularity is 'ful'; full or selective would fit"),
    ({"recompute_granularity": "selective", "recompute_modules": ["mlp", "moee"]}, "recompute_modules is 'moee'; core_attn or"),
    ({"use_distributed_optimizer": "no"}, "use_distributed_optimizer is 'no'; true or false would fit"),
    ({"bf16": "maybe"}, "bf16 is 'maybe'; true or false would fit"),
    ({"micro_batch_size": -1}, "micro_batch_size is -1; a whole number of at least 1 would fit"),
    ({"global_batch_size": 0}, "global_batch_size is 0; a whole number of at least 1 would fit"),
])
def test_a_value_that_megatron_does_not_take_is_refused_and_not_counted_as_its_default(changes, said):
    known = expected(bf16=True, use_distributed_optimizer=True)
    with pytest.raises(LedgerError) as refused:
        plan(known, Before({}, None, None), changes)
    assert said in str(refused.value)


@pytest.mark.parametrize("changes", [
    {"recompute_granularity": None}, {"recompute_granularity": "selective", "recompute_modules": "core_attn, mlp"},
    {"attention_backend": "AttnBackend.flash"}, {"use_distributed_optimizer": "false"}, {"exp_avg_dtype": "torch.bfloat16"},
])
def test_each_way_to_write_a_value_is_taken(changes):
    assert plan(expected(bf16=True, use_distributed_optimizer=True), Before({}, None, None), changes).stages
