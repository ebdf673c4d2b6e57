"""What the head (final norm, output layer, loss) adds on the last stage, and whether a measured surplus is explained by it.

Source: Megatron-Core's `ColumnParallelLinear`, `tensor_parallel/cross_entropy.py` and Transformer Engine's fused cross-entropy, as of 2026-08-22.
The printed formula leaves all of it out when PP > 1. The prediction is a range with its parts, because the loss implementation and the Transformer
Engine version decide between 2 and 6 bytes an element of logits. The measured surplus is taken over the neighbour's
ledger, not over "the middle": the neighbour holds other layers and one micro-batch more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from analysis.theory.arguments import Args, native_args, padded_vocabulary, whole
from ingest.errors import LedgerError

Verdict = Literal["explained", "partly", "not_explained", "not_measurable"]


@dataclass(frozen=True, slots=True)
class LossBytes:
    """Bytes an element of logits (U = tokens x V / t): forward peak, saved to backward, backward peak; and bytes a token saved."""

    forward: int
    saved: int
    backward: int
    a_token: int

    @property
    def peak(self) -> int:
        """The larger of both peaks."""
        return max(self.forward, self.backward)


LOSSES: dict[str, LossBytes] = {
    "unfused": LossBytes(6, 4, 6, 9),
    "native": LossBytes(6, 4, 6, 9),
    "te_to_2.17": LossBytes(2, 2, 2, 0),
    "te_from_2.18": LossBytes(6, 4, 6, 0),
}
"""bf16 logits are held by the caller beside the fp32 copy; TE wrote its gradient over the logits up to 2.17, in fp32 since."""

FP32_LOSSES: dict[str, LossBytes] = {
    "unfused": LossBytes(4, 4, 4, 9),
    "native": LossBytes(4, 4, 4, 9),
    "te_to_2.17": LossBytes(4, 4, 4, 0),
    "te_from_2.18": LossBytes(8, 4, 4, 0),
}
"""fp32 logits need no fp32 copy: softmax and gradient are written over them."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the last stage's surplus, as a range in bytes; `when` it is there, and whether it is the head's own or the stage's."""

    name: str
    when: Literal["saved", "peak", "persistent", "resident"]
    low_bytes: int
    high_bytes: int
    of: Literal["head", "stage"] = "head"


@dataclass(frozen=True, slots=True)
class Head:
    """What the head adds to the last stage: `saved` from forward to backward, `peak` at its highest instant; both include what persists."""

    implementations: tuple[str, ...]
    parts: tuple[Part, ...]
    saved_low_bytes: int
    saved_high_bytes: int
    peak_low_bytes: int
    peak_high_bytes: int
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Surplus:
    """The measured surplus of the last stage over its neighbour's ledger, and whether the head explains it."""

    verdict: Verdict
    reason: str
    surplus_bytes: int | None = None
    predicted_low_bytes: int | None = None
    predicted_high_bytes: int | None = None


def implementations(args: Args, te_version: str | None = None) -> tuple[str, ...]:
    """The loss implementations that these arguments may have run; two where the Transformer Engine version decides and is unknown."""
    if not args.get("cross_entropy_loss_fusion"):
        return ("unfused",)
    if (args.get("cross_entropy_fusion_impl") or "native") != "te":
        return ("native",)
    numbers = re.findall(r"\d+", te_version or "")[:2]
    if len(numbers) < 2:
        return ("te_to_2.17", "te_from_2.18")
    return ("te_from_2.18",) if (int(numbers[0]), int(numbers[1])) >= (2, 18) else ("te_to_2.17",)


def head(args: Args, *, te_version: str | None = None, microbatches: int | None = None, labels_in_model: bool = True) -> Head:
    """Predict the head's bytes on a rank of the last stage.

    `labels_in_model` False is a trainer that takes logits out and computes its own loss (reinforcement learning): then only the logits are
    counted, in bf16 up to bf16 with an fp32 cast. Raises LedgerError where a size is missing.
    """
    args = native_args(args)
    tokens, sharded, elements = _sizes(args)
    names = implementations(args, te_version) if labels_in_model else ("logits_only",)
    half = bool(args.get("bf16") or args.get("fp16") or ("bf16" not in args and "fp16" not in args))
    outside = [LossBytes(2, 2, 2, 0), LossBytes(6, 6, 6, 0)] if half else [LossBytes(4, 4, 4, 0)]
    losses = [(LOSSES if half else FP32_LOSSES)[name] for name in names] if labels_in_model else outside
    live = 2 if args.get("overlap_moe_expert_parallel_comm") else 1
    depth = 1 + whole(args, "mtp_num_layers", 0, least=0)
    saved = [live * depth * (loss.saved * elements + loss.a_token * tokens) for loss in losses]
    rise = [(loss.peak - loss.saved) * elements for loss in losses]
    gradient = [_weight_gradient(args, elements, loss) for loss in losses]
    inputs = live * depth * 4 * whole(args, "hidden_size") * sharded
    parts = [Part("logits_saved", "saved", min(saved), max(saved)), Part("norm_and_output_inputs", "saved", inputs, inputs),
             Part("loss_peak_above_saved", "peak", min(rise), max(rise)), Part("output_weight_gradient", "peak", 0, max(gradient)),
             *_persistent(args, tokens, sharded, elements, microbatches)]
    kept = [part for part in parts if part.when != "peak" and part.name != "logits_saved"]
    low, high = sum(part.low_bytes for part in kept), sum(part.high_bytes for part in kept)
    peaks = [one + more for one, more in zip(saved, rise, strict=True)]
    most = max(one + more for one, more in zip(peaks, gradient, strict=True))
    return Head(names, tuple(part for part in parts if part.high_bytes), low + min(saved), high + max(saved), low + min(peaks),
                high + most, _assumptions(args, names, te_version))


