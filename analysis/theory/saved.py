"""What one layer keeps of one micro-batch from forward to backward, as a range in bytes, and what a whole stage keeps at its peak.

Source: Megatron-Core and Transformer Engine, module by module, as of 2026-08-22. A range, because the dump does not tell which attention kernel
ran or whether a kernel keeps a second copy; MoE layers are counted with balanced routing. The printed formula's layer
(two dropout masks, no gate, nothing recomputed) is another thing: it says what was printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.theory.arguments import Args, whole
from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.inflight import heaviest_mix, schedule
from analysis.theory.parameters import layer_kinds
from analysis.theory.stages import StageLayout

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one micro-batch on a rank: of its context-parallel part, of its tensor-parallel shard, and where norms work."""

    whole: float
    sharded: float
    norm: float


def stage_saved(args: Args, a: FormulaArguments, layout: StageLayout, stage: int, microbatches: int) -> Range:
    """Saved activations of a stage at its peak; `args` are native. Raises LedgerError where the schedule cannot run."""
    group = whole(args, "microbatch_group_size_per_vp_stage", layout.pp)
    plan = schedule(layout.pp, layout.chunks, min(microbatches, 4 * max(group, layout.pp)), group,
                    overlap_experts=bool(args.get("overlap_moe_expert_parallel_comm")))
    chunks = [_chunk(args, a, cell.first_layer, cell.layers) for cell in layout.of_stage(stage)]
    low, high = (heaviest_mix(plan, stage, [chunk[end] for chunk in chunks])[0] for end in (0, 1))
    return low, high


def layer_saved(args: Args, a: FormulaArguments, *, moe: bool) -> Range:
    """One layer and micro-batch, with the run's selective recomputation."""
    at, freed = tokens(a), modules(args)
    attention = _mla(a, at, freed) if a.multi_latent_attention else _attention(args, a, at, freed)
    block = _moe(a, at, freed) if moe else _dense(a, at, freed)
    masks = 2 * a.hidden_size * at.norm if args.get("hidden_dropout", 0.1) else 0
    return attention[0] + block[0], attention[1] + block[1] + masks


def tokens(a: FormulaArguments) -> Tokens:
    """Tokens of one micro-batch where the different modules work."""
    whole_part = a.seq_length * a.micro_batch_size / a.context_parallel_size
    sharded = whole_part / a.tensor_model_parallel_size
    return Tokens(whole_part, sharded, sharded if a.sequence_parallel else whole_part)


def modules(args: Args) -> set[str]:
    """Modules that selective recomputation frees; Megatron's default is the attention core."""
    if args.get("recompute_granularity") != "selective":
        return set()
    given = args.get("recompute_modules")
    return {str(one) for one in given} if isinstance(given, list) else set(str(given).split()) if given else {"core_attn"}


def recomputed_in_full(args: Args) -> bool:
    """Full recomputation, by today's argument or by those of 2021."""
    return args.get("recompute_granularity") == "full" or bool(args.get("checkpoint_activations"))


def _chunk(args: Args, a: FormulaArguments, first: int, layers: int) -> Range:
    """One chunk: its layers, and the tensor that crosses the stage's border, which older releases keep."""
    pattern = layer_kinds(a)[first:first + layers]
    border = 2 * a.hidden_size * tokens(a).norm
    kept = (0.0, 0.0)
    if recomputed_in_full(args):
        each = whole(args, "recompute_num_layers", whole(args, "checkpoint_num_layers", 1))
        shard = a.tensor_model_parallel_size if args.get("distribute_saved_activations") and not a.sequence_parallel else 1
        recomputed = min(each, layers) if args.get("recompute_method") == "block" else layers
        groups = recomputed if args.get("recompute_method") == "block" else -(-layers // each)
        kept = (groups * border / shard,) * 2
        pattern = pattern[recomputed:]
    for moe in pattern:
        low, high = layer_saved(args, a, moe=bool(moe))
        kept = kept[0] + low, kept[1] + high
    return kept[0], kept[1] + (border if layers else 0)


def _attention(args: Args, a: FormulaArguments, at: Tokens, freed: set[str]) -> Range:
    q, heads, h = a.kv_channels * a.num_attention_heads, a.num_attention_heads, a.hidden_size
    groups = a.num_query_groups if a.group_query_attention else heads
    kv = max(groups, a.tensor_model_parallel_size) * a.kv_channels
    low = 4 * h * at.norm + (4 * q + 4 * kv) * at.sharded
    second = 2 * q * at.sharded if a.micro_batch_size > 1 else 0
    if "core_attn" in freed:
        return low, low + 2 * (q + kv) * at.sharded + second
    core = 4 * heads * at.sharded
    if args.get("transformer_impl") == "local" and not args.get("use_flash_attn"):
        core = 2 * heads * a.seq_length * at.sharded
        second += 3 * heads * a.seq_length * at.sharded
    return low + core, low + core + 2 * (q + kv) * at.sharded + second


def _mla(a: FormulaArguments, at: Tokens, freed: set[str]) -> Range:
    heads, query = a.num_attention_heads, a.qk_head_dim + a.qk_pos_emb_head_dim
    latents = (4 * a.hidden_size + 4 * (a.q_lora_rank or 0) + 4 * a.kv_lora_rank + 2 * a.qk_pos_emb_head_dim) * at.norm
    inside = 0 if "mla_up_proj" in freed else 2 * heads * (2 * query + a.v_head_dim) * at.sharded
    low = latents + inside + (2 * heads * a.v_head_dim + (0 if "core_attn" in freed else 4 * heads)) * at.sharded
    return low, low + 2 * heads * (query - a.v_head_dim if query > a.v_head_dim else 0) * at.sharded


def _dense(a: FormulaArguments, at: Tokens, freed: set[str]) -> Range:
    inside = 0 if "mlp" in freed else (6 if a.swiglu else 4) * a.ffn_hidden_size * at.sharded
    kept = 4 * a.hidden_size * at.norm + inside
    return kept, kept


def _moe(a: FormulaArguments, at: Tokens, freed: set[str]) -> Range:
    """Balanced: each rank's experts get as many tokens as it sends."""
    h, gates = a.hidden_size, 2 if a.swiglu else 1
    norms = (4 * h - (2 * h if "layernorm" in freed else 0)) * at.norm
    routed = a.moe_router_topk * at.norm * a.expert_tensor_parallel_size
    width = a.moe_ffn_hidden_size / a.expert_tensor_parallel_size
    experts = routed * (2 * (a.moe_latent_size or h) + (2 * gates + (0 if "moe_act" in freed else 2)) * width + 4)
    shared = 0 if "shared_experts" in freed else (2 * gates + 2) * a.moe_shared_expert_intermediate_size * at.sharded
    inside = 0 if {"moe", "moe_layer_recompute"} & freed else experts + shared
    router = (a.num_experts or 0) * at.norm
    return norms + inside + 4 * router, norms + inside + 13 * router
