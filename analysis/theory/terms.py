"""The printed formula term by term: symbols, this run's numbers in their places, and the bytes that come out.

One expression a term is declared, in Megatron's symbols; the text with the numbers and the bytes are both made from it, so what a reader sees
is what was computed. Arithmetic is exact (fractions); Megatron's is in floats, and what its order of additions loses (far below a
byte) is put on the largest term, so that the terms of a part add up to the printed value itself. Source: `theoretical_memory_usage.py` of each
generation, as in `parameters.py` and `activation.py`, which stay the judges of the value.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Literal

from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.generations import Generation
from analysis.theory.megatron import Branch, Report
from analysis.theory.parameters import moe_pattern, query_groups

Part = Literal["weight_and_optimizer", "activation"]


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a part: `symbols` is the expression, `numbers` the same with this run's values, `bytes` what it comes to."""

    part: Part
    name: str
    symbols: str
    numbers: str
    bytes: float


MEANING = {
    "h": "hidden_size", "L": "num_layers", "Ld": "dense layers", "Lm": "MoE layers", "a": "num_attention_heads", "g": "query groups",
    "d": "kv_channels", "f": "ffn_hidden_size", "G": "gate (1.5 with SwiGLU)", "V": "padded_vocab_size", "s": "seq_length", "b": "micro_batch_size",
    "t": "tensor_model_parallel_size", "p": "pipeline_model_parallel_size", "v": "virtual_pipeline_model_parallel_size", "m": "micro-batches",
    "DP": "data_parallel_size", "EDP": "data-parallel size of the experts", "EP": "expert_model_parallel_size", "ETP": "expert_tensor_parallel_size",
    "E": "num_experts", "fm": "moe_ffn_hidden_size", "fs": "moe_shared_expert_intermediate_size", "l": "moe_latent_size", "n": "vectors of a norm",
    "nq": "vectors of a norm in MLA", "rq": "q_lora_rank", "rk": "kv_lora_rank", "dn": "qk_head_dim", "dr": "qk_pos_emb_head_dim",
    "dv": "v_head_dim", "D": "mtp_num_layers",
}
"""Every symbol and the argument or count it stands for."""


def terms(generation: Generation, a: FormulaArguments, microbatches: int | None, said: Report) -> tuple[Term, ...]:
    """The terms of what a generation printed; none where it printed no number. Each part's sum is the report's value, to the last bit."""
    found: list[Term] = []
    if said.weight_and_optimizer_bytes is not None:
        values = _values(generation, a, microbatches)
        written = [_term("weight_and_optimizer", name, text, values) for name, text in _weights(generation, a)]
        found += adding_up(written, said.weight_and_optimizer_bytes)
    if said.activation_bytes is not None:
        found += activation_terms(generation, a, microbatches, said.branch, said.activation_bytes)
    return tuple(found)


def activation_terms(generation: Generation, a: FormulaArguments, microbatches: int | None, branch: Branch, total_bytes: float) -> tuple[Term, ...]:
    """The terms of the activation in one branch, which need not be the one that was printed."""
    values = _values(generation, a, microbatches)
    written = _with_sp(generation, a, microbatches) if branch == "sp_selective" else _without_sp(a, microbatches)
    return adding_up([_term("activation", name, text, values) for name, text in written], total_bytes)


def adding_up(exact: list[Term], total_bytes: float) -> tuple[Term, ...]:
    """The terms with the rounding of Megatron's float arithmetic on the largest, so that they add up to `total_bytes` itself."""
    found = list(exact)
    at = max(range(len(found)), key=lambda index: found[index].bytes)
    for _ in range(3):
        found[at] = replace(found[at], bytes=found[at].bytes + (total_bytes - math.fsum(term.bytes for term in found)))
    return tuple(found)


def symbols_of(found: Sequence[Term]) -> dict[str, str]:
    """The symbols that these terms use, each with what it stands for."""
    used = {name for term in found for name in re.findall(r"[A-Za-z]+", term.symbols)}
    return {name: meaning for name, meaning in MEANING.items() if name in used}


