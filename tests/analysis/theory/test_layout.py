"""Rank maps: every rank of every executed case, the worked ones, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory import layout
from ingest.errors import LedgerError


@pytest.fixture(scope="module")
def rank_maps(shared):
    return json.loads((shared / "data/formula/rank_map_cases.json").read_text())


def sizes_of(case, **more):
    return layout.parallel_sizes({
        "world_size": case["world_size"], "tensor_model_parallel_size": case["tp"], "pipeline_model_parallel_size": case["pp"],
        "context_parallel_size": case["cp"], "expert_model_parallel_size": case["ep"], "expert_tensor_parallel_size": case.get("etp"),
        "order": case["order"], "num_distributed_optimizer_instances": case.get("num_distributed_optimizer_instances"),
    }, **more)


def test_every_rank_of_every_case(rank_maps):
    for case in rank_maps["cases"]:
        sizes = sizes_of(case)
        assert (sizes.dp, sizes.edp) == (case["dp"], case["edp"])
        for want in case["ranks"]:
            got = layout.coordinates(want["rank"], sizes)
            have = {"rank": want["rank"], "tp": got.tp, "cp": got.cp, "dp": got.dp, "pp": got.pp, "ep": got.ep, "etp": got.etp, "edp": got.edp,
                    "dist_opt_instance": got.instance, "dist_opt_shard": got.shard}
            assert have == want, case["name"]
            assert layout.stage_of_rank(want["rank"], sizes) == want["pp"]


def test_every_group_and_printing_rank(rank_maps):
    for case in rank_maps["cases"]:
        sizes = sizes_of(case)
        for kind, want in case["groups"].items():
            assert layout.groups(kind, sizes) == sorted(sorted(group) for group in want), (case["name"], kind)
        lines = layout.line_ranks(sizes)
        assert lines["rank_memory"] == case["report_memory_ranks"]
        assert lines["parameter_count"] == case["num_params_ranks"]
        assert lines["iteration"] == [case["iteration_line_rank"]]
        assert lines["timers"] == [case["timers_rank"]]
        assert lines["tensorboard"] == [case["tensorboard_rank"]]


def test_one_grid_of_core_0_9(rank_maps):
    for case in rank_maps["old_cases"]:
        sizes = sizes_of(case, era="core_0.9")
        for kind, want in case["groups"].items():
            assert layout.groups(kind, sizes) == sorted(sorted(group) for group in want), (case["name"], kind)


def test_worked_ranks():
    a = layout.parallel_sizes({"world_size": 8, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2})
    five = layout.coordinates(5, a)
    assert (five.tp, five.dp, five.pp) == (1, 0, 1)
    as_dumped = {"world_size": "16", "tensor_model_parallel_size": "2", "pipeline_model_parallel_size": "4", "use_tp_pp_dp_mapping": "True"}
    c = layout.parallel_sizes(as_dumped)
    six = layout.coordinates(6, c)
    assert (six.tp, six.pp, six.dp) == (0, 3, 0)
    assert layout.report_memory_ranks(c) == list(range(8))


def test_mapping_flag_in_both_eras():
    args = {"world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "use_tp_pp_dp_mapping": True}
    new, old = layout.parallel_sizes(args), layout.parallel_sizes(args, era="core_0.11")
    assert (new.order, old.order) == ("tp-cp-ep-pp-dp", "tp-pp-dp")
    assert [layout.coordinates(rank, new) for rank in range(16)] == [layout.coordinates(rank, old) for rank in range(16)]
    with pytest.raises(LedgerError, match="order is 'tp-pp-dp' and leaves out cp of size 2"):
        layout.parallel_sizes({**args, "context_parallel_size": 2, "expert_model_parallel_size": 2}, era="core_0.11").grid("dense")


@pytest.mark.parametrize(("args", "sentence"), [
    ({"world_size": 8, "order": "tp-xp-dp"}, "argument order is 'tp-xp-dp'; tp, cp, ep, dp, pp"),
    ({"world_size": 8, "order": "tp-tp-dp"}, "argument order is 'tp-tp-dp'"),
    ({"world_size": 9, "tensor_model_parallel_size": 2}, "argument world_size is 9; a multiple of TP x PP x CP = 2"),
    ({"world_size": 8, "data_parallel_size": 4}, "argument data_parallel_size is 4; .* leaves 8"),
    ({"world_size": 8, "expert_model_parallel_size": 16}, "argument expert_model_parallel_size is 16; a divisor of world_size 8"),
    ({"world_size": 8, "tensor_model_parallel_size": 0}, "argument tensor_model_parallel_size is 0; a whole number of at least 1"),
    ({"tensor_model_parallel_size": 2}, "argument data_parallel_size is missing"),
    ({"world_size": 8, "num_distributed_optimizer_instances": 3}, "num_distributed_optimizer_instances is 3; a divisor of DP x CP = 8"),
    ({"world_size": 16, "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 4, "use_tp_pp_dp_mapping": True}, "disagree on the stage"),
    ({"world_size": 8, "gtp_weight_remat_size": 2}, "argument gtp_weight_remat_size is 2"),
])
def test_what_cannot_be_is_one_sentence(args, sentence):
    with pytest.raises(LedgerError, match=sentence):
        layout.parallel_sizes(args)


def test_rank_outside_and_unknown_group():
    sizes = layout.parallel_sizes({"world_size": 8})
    with pytest.raises(LedgerError, match="rank is 8; a rank from 0 to 7"):
        layout.coordinates(8, sizes)
    with pytest.raises(LedgerError, match="group kind is 'zp'"):
        layout.groups("zp", sizes)


small = st.sampled_from([1, 2, 3, 4])


@given(tp=small, pp=small, cp=small, factor=small, order=st.permutations(["tp", "cp", "ep", "dp"]))
def test_coordinates_are_a_bijection_and_groups_a_partition(tp, pp, cp, factor, order):
    world = tp * pp * cp * factor
    sizes = layout.parallel_sizes({"world_size": world, "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp,
                                   "context_parallel_size": cp, "expert_tensor_parallel_size": 1, "order": "-".join([*order, "pp"])})
    seen = {(c.tp, c.cp, c.dp, c.pp) for c in (layout.coordinates(rank, sizes) for rank in range(world))}
    assert len(seen) == world
    for kind in ("tp", "dp_cp", "pp", "expert_dp", "tp_ep"):
        assert sorted(rank for group in layout.groups(kind, sizes) for rank in group) == list(range(world))
