"""Arguments that contradict each other, each as one sentence: the argument, its value, what would fit.

The printed formula divides whatever it is given, so it answers for a model that Megatron would refuse to build. A list
of contradictions beside the numbers says so; a command that was asked about one run stops at the first. Only what every release refuses
stands here, so that no dump of a run that started is one: `validate_args` of `megatron/training/arguments.py` (precisions, widths of heads,
experts), `__post_init__` of `transformer_config.py` (heads, query groups), and `torch.topk` in the router.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.theory.arguments import Args, Contradiction, native_args, whole
from analysis.theory.layout import parallel_sizes
from analysis.theory.stages import stage_layout
from ingest.errors import LedgerError

_MOST_HEADS = 100_000
"""Sizes that are tried as divisors of a number of heads."""


def contradictions(args: Args) -> list[Contradiction]:
    """What cannot be true of one run of these arguments (a full set; missing ones are not contradictions)."""
    args = native_args(args)
    found: list[Contradiction] = []
    for check in _CHECKS:
        try:
            check(args)
        except LedgerError as error:
            found.append(_named(args, error))
    return found


def refuse_shapes(args: Args) -> None:
    """Raise LedgerError for the first contradiction of heads, experts or precisions, of native arguments."""
    for check in _SHAPES:
        check(args)


def _named(args: Args, error: LedgerError) -> Contradiction:
    """The sentence with the argument it names: the first word after `argument`."""
    words = error.what.split()
    name = words[1].rstrip(",:;") if words[:1] == ["argument"] else words[0]
    return Contradiction(name, args.get(name), error.what)


def _heads(args: Args) -> None:
    if args.get("num_attention_heads") is None:
        return
    tp, heads = whole(args, "tensor_model_parallel_size", 1), whole(args, "num_attention_heads")
    if heads % tp:
        fits = [size for size in range(1, min(heads, _MOST_HEADS) + 1) if heads % size == 0]
        near = ", ".join(str(size) for size in [*[s for s in fits if s < tp][-1:], *[s for s in fits if s > tp][:1]])
        raise LedgerError(f"argument tensor_model_parallel_size is {tp} and does not divide num_attention_heads {heads}; {near} would fit")


def _groups(args: Args) -> None:
    """Query groups are shared out to the ranks, or copied to several; releases up to core 0.15 refused the copies."""
    if not args.get("group_query_attention") or args.get("num_query_groups") is None:
        return
    tp, groups = whole(args, "tensor_model_parallel_size", 1), whole(args, "num_query_groups")
    if groups % tp and tp % groups:
        raise LedgerError(f"argument num_query_groups is {groups}; a multiple or a divisor of tensor_model_parallel_size {tp} would fit")


def _head_width(args: Args) -> None:
    """The width of a head is worked out where it is not given."""
    if args.get("kv_channels") is not None or any(args.get(name) is None for name in ("hidden_size", "num_attention_heads")):
        return
    hidden, heads = whole(args, "hidden_size"), whole(args, "num_attention_heads")
    if hidden % heads:
        raise LedgerError(f"argument hidden_size is {hidden}; a multiple of num_attention_heads {heads}, or kv_channels beside it, would fit")


def _precision(args: Args) -> None:
    if args.get("fp16") is True and args.get("bf16") is True:
        raise LedgerError("argument fp16 is True beside bf16 True; one of them alone would fit")


def _experts(args: Args) -> None:
    ep, experts = whole(args, "expert_model_parallel_size", 1), whole(args, "num_experts", 0, least=0)
    if experts % ep:
        raise LedgerError(f"argument expert_model_parallel_size is {ep} and does not divide num_experts {experts}; a divisor of {experts} would fit")
    if ep > 1 and not experts:
        raise LedgerError(f"argument expert_model_parallel_size is {ep} and num_experts is {args.get('num_experts')}; 1 would fit without experts")


def _top_k(args: Args) -> None:
    experts = whole(args, "num_experts", 0, least=0)
    if experts and args.get("moe_router_topk") is not None and (top := whole(args, "moe_router_topk")) > experts:
        raise LedgerError(f"argument moe_router_topk is {top}; at most num_experts {experts} would fit")


def _ranks(args: Args) -> None:
    if args.get("world_size") is not None or args.get("data_parallel_size") is not None:
        parallel_sizes(args)


def _stages(args: Args) -> None:
    if args.get("num_layers") is not None:
        stage_layout(args)


def _attention(args: Args) -> None:
    if args.get("multi_latent_attention") and args.get("group_query_attention"):
        raise LedgerError("argument group_query_attention is True beside multi_latent_attention; False would fit")


def _moe_pattern(args: Args) -> None:
    freq, layers = args.get("moe_layer_freq"), args.get("num_layers")
    if args.get("num_experts") and isinstance(freq, list) and layers and len(freq) != layers:
        raise LedgerError(f"argument moe_layer_freq is a list of {len(freq)}; one entry for each of num_layers {layers} would fit")


_SHAPES: tuple[Callable[[Args], None], ...] = (_heads, _groups, _head_width, _experts, _top_k, _precision)
_CHECKS = (*_SHAPES, _ranks, _stages, _attention, _moe_pattern)