def value_of(text: str, values: Mapping[str, Fraction] | None = None) -> Fraction:
    """An expression of numbers, symbols, `+ - * /` (`·` is `*`) and brackets, exactly."""
    return _evaluated(_parsed(text.replace("·", "*").replace(",", "")), values or {})


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _evaluated(node: ast.expr, values: Mapping[str, Fraction]) -> Fraction:
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left, values), _evaluated(node.right, values)
        if isinstance(node.op, ast.Add | ast.Sub):
            return left + right if isinstance(node.op, ast.Add) else left - right
        if isinstance(node.op, ast.Mult | ast.Div):
            return left * right if isinstance(node.op, ast.Mult) else left / right
    raise ValueError("not an expression of the formula")


def _term(part: Part, name: str, text: str, values: Mapping[str, Fraction]) -> Term:
    numbers = re.sub(r"[A-Za-z]+", lambda match: _number(values[match.group()]), text)
    return Term(part, name, text.replace("*", "·"), numbers.replace("*", "·"), float(value_of(text, values)))


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"


def _values(generation: Generation, a: FormulaArguments, microbatches: int | None) -> dict[str, Fraction]:
    """The value of each symbol that has one for these arguments."""
    moes = sum(moe_pattern(a)) if generation.by_block else 0
    experts = a.num_experts if generation.experts != "ignored" else 1
    norm = 1 if generation.norm_by_type and a.normalization == "RMSNorm" else 2
    expert_dp = a.world_size // (a.expert_tensor_parallel_size * a.expert_model_parallel_size * a.pipeline_model_parallel_size)
    known: dict[str, float | None] = {
        "h": a.hidden_size, "L": a.num_layers, "Ld": a.num_layers - moes, "Lm": moes, "a": a.num_attention_heads, "g": query_groups(a),
        "d": a.kv_channels, "f": a.ffn_hidden_size, "G": 1.5, "V": a.padded_vocab_size, "s": a.seq_length, "b": a.micro_batch_size,
        "t": a.tensor_model_parallel_size, "p": a.pipeline_model_parallel_size, "v": a.virtual_pipeline_model_parallel_size, "m": microbatches,
        "DP": a.data_parallel_size, "EDP": expert_dp, "EP": a.expert_model_parallel_size, "ETP": a.expert_tensor_parallel_size,
        "E": experts, "fm": a.moe_ffn_hidden_size, "fs": a.moe_shared_expert_intermediate_size, "l": a.moe_latent_size, "n": norm,
        "nq": norm if generation.norm_by_type else 1, "rq": a.q_lora_rank, "rk": a.kv_lora_rank, "dn": a.qk_head_dim, "dr": a.qk_pos_emb_head_dim,
        "dv": a.v_head_dim, "D": a.mtp_num_layers,
    }
    return {name: Fraction(value) for name, value in known.items() if value is not None}


def _weights(generation: Generation, a: FormulaArguments) -> Iterator[tuple[str, str]]:
    """Name and expression of each term of weights, gradients and optimizer on the most loaded shard."""
    dense = "(6 + 12/DP)" if a.use_distributed_optimizer else "18"
    expert = "(6 + 12/EDP)" if a.use_distributed_optimizer and generation.expert_shards else dense
    gate = "*G" if generation.gated and a.swiglu else ""
    layered = _by_block(generation, a, gate) if generation.by_block else _closed_form(generation, a, gate)
    for name, text, parts in layered:
        yield name, f"{text}/{parts}*{expert if name.endswith('experts') and 'shared' not in name else dense}"
    yield "embedding", f"h*V/t*{dense}"
    if a.untie_embeddings_and_output_weights and a.pipeline_model_parallel_size == 1:
        yield "output_weight", f"h*V/t*{dense}"


Divided = tuple[str, str, str]
"""Name of a term, its parameters over the whole model, what divides them."""


def _closed_form(generation: Generation, a: FormulaArguments, gate: str) -> Iterator[Divided]:
    """G01 to G08: every layer alike, everything divided by TP."""
    yield "attention", ("2*h*a*d*(1 + g/a)*L" if generation.kv_channels else "2*h*h*(1 + g/a)*L"), "(p*t)"
    experts = "*E" if generation.experts == "every_layer" and a.num_experts else ""
    yield ("mlp_of_all_experts" if experts else "mlp"), (f"2*h*f{experts}{gate}*L" if generation.ffn else "2*h*(4*h)*L"), "(p*t)"
    yield "layer_norms", "4*h*L", "(p*t)"
    yield "final_norm", "2*h", "(p*t)"