def compare(predicted: Head, *, measured_last_bytes: int | None, measured_neighbour_bytes: int | None, expected_last_without_head_bytes: int | None,
            expected_neighbour_bytes: int | None, stages: int, uncertainty_bytes: int = 0) -> Surplus:
    """Judge a measured peak of the last stage against the neighbouring stage's.

    surplus = measured(last) - [measured(neighbour) - expected(neighbour) + expected(last without head)]; `uncertainty_bytes` is half the width of
    its interval (rounding, expectation). Explained only where the intervals overlap.
    """
    low, high = predicted.peak_low_bytes, predicted.peak_high_bytes
    if stages < 2:
        return Surplus("not_measurable", "PP is 1: the last stage has no neighbour, and the printed formula counts the output layer", None, low, high)
    given = {"the last stage's measured peak": measured_last_bytes, "the neighbouring stage's measured peak": measured_neighbour_bytes,
             "the expectation of the last stage": expected_last_without_head_bytes, "the expectation of its neighbour": expected_neighbour_bytes}
    known = [value for value in given.values() if value is not None]
    if len(known) < len(given):
        missing = " and ".join(name for name, value in given.items() if value is None)
        return Surplus("not_measurable", f"{missing} not known", None, low, high)
    last, neighbour, expected_last, expected_neighbour = known
    surplus = last - (neighbour - expected_neighbour + expected_last)
    verdict, reason = _judged(surplus, uncertainty_bytes, low, high)
    return Surplus(verdict, reason, surplus, low, high)


def _judged(surplus: int, uncertainty: int, low: int, high: int) -> tuple[Verdict, str]:
    if surplus + uncertainty >= low and surplus - uncertainty <= high:
        return "explained", "the measured surplus lies in the predicted range"
    if surplus <= 0:
        return "not_explained", "the last stage holds no more than its neighbour's ledger says, so the head does not show"
    near, of = (low, "short of") if surplus < low else (high, "above")
    if min(near, surplus) >= max(near, surplus) / 2:
        return "partly", f"the measured surplus is {abs(surplus - near):,} B {of} the predicted range"
    return "not_explained", f"the measured surplus is {abs(surplus - near):,} B {of} the predicted range, more than half of it"


def _sizes(args: Args) -> tuple[int, int, int]:
    """Tokens of a CP rank, tokens of a sequence-parallel rank, elements of its logits."""
    vocabulary = padded_vocabulary(args)
    if vocabulary is None:
        raise LedgerError("argument padded_vocab_size is missing; the padded vocabulary of the log, or vocab_size, would fit")
    tp = whole(args, "tensor_model_parallel_size", 1)
    tokens = whole(args, "seq_length") * whole(args, "micro_batch_size") // whole(args, "context_parallel_size", 1)
    return tokens, tokens // tp if args.get("sequence_parallel") else tokens, tokens * vocabulary // tp


def _weight_gradient(args: Args, elements: int, loss: LossBytes) -> int:
    """Bytes above the loss's peak when the backward of the output layer makes its weight's gradient as a tensor of its own: without
    `gradient_accumulation_fusion` (releases with a local DDP had none) it stands beside the logits' gradient before it is added to the buffer."""
    if args.get("gradient_accumulation_fusion", "DDP_impl" not in args):
        return 0
    weight = whole(args, "hidden_size") * (padded_vocabulary(args) or 0) // whole(args, "tensor_model_parallel_size", 1)
    return max(0, 2 * elements + 2 * weight - loss.peak * elements)


def _persistent(args: Args, tokens: int, sharded: int, elements: int, microbatches: int | None) -> list[Part]:
    """What stays beyond one micro-batch: the gather buffer of sequence parallelism, and deferred weight gradients of the output layer."""
    hidden = whole(args, "hidden_size")
    parts = []
    if args.get("sequence_parallel"):
        parts.append(Part("gather_buffer", "persistent", 2 * hidden * tokens, 2 * hidden * tokens))
    if args.get("defer_embedding_wgrad_compute"):
        limit = whole(args, "wgrad_deferral_limit", 0, least=0)
        count = limit or microbatches or 1
        each = 2 * hidden * sharded + 2 * elements
        parts.append(Part("deferred_output_gradients", "persistent", each * min(count, microbatches or count), each * count))
    return parts


def _assumptions(args: Args, names: tuple[str, ...], te_version: str | None) -> tuple[str, ...]:
    said = [f"loss implementation {' or '.join(names)}"]
    if len(names) > 1:
        said.append("Transformer Engine version unknown: up to 2.17 the gradient overwrites the logits, from 2.18 it is fp32")
    elif te_version and names[0].startswith("te_"):
        said.append(f"Transformer Engine {te_version}")
    if "cross_entropy_loss_fusion" not in args:
        said.append("cross_entropy_loss_fusion not given: off, Megatron's default")
    if whole(args, "mtp_num_layers", 0, least=0):
        said.append("each MTP depth saves logits of its own")
    return tuple(said)
