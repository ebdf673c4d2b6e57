"""Embedding, final norm, output layer and loss: what the first and the last stage hold beyond their layers.

Source: Megatron-Core `tensor_parallel/cross_entropy.py`, `models/common/embeddings`, Transformer Engine's cross-entropy. Bytes an
element of logits by implementation are those of `analysis/theory/logits.py`. U = S·V/t logits of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.expected.model import Model, Options
from analysis.theory.logits import LOSSES


@dataclass(frozen=True, slots=True)
class HeadBytes:
    """`saved` from the head's forward to its backward, `peak` the most beyond what was saved before the head ran."""

    saved: int
    peak: int


def embedding_bytes(model: Model, options: Options) -> int:
    """Token, label and position ids with the loss mask, and the dropout mask of the first stage's embedding, one micro-batch."""
    mask = model.hidden * options.local_tokens if options.hidden_dropout else 0
    return 28 * options.tokens + mask


def head_bytes(model: Model, options: Options, depth: int) -> HeadBytes:
    """The last stage's head: final norm and output inputs, and the loss; each of `depth` MTP depths saves logits of its own."""
    loss = LOSSES["te_from_2.18" if options.fused_loss == "te" else "native" if options.fused_loss else "unfused"]
    logits = options.tokens * model.vocabulary // options.tp
    half = 1 if options.half else 2
    inputs = 2 * options.weight_bytes * model.hidden * options.local_tokens
    saved = loss.saved * logits + loss.a_token * options.tokens
    return HeadBytes((1 + depth) * (inputs + saved), (1 + depth) * (inputs + saved) + half * (loss.peak - loss.saved) * logits)