def _by_block(generation: Generation, a: FormulaArguments, gate: str) -> Iterator[Divided]:
    """G09 on: layers by kind; from G14 on norms and routers are replicated and experts have shards of their own."""
    moes = sum(moe_pattern(a))
    whole, experts = ("p", "(p*EP*ETP)") if generation.expert_shards else ("(p*t)", "(p*t)")
    yield "attention", f"{_attention(a)}*L", "(p*t)"
    if moes < a.num_layers:
        yield "mlp", f"2*h*f{gate}*{'Ld' if moes else 'L'}", "(p*t)"
    yield "layer_norms", "2*n*h*L", whole
    yield "final_norm", "n*h", whole
    if moes:
        yield "routed_experts", f"{_routed(generation, a, gate)}*Lm", experts
        if a.moe_shared_expert_intermediate_size:
            yield "shared_experts", f"2*h*fs{gate}*Lm", "(p*t)"
        if generation.expert_shards:
            yield "router", f"({_router(generation, a)})*Lm", "p"
    if a.mtp_num_layers:
        yield from _mtp(generation, a, gate, moe=bool(moe_pattern(a)[-1]))


def _mtp(generation: Generation, a: FormulaArguments, gate: str, *, moe: bool) -> Iterator[Divided]:
    """The MTP block, whole on the shard; its layers are of the last layer's kind."""
    inside = f" + 2*h*fs{gate}" if moe and a.moe_shared_expert_intermediate_size else "" if moe else f" + 2*h*f{gate}"
    if not generation.expert_shards:
        routed = f" + {_routed(generation, a, gate)}" if moe else ""
        yield "mtp_block", f"({_attention(a)}{inside}{routed} + 2*n*h)*D", "t"
        return
    yield "mtp_block", f"({_attention(a)}{inside})*D", "t"
    yield "mtp_norms_and_router", f"(2*n*h{' + ' + _router(generation, a) if moe else ''})*D", "1"
    if moe:
        yield "mtp_routed_experts", f"{_routed(generation, a, gate)}*D", "(EP*ETP)"


def _attention(a: FormulaArguments) -> str:
    if not a.multi_latent_attention:
        return "2*h*a*d*(1 + g/a)"
    query = "h*a*(dn + dr)" if a.q_lora_rank is None else "rq*(h + a*(dn + dr) + nq)"
    return f"({query} + rk*(h + a*(dn + dv) + nq) + h*dr + a*dv*h)"


def _routed(generation: Generation, a: FormulaArguments, gate: str) -> str:
    return f"2*{'l' if generation.latent and a.moe_latent_size is not None else 'h'}*fm*E{gate}"


def _router(generation: Generation, a: FormulaArguments) -> str:
    bias = " + E" if a.add_bias_linear else ""
    gate = " + h" if a.moe_shared_expert_intermediate_size > 0 and a.moe_shared_expert_gate else ""
    return f"h*E{bias}{gate}" + (" + 2*h*l" if generation.latent and a.moe_latent_size is not None else "")


def _with_sp(generation: Generation, a: FormulaArguments, microbatches: int | None) -> Iterator[tuple[str, str]]:
    factor = _schedule(a, microbatches)
    yield "layers", f"s*b*h*{'(18 + 4*f/h)' if generation.ffn else '34'}*L{factor}/t"
    yield "input_ids", f"8*s*b*p{factor}/t"
    yield "embedding_dropout", f"s*b*h*p{factor}/t"
    if a.pipeline_model_parallel_size == 1:
        yield "output_and_loss", "4*s*b*h*(1 + V/h)/t"


def _without_sp(a: FormulaArguments, microbatches: int | None) -> Iterator[tuple[str, str]]:
    factor = _schedule(a, microbatches)
    counted = [("layers", f"s*b*h*(10 + 24/t)*L{factor}"), ("input_ids", f"8*s*b*p{factor}"), ("embedding_dropout", f"s*b*h*p{factor}")]
    if a.pipeline_model_parallel_size == 1:
        counted.append(("output_and_loss", "2*(s*b*V/t + s*b*h)"))
    yield from counted
    yield "overhead", f"0.05*({' + '.join(text for _, text in counted)})"


def _schedule(a: FormulaArguments, microbatches: int | None) -> str:
    """What the schedule multiplies one pipeline of micro-batches by."""
    if a.virtual_pipeline_model_parallel_size is not None:
        return "*(1 + (p - 1)/(p*v))"
    return "" if microbatches is None or microbatches >= a.pipeline_model_parallel_size else "*m/p"
