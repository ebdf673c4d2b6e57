"""Embedding, final norm, output layer and loss: what the first and the last stage hold beyond their layers.

Source: Megatron-Core `tensor_parallel/cross_entropy.py`, `models/common/embeddings`, Transformer Engine's cross-entropy. Bytes an
element of logits by implementation are those of `analysis/theory/logits.py`. U = S·V/t logits of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.theory.logits import FP32_LOSSES, LOSSES, LossBytes

_DEEPSPEED_BUFFERS = 2


@dataclass(frozen=True, slots=True)
class HeadBytes:
    """`saved` from the head's forward to its backward, `peak` the most beyond what was saved before the head ran."""

    saved: int
    peak: int


def batch_bytes(options: Options) -> int:
    """One micro-batch of data: token, label and position ids, loss mask, and the attention mask that the loader makes by default."""
    mask = options.micro_batch * options.sequence * options.sequence // options.cp if options.mask_in_batch else 0
    return 28 * options.tokens + mask


def embedding_bytes(model: Model, options: Options) -> int:
    """What the first stage's embedding keeps of one micro-batch: its dropout mask, and with sequence parallelism a copy of the scattered rows."""
    return model.hidden * options.local_tokens if options.hidden_dropout else 0


def evaluation_loss_bytes(model: Model, options: Options) -> int:
    """Logits and their fp32 copy in a forward pass that keeps nothing."""
    return _loss(options).forward * (options.tokens * model.vocabulary // options.tp)


def kept_loss_bytes(model: Model, options: Options) -> int:
    """Logits and softmax that DeepSpeed's pipeline engine still holds after a step, one pair for each of the last stage's two buffers."""
    return _DEEPSPEED_BUFFERS * 6 * (options.tokens * model.vocabulary // options.tp) if options.deepspeed else 0


def deferred_bytes(model: Model, options: Options, microbatches: int) -> int:
    """Inputs and logits' gradients of micro-batches whose output-layer weight gradient waits (`defer_embedding_wgrad_compute`)."""
    if not options.defer_embedding:
        return 0
    count = microbatches if options.defer_embedding < 0 else min(options.defer_embedding, microbatches)
    logits = options.tokens * model.vocabulary // options.tp
    return count * options.weight_bytes * (model.hidden * options.local_tokens + logits)


def head_bytes(model: Model, options: Options, depth: int) -> HeadBytes:
    """The last stage's head: final norm and output inputs, and the loss; each of `depth` MTP depths saves logits of its own."""
    loss = _loss(options)
    logits = options.tokens * model.vocabulary // options.tp
    inputs = 2 * options.weight_bytes * model.hidden * options.local_tokens
    saved = loss.saved * logits + loss.a_token * options.tokens
    return HeadBytes((1 + depth) * (inputs + saved), (1 + depth) * (inputs + saved) + (loss.peak - loss.saved) * logits)


def _loss(options: Options) -> LossBytes:
    name = "te_from_2.18" if options.fused_loss == "te" else "native" if options.fused_loss else "unfused"
    return (LOSSES if options.half else FP32_LOSSES)[name]
