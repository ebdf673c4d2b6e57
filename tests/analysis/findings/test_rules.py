"""Every rule fires on a case made for it and keeps still on its neighbour; actions say themselves where they would not help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.communication.rows import Communication, LateCommunicator, Warned
from analysis.database import from_rows
from analysis.findings import RULES, findings
from analysis.findings.catalogue import ACTIONS, SYMPTOMS, advise
from analysis.findings.model import Seen
from analysis.overview import overview
from analysis.reconcile import Expected
from analysis.rows import Branch, Overview, Source
from analysis.theory.branch import Card
from analysis.theory.disagreement import Disagreement
from tests.analysis.made import GIB, dense_run, memory, shown

OVERVIEWS: dict[str, Overview] = {}
"""Of each set of rows: many cases differ in an argument or a setting only, and an overview does not change."""


def seen_of(rows=None, environment=(), **args):
    rows = rows or dense_run()
    if (key := repr(rows)) not in OVERVIEWS:
        OVERVIEWS[key] = overview(shown(rows), "made")
    return Seen(OVERVIEWS[key], {"transformer_impl": "transformer_engine", "micro_batch_size": 2, **args}, dict(environment))


def ids(seen: Seen) -> set[str]:
    return {one.id for one in findings(seen)}


def steps(peaks, reserved=None, retries=None):
    """One rank of 80 GiB whose peaks (GiB) are those of each step, 4 GiB outside torch."""
    held = reserved or peaks
    rows = {"rank_memory": [memory(0, line=step + 1, peak=peak, reserved=most, allocated=10, iteration=step + 1, scope="interval",
                                   device_total_bytes=80 * GIB, device_used_bytes=int((most + 4) * GIB))
                            for step, (peak, most) in enumerate(zip(peaks, held, strict=True))]}
    if retries:
        rows["memory_stats"] = [{"rank": 0, "iteration": step + 1, "scope": "interval", "num_alloc_retries": count, "num_ooms": 0}
                                for step, count in enumerate(retries)]
    return rows


def oom(**numbers):
    rows = steps([50] * 6)
    rows["oom_events"] = [{"rank": 0, "iteration": 7, "kind": "cuda", "line": 99, "requested_bytes": 2 * GIB, "capacity_bytes": 80 * GIB,
                           "free_bytes": 0, "allocated_bytes": 60 * GIB, "reserved_unallocated_bytes": 0, **numbers}]
    return rows


THEORY = {"theory_reports": [{"total_bytes": 10 * GIB, "weight_and_optimizer_bytes": 6 * GIB, "activation_bytes": 4 * GIB, "line": 50,
                              "iteration": 10}]}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def restarted(died):
    """Three starts of one run, of which so many died."""
    return {"runs": [{"run_index": start, "line": 1} for start in range(3)], "oom_events": [{"run_index": start, "line": 9} for start in range(died)]}


def batches(count):
    return {**dense_run(), "runs": [{**dense_run()["runs"][0], "num_microbatches": count}]}


def named(device):
    return {"runs": [{**dense_run()["runs"][0], "gpu_name": device}]}


def outside(used):
    return {"rank_memory": [memory(0, line=1, reserved=30, device_used_bytes=used * GIB, device_total_bytes=80 * GIB)]}


def uneven(peak):
    return {**dense_run(), "rank_memory": [*dense_run()["rank_memory"], memory(0, line=300, peak=peak)]}


def told(name, value, origin="env", **more):
    return {"name": name, "value": value, "origin": origin, "line": 3, **more}


def late(peak):
    """A communicator of two ranks set up below the steps, which leave 76 - `peak` GiB."""
    who = {"host": "n1", "pid": 7, "thread": 8, "device": 0}
    facts = [{**who, "line": 500, "event": "channels", "collective_channels": 8, "p2p_channels": 8, "p2p_channels_per_peer": 2},
             {**who, "line": 501, "event": "init", "communicator": "0x1", "communicator_rank": 0, "ranks": 2}]
    return {**steps([peak] * 6), "nccl_communicators": facts}


FIRES = {
    "late_communicator": (lambda: seen_of(late(76)), lambda: seen_of(late(40))),
    "expandable_with_max_split": (
        lambda: seen_of({"environment": [told("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512")]}),
        lambda: seen_of({"environment": [told("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]})),
    "nccl_value_ignored": (lambda: seen_of({"environment": [told("NCCL_BUFFSIZE", "8M", "nccl_invalid", other={"default": "-2"})]}),
                           lambda: seen_of({"environment": [told("NCCL_BUFFSIZE", "8388608")]})),
    "nccl_values_differ": (lambda: seen_of({"environment": [told("NCCL_ALGO", one, "nccl_set_by_environment") for one in ("Ring", "Tree")]}),
                           lambda: seen_of({"environment": [told("NCCL_IB_HCA", one, "nccl_set_by_environment") for one in ("mlx5_0", "mlx5_1")]})),
    "nccl_connects_at_init": (lambda: seen_of({"environment": [told("NCCL_CUMEM_ENABLE", "0")]}),
                              lambda: seen_of({"environment": [told("NCCL_CUMEM_ENABLE", "1")]})),
    "near_limit_stable": (lambda: seen_of(steps([74] * 6)), lambda: seen_of(steps([60] * 6))),
    "near_limit_occasional": (lambda: seen_of(steps([74, 60, 60, 60, 60, 60])), lambda: seen_of(steps([74] * 6))),
    "near_limit_insufficient": (lambda: seen_of(steps([74, 74])), lambda: seen_of(steps([60, 60]))),
    "near_limit_cached": (lambda: seen_of(steps([60] * 6, [75] * 6)), lambda: seen_of(steps([74] * 6, [75] * 6))),
    "staircase_fragmentation": (lambda: seen_of(steps([40] * 6, [45, 45, 50, 50, 55, 55])), lambda: seen_of(steps([40] * 6, [45] * 6))),
    "staircase_need": (lambda: seen_of(steps([40, 40, 45, 45, 45, 45], [45, 45, 50, 50, 50, 50])), lambda: seen_of(steps([40] * 6))),
    "allocator_retries": (lambda: seen_of(steps([60] * 6, retries=[0, 0, 1, 1, 1, 1])), lambda: seen_of(steps([60] * 6, retries=[3] * 6))),
    "peak_outside_training": (
        lambda: seen_of({"rank_memory": [memory(0, line=1, peak=20), memory(0, line=2, peak=30, phase="before_save_checkpoint", iteration=11)]}),
        lambda: seen_of({"rank_memory": [memory(0, line=1, peak=20), memory(0, line=2, peak=30, iteration=11)]})),
    "phase_above_training": (
        lambda: seen_of({"rank_memory": [memory(0, line=1, peak=20, scope="interval"),
                                         memory(0, line=2, peak=30, phase="evaluation", iteration=11, scope="interval")]}),
        lambda: seen_of({"rank_memory": [memory(0, line=1, peak=20, scope="interval"),
                                         memory(0, line=2, peak=20, phase="evaluation", iteration=11, scope="interval")]})),
    "pipeline_bubble": (lambda: seen_of(batches(8)), lambda: seen_of(batches(64))),
    "full_recompute_frees_little": (
        lambda: replace(seen_of(recompute_granularity="full"), saved=lambda change: -GIB),
        lambda: replace(seen_of(recompute_granularity="full"), saved=lambda change: -8 * GIB)),
    "memory_to_spare": (lambda: seen_of(steps([40] * 6)), lambda: seen_of(steps([60] * 6))),
    "tensor_parallel_beyond_nvlink": (lambda: seen_of(named("NVIDIA H100 80GB HBM3"), tensor_model_parallel_size=16),
                                      lambda: seen_of(named("NVIDIA GB200"), tensor_model_parallel_size=16)),
    "nccl_larger_buffers": (lambda: seen_of(environment={"NCCL_BUFFSIZE": "8388608"}.items()),
                            lambda: seen_of(environment={"NCCL_BUFFSIZE": "4194304"}.items())),
    "larger_device": (lambda: seen_of({**steps([74] * 6), **named("NVIDIA H100 80GB HBM3")}),
                      lambda: seen_of({**steps([60] * 6), **named("NVIDIA H100 80GB HBM3")})),
    "oom_a": (lambda: seen_of(oom(allocated_bytes=76 * GIB)), lambda: seen_of(steps([60] * 6))),
    "oom_b": (lambda: seen_of(oom(reserved_unallocated_bytes=16 * GIB)), lambda: seen_of(oom(allocated_bytes=76 * GIB))),
    "oom_c": (lambda: seen_of(oom(allocated_bytes=60 * GIB)), lambda: seen_of(oom(allocated_bytes=76 * GIB))),
    "oom_d": (lambda: seen_of(oom(requested_bytes=70 * GIB, free_bytes=10 * GIB)), lambda: seen_of(oom(allocated_bytes=76 * GIB))),
    "oom_e": (lambda: seen_of(oom(kind="nccl")), lambda: seen_of(oom())),
    "oom_f": (lambda: seen_of(oom(kind="host")), lambda: seen_of(oom())),
    "oom_g": (lambda: seen_of(oom(allowed_bytes=62 * GIB, free_bytes=10 * GIB)), lambda: seen_of(oom(allowed_bytes=80 * GIB, free_bytes=0))),
    "oom_unknown": (lambda: seen_of(oom(requested_bytes=None)), lambda: seen_of(oom())),
    "starts_die": (lambda: seen_of(restarted(1)), lambda: seen_of(restarted(0))),
    "first_stage_heavy": (lambda: seen_of(), lambda: seen_of(steps([60] * 6))),
    "last_stage_heavy": (lambda: seen_of(), lambda: seen_of(steps([60] * 6))),
    "stages_uneven": (lambda: seen_of(uneven(35)), lambda: seen_of(uneven(24))),
    "recompute_core_attn_flash": (lambda: seen_of(recompute_granularity="selective"),
                                  lambda: seen_of(recompute_granularity="selective", attention_backend="AttnBackend.unfused")),
    "recompute_layernorm_dense": (lambda: seen_of(recompute_granularity="selective", recompute_modules=["layernorm"]),
                                  lambda: seen_of(recompute_granularity="selective", recompute_modules=["layernorm"], num_experts=8)),
    "empty_cache_in_loop": (lambda: seen_of(empty_unused_memory_level=2), lambda: seen_of(empty_unused_memory_level=1)),
    "native_loss_fusion": (lambda: seen_of(cross_entropy_loss_fusion=True),
                           lambda: seen_of(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")),
    "fewer_microbatches_than_stages": (lambda: seen_of({**dense_run(), "runs": [{**dense_run()["runs"][0], "num_microbatches": 2}]}),
                                       lambda: seen_of({**dense_run(), "runs": [{**dense_run()["runs"][0], "num_microbatches": 4}]})),
    "expandable_segments_cuda_graphs": (
        lambda: seen_of(environment=EXPANDABLE.items(), enable_cuda_graph=True),
        lambda: seen_of(environment={**EXPANDABLE, "NCCL_GRAPH_REGISTER": "0"}.items(), enable_cuda_graph=True)),
    "device_max_connections": (lambda: seen_of(environment={"NCCL_DEBUG": "INFO"}.items(), tensor_model_parallel_size=2),
                               lambda: seen_of(environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}.items(), tensor_model_parallel_size=2)),
    "fp8_weights_kept": (lambda: seen_of(fp8="hybrid"), lambda: seen_of(fp8="hybrid", fp8_param_gather=True)),
    "fp8_moments": (lambda: seen_of(exp_avg_dtype="fp8"), lambda: seen_of(exp_avg_dtype="torch.bfloat16")),
    "block_recompute_of_nothing": (lambda: seen_of(recompute_granularity="full", recompute_method="block", recompute_num_layers=0),
                                   lambda: seen_of(recompute_granularity="full", recompute_method="block", recompute_num_layers=4)),
    "ranks_not_seen": (lambda: seen_of(), lambda: seen_of(steps([60] * 6))),
    "headroom_unknown": (lambda: seen_of(), lambda: seen_of(steps([60] * 6))),
    "theory_far_from_measured": (lambda: seen_of({**dense_run(), **THEORY}), lambda: seen_of()),
    "much_outside_torch": (lambda: seen_of(outside(40)), lambda: seen_of(outside(33))),
    "not_understood": (lambda: seen_of({**dense_run(), "rejects": [{"line": 4, "text": "torn", "reason": "torn"}]}), lambda: seen_of()),
}


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_fires_on_its_case_and_not_on_its_neighbour(name):
    case, neighbour = FIRES[name]
    assert name in ids(case())
    assert name not in ids(neighbour())


def test_contradictions_of_the_printed_theory_are_findings():
    said = Disagreement("sequence_parallel", "the arguments say sequence parallelism, the text shows no marker")
    seen = seen_of({**dense_run(), **THEORY})
    agreeing, contradicted = (Branch(Card("without_sp", ("G06",), (), "proven", (), found), Source("train.log", 50)) for found in ((), (said,)))
    assert "theory_contradicts_arguments" not in ids(replace(seen, overview=replace(seen.overview, branch=agreeing)))
    found = findings(replace(seen, overview=replace(seen.overview, branch=contradicted)))
    (one,) = (finding for finding in found if finding.id == "theory_contradicts_arguments")
    assert "no marker" in one.sentence
    assert one.evidence == (Source("train.log", 50),)


def test_every_rule_is_named_by_a_case():
    named = {rule.id for rule in RULES}
    assert len(named) == len(RULES)
    texts = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    for rule in RULES:
        assert any(name.startswith(rule.id) or name.endswith(rule.id) for name in FIRES) or f'"{rule.id}"' in texts, rule.id


def with_communication(**parts):
    seen = seen_of(steps([60] * 6))
    return replace(seen, overview=replace(seen.overview, communication=Communication((), (), **parts)))


def test_a_late_communicator_matters_where_it_may_not_fit():
    late = LateCommunicator(0, "embedding", 2, GIB, 2 * GIB, GIB, Source("nccl.log", 7))
    (one,) = (one for one in findings(with_communication(late=(late,))) if one.id == "late_communicator")
    assert one.evidence == (Source("nccl.log", 7),)
    assert "late_communicator" not in ids(with_communication(late=(replace(late, headroom_bytes=3 * GIB),)))


@pytest.mark.parametrize("name", ["expandable_with_max_split", "nccl_value_ignored", "nccl_values_differ", "nccl_connects_at_init"])
def test_warned_settings_are_findings(name):
    said = Warned(name, "A setting is known to harm.", Source("env.log", 3))
    assert name in ids(with_communication(warnings=(said,)))
    assert name not in ids(with_communication())


def test_findings_come_worst_first_and_carry_their_lines():
    found = findings(seen_of(steps([74] * 6), num_experts=8))
    assert [one.severity for one in found] == sorted((one.severity for one in found), key=["error", "warning", "note"].index)
    assert found[0].evidence[0].line


def test_a_large_request_is_the_one_to_cut_up():
    large = oom(requested_bytes=30 * GIB, free_bytes=20 * GIB, allocated_bytes=56 * GIB)
    (one,) = (one for one in findings(seen_of(large)) if one.id == "oom_a")
    assert "38% of the device" in one.sentence
    assert [advice.action for advice in one.actions] == ["chunk_operation"]
    (one,) = (one for one in findings(seen_of(oom(allocated_bytes=76 * GIB))) if one.id == "oom_a")
    assert one.actions[0].action == "smaller_micro_batch"


def test_a_start_that_died_shows_its_line_from_any_start():
    rows = restarted(1)
    found = overview(from_rows(rows, run="made"), "made", 2)
    (one,) = (one for one in found.findings if one.id == "starts_die")
    assert one.evidence == (Source("made", 9),)


def test_a_layout_that_is_refused_is_not_advised():
    seen = replace(seen_of(steps([74] * 6)), saved=lambda change: "argument x does not divide" if "tensor_model_parallel_size" in change else None)
    advice, useless = advise(seen, "activations")
    assert "more_tensor_parallel" not in {one.action for one in advice}
    assert ("more_tensor_parallel", "refused: argument x does not divide") in {(one.action, one.reason) for one in useless}


def test_labels_of_people_are_no_masked_peaks():
    rows = {"rank_memory": [memory(0, line=1, peak=20), memory(0, line=2, peak=30, phase="after_train", iteration=11)]}
    assert "peak_outside_training" not in ids(seen_of(rows))


def test_an_argument_that_the_formula_writes_itself_is_no_contradiction():
    said = Disagreement("mutated_argument", "num_query_groups is printed as 1")
    seen = seen_of({**dense_run(), **THEORY})
    card = Branch(Card("without_sp", ("G06",), (), "proven", (), (said,)), Source("train.log", 50))
    assert "theory_contradicts_arguments" not in ids(replace(seen, overview=replace(seen.overview, branch=card)))


def test_actions_say_where_they_would_save_nothing():
    seen = seen_of(steps([74] * 6), micro_batch_size=1, use_distributed_optimizer=True)
    advice, useless = advise(seen, "activations")
    reasons = {one.action: one.reason for one in useless}
    assert "smaller_micro_batch" in reasons
    assert "flash" in reasons["recompute_core_attn"]
    assert "experts" in reasons["recompute_moe"]
    assert [one.order for one in advice] == list(range(1, len(advice) + 1))
    assert "distributed_optimizer" in {one.action for one in advise(seen, "resident")[1]}


def test_what_the_plan_saves_is_told_and_what_saves_nothing_is_not_advised():
    saved = {"micro_batch_size": 3 * GIB, "recompute_granularity": 0}
    seen = replace(seen_of(steps([74] * 6), micro_batch_size=2), saved=lambda change: next((saved[name] for name in change if name in saved), None))
    advice, useless = advise(seen, "activations")
    assert advice[0].saved_bytes == 3 * GIB
    assert "it would save nothing on the fullest rank" in {one.reason for one in useless}


def test_a_tip_in_force_is_not_given_again():
    seen = seen_of(environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}.items())
    advice, useless = advise(seen, "fragmentation")
    assert "expandable_segments" not in {one.action for one in advice}
    assert ("expandable_segments", "expandable segments are in force") in {(one.action, one.reason) for one in useless}


def test_the_catalogue_is_whole():
    assert {name for names in SYMPTOMS.values() for name in names} == set(ACTIONS)
    for one in ACTIONS.values():
        assert one.computation
        assert one.communication
        assert one.fails_when


def with_peak(**classes):
    """The dense run with a ledger whose first stage peaks at these classes, in GiB."""
    held = {name: size * GIB for name, size in classes.items()}
    seen = seen_of()
    row = SimpleNamespace(peak_classes=held, peak_allocated_bytes=sum(held.values()), classes={"optimizer": GIB})
    ledger = replace(seen.overview.ledger, expected=Expected({0: row}))
    return replace(seen, overview=replace(seen.overview, ledger=ledger))


def test_short_lived_buffers_are_told_where_they_are_much_of_the_peak():
    (one,) = (one for one in findings(with_peak(weights=10, activations=8, running_layer=5)) if one.id == "transient_peak")
    assert "running layer 5.00 GiB" in one.sentence
    assert "recompute_transient" in {other.action for other in one.useless}
    assert "transient_peak" not in ids(with_peak(weights=10, activations=8, running_layer=3))
    assert "transient_peak" not in ids(with_peak(weights=60, activations=30, running_layer=5))


def test_what_would_save_nothing_is_named_with_the_reason():
    seen = with_peak(weights=10, activations=8)
    seen = replace(seen, overview=replace(seen.overview, configuration=replace(seen.overview.configuration, num_microbatches=8)),
                   args={**seen.args, "pipeline_model_parallel_size": 4})
    reasons = {one.action: one.reason for symptom in ("activations", "resident") for one in advise(seen, symptom)[1]}
    assert "1F1B" in reasons["more_pipeline_stages"]
    assert "follow each other" in reasons["smaller_global_batch"]
    assert "do not depend" in reasons["fewer_micro_batches"]
    assert "small after sharding" in reasons["precision_aware_optimizer"]


@pytest.mark.parametrize(("symptom", "action", "args", "environment"), [
    ("fragmentation", "max_split_size", {}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("activations", "offload_activations", {"fine_grained_activation_offloading": True}, {}),
    ("spare", "overlap", {"overlap_grad_reduce": True, "overlap_param_gather": True}, {}),
    ("spare", "async_checkpoint", {"async_save": True}, {}),
    ("bubble", "virtual_stages", {"virtual_pipeline_model_parallel_size": 2}, {}),
    ("transient", "cublas_workspace", {}, {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}),
    ("resident", "precision_aware_optimizer", {"use_precision_aware_optimizer": True}, {}),
])
def test_what_is_in_force_is_not_advised_again(symptom, action, args, environment):
    advice, useless = advise(seen_of(environment=environment.items(), pipeline_model_parallel_size=4, **{
        name: value for name, value in args.items() if name != "pipeline_model_parallel_size"}), symptom)
    assert action in {one.action for one in useless}
    assert action not in {one.action for one in advice}
