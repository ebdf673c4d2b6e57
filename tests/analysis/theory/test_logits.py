"""The head's bytes by loss implementation, and the verdict on a measured surplus."""

from __future__ import annotations

import pytest

from analysis.theory.logits import compare, head, implementations
from analysis.theory.megatron import report_args
from ingest.errors import LedgerError

U = 8192 * 128256 // 2
FUSED = {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}


def test_worked_example(llama_like):
    got = head(llama_like)
    parts = {part.name: part.high_bytes for part in got.parts}
    saved = parts["logits_saved"] - 9 * 8192 + parts["norm_and_output_inputs"]
    assert saved == 4 * 8192 * (4096 + 128256) // 2
    assert saved / 1e9 == pytest.approx(2.17, abs=0.005)
    fp32_logits = 4 * U / 1e9
    assert fp32_logits == pytest.approx(2.10, abs=0.005)
    assert parts["logits_saved"] + parts["loss_peak_above_saved"] == pytest.approx(3.15e9, rel=0.002)
    assert parts["gather_buffer"] == pytest.approx(67e6, rel=0.002)
    fused = head({**llama_like, **FUSED}, te_version="2.17.0")
    assert {part.name: part.high_bytes for part in fused.parts}["logits_saved"] == pytest.approx(1.05e9, rel=0.002)


def test_worked_example_first_and_last_stage(llama_like):
    said = report_args(llama_like, 8)[0][0]
    resident, layer = said.weight_and_optimizer_bytes, said.activation.per_layer_bytes
    assert (resident + said.activation_bytes) / 1e9 == pytest.approx(29.6, abs=0.05)
    assert 16 * layer / 1e9 == pytest.approx(8.59, abs=0.005)
    left_out = sum(part.high_bytes for part in head(llama_like).parts if part.when == "saved")
    assert (resident + 16 * layer + left_out) / 1e9 == pytest.approx(23.2, abs=0.05)


@pytest.mark.parametrize(("args", "version", "want"), [
    ({}, None, ("unfused",)),
    ({"cross_entropy_loss_fusion": True}, "2.20", ("native",)),
    (FUSED, "2.9.0+abc", ("te_to_2.17",)),
    (FUSED, "2.17", ("te_to_2.17",)),
    (FUSED, "v2.18.1", ("te_from_2.18",)),
    (FUSED, "3.0", ("te_from_2.18",)),
    (FUSED, None, ("te_to_2.17", "te_from_2.18")),
])
def test_implementation_by_arguments_and_version(args, version, want):
    assert implementations(args, version) == want


def test_unknown_version_is_a_range(llama_like):
    unknown = head({**llama_like, **FUSED})
    old, new = (head({**llama_like, **FUSED}, te_version=version) for version in ("2.10", "2.18"))
    assert (unknown.peak_low_bytes, unknown.peak_high_bytes) == (old.peak_low_bytes, new.peak_high_bytes)
    assert new.peak_high_bytes - old.peak_high_bytes == 4 * U
    assert any("version unknown" in said for said in unknown.assumptions)


def test_mtp_context_parallelism_deferral_and_rl(llama_like):
    one = head(llama_like)
    assert head({**llama_like, "mtp_num_layers": 1}).saved_high_bytes - one.saved_high_bytes == 4 * U + 9 * 8192 + 4 * 4096 * 4096
    halved = head({**llama_like, "context_parallel_size": 2})
    assert halved.peak_high_bytes * 2 == one.peak_high_bytes
    deferred = head({**llama_like, "defer_embedding_wgrad_compute": True}, microbatches=8)
    assert deferred.saved_high_bytes - one.saved_high_bytes == 8 * (2 * 4096 * 4096 + 2 * U)
    outside = head(llama_like, labels_in_model=False)
    assert outside.peak_high_bytes - outside.peak_low_bytes == 4 * U
    assert head({**llama_like, "overlap_moe_expert_parallel_comm": True}).saved_high_bytes > one.saved_high_bytes
    with pytest.raises(LedgerError, match="padded_vocab_size is missing"):
        head({**llama_like, "padded_vocab_size": None})


def test_logits_of_a_run_in_fp32_are_written_over_and_not_copied(llama_like):
    half, whole = (head({**llama_like, "gradient_accumulation_fusion": True, "bf16": on, "fp16": False}) for on in (True, False))
    assert half.saved_high_bytes == whole.saved_high_bytes
    assert half.peak_high_bytes - whole.peak_high_bytes == 2 * U
    assert whole.peak_high_bytes == whole.saved_high_bytes
    outside = head({**llama_like, "bf16": False, "fp16": False}, labels_in_model=False)
    assert outside.peak_high_bytes == outside.peak_low_bytes


def judged(predicted, surplus, **change):
    base = {"measured_last_bytes": 30_000_000_000 + surplus, "measured_neighbour_bytes": 33_000_000_000, "expected_neighbour_bytes": 32_000_000_000,
            "expected_last_without_head_bytes": 29_000_000_000, "stages": 4}
    return compare(predicted, **{**base, **change})


def test_verdicts(llama_like):
    predicted = head(llama_like)
    high = predicted.peak_high_bytes
    assert judged(predicted, high).verdict == "explained"
    assert judged(predicted, high).surplus_bytes == high
    assert judged(predicted, high + 10, uncertainty_bytes=10).verdict == "explained"
    assert judged(predicted, int(high * 1.5)).verdict == "partly"
    assert judged(predicted, int(high * 0.6)).verdict == "partly"
    assert judged(predicted, high * 3).verdict == "not_explained"
    assert judged(predicted, -1).verdict == "not_explained"


def test_not_measurable_says_why(llama_like):
    predicted = head(llama_like)
    assert judged(predicted, 0, stages=1).reason.startswith("PP is 1")
    missing = judged(predicted, 0, measured_neighbour_bytes=None)
    assert (missing.verdict, missing.surplus_bytes) == ("not_measurable", None)
    assert missing.reason == "the neighbouring stage's measured peak not known"
