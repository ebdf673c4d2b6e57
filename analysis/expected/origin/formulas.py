"""What a tensor's size is made of, in symbols and with this run's numbers: (a·d/t + 2·g/t·d)·h = (32·128/2 + 2·8/2·128)·4,096.

Source: the tables of docs/methods/expected.md. The size itself always comes from the ledger's own objects; an expression here is shown only where
it comes to exactly that size, so that a text cannot claim a formula that was not used: another variant of a model keeps its plain number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from analysis.expected.moe import routed_tokens
from analysis.expected.origin.lines import Line
from analysis.expected.run import Run
from analysis.theory.terms import value_of

_HEADS, _GROUPED = "a*d/t", ("(a*d/t + 2*g/t*d)", "(a*d/t + 2*d)")
_MIXER = ("nh/t*dh", "ng/t*ds")
ELEMENTS: dict[str, tuple[str, ...]] = {
    "embedding": ("V/t*h",), "output_layer": ("V/t*h",), "position_embedding": ("np*h",), "linear_proj": (f"{_HEADS}*h", "a/t*dv*h"),
    "linear_qkv": tuple(f"{width}*h" for width in _GROUPED), "linear_qkv_bias": _GROUPED, "qk_norm": ("d",), "q_down": ("rq*h",),
    "q_up": ("a/t*(dn + dr)*rq",), "q_proj": ("a/t*(dn + dr)*h",), "kv_down": ("(rk + dr)*h",), "kv_up": ("a/t*(dn + dv)*rk",), "kv_norm": ("rk",),
    "q_norm": ("rq",), "mlp_fc1": ("G*f/t*h",), "mlp_fc2": ("f/t*h",), "mlp_fc1_bias": ("G*f/t",), "experts_fc1": ("G*fe/ETP*h", "G*fe/ETP*l"),
    "experts_fc2": ("fe/ETP*h", "fe/ETP*l"), "experts_fc1_bias": ("G*fe/ETP",), "shared_fc1": ("G*fs/t*h",), "shared_fc2": ("fs/t*h",),
    "shared_fc1_bias": ("G*fs/t",), "router": ("E*h",), "router_bias": ("E",), "latent_projection": ("l*h",), "mtp_projection": ("2*h*h/t",),
    "in_projection": (f"(2*{_MIXER[0]} + 2*{_MIXER[1]} + nh/t)*h",), "convolution": (f"({_MIXER[0]} + 2*{_MIXER[1]})*k1",),
    "convolution_bias": (f"({_MIXER[0]} + 2*{_MIXER[1]})",), "per_head": ("nh/t",), "gated_norm": (_MIXER[0],), "out_projection": (f"{_MIXER[0]}*h",),
}
"""Elements of one parameter on a rank, by its name; whichever expression fits the model. A vector of no other kind has `h`."""
SAVED: dict[str, tuple[str, ...]] = {
    "attention_input": ("r*h*T",), "mlp_input": ("r*h*T",), "attention_norm": ("w*h*T",), "mlp_norm": ("w*h*T",), "pre_mlp_norm": ("w*h*T",),
    "attention_norm_statistics": ("4*nv*T",), "mlp_norm_statistics": ("4*nv*T",),
    "qkv": (*(f"w*{width}*S" for width in _GROUPED), "w*a/t*(2*(dn + dr) + dv)*S"), "log_sum_exp": ("4*a/t*S",),
    "scores": ("w*a/t*s/c*S", "(2*w + 1)*a/t*s/c*S"), "attention_output": (f"w*{_HEADS}*S", "w*a/t*dv*S"),
    "attention_output_copy": (f"w*{_HEADS}*S", "w*a/t*dv*S"), "attention_output_quantised": (f"w*{_HEADS}*S",),
    "qk_norm": (f"w*({_HEADS} + g/t*d)*S", f"w*({_HEADS} + d)*S"), "attention_dropout_mask": ("h*T",), "mlp_dropout_mask": ("h*T",),
    "q_latent": ("2*w*rq*T",), "kv_latent": ("w*(2*rk + dr)*T",), "mlp_fc1": ("w*G*f/t*S", "2*w*G*f/t*S"), "mlp_act": ("w*f/t*S",),
    "experts_input": ("w*h*C", "w*l*C"), "experts_fc1": ("w*G*fe/ETP*C", "2*w*G*fe/ETP*C"), "experts_act": ("w*fe/ETP*C",),
    "experts_unweighted": ("w*fe/ETP*C",), "shared_fc1": ("w*G*fs/t*S", "2*w*G*fs/t*S"), "shared_act": ("w*fs/t*S",), "router": ("(2*x + 5)*E*T",),
    "row_maps": ("8*k*T",), "probabilities": ("4*C",), "mamba_projected": (f"w*(2*{_MIXER[0]} + 2*{_MIXER[1]} + nh/t)*S",),
    "mamba_scanned": (f"w*{_MIXER[0]}*S",), "mamba_output": (f"w*{_MIXER[0]}*S",),
    "dropout mask of the embedding": ("h*T",), "received input": ("w*h*T",), "input, the rest is recomputed": ("r*h*T", "r*h*T/t"),
}
"""Bytes of one saved tensor of one layer and micro-batch; a quantised one has one byte an element in place of w."""
MEANING = {
    "alive": "micro-batches alive of a chunk", "count": "tensors of this kind on the rank",
    "h": "hidden size", "a": "heads", "g": "query groups", "d": "head width", "f": "FFN width", "G": "branches of the first MLP matrix",
    "V": "padded vocabulary", "s": "sequence", "b": "micro-batch", "t": "TP", "c": "CP", "S": "tokens of a rank, s·b/c",
    "T": "tokens outside sharded GEMMs, S/t with sequence parallelism", "w": "bytes a weight", "r": "bytes of the residual stream",
    "P": "parameters of the rank", "n": "ranks that share the state", "E": "experts", "EP": "expert parallel size",
    "ETP": "expert tensor parallel size", "k": "experts a token", "C": "tokens of the rank's experts, k·T·ETP when balanced",
    "fe": "FFN width of an expert", "fs": "FFN width of the shared expert", "l": "latent width", "x": "bytes of the router's dtype",
    "nv": "vectors of a norm", "np": "positions", "rq": "query latent", "rk": "key and value latent", "dn": "head width without position",
    "dr": "head width with position", "dv": "value width", "nh": "Mamba heads", "dh": "width of a Mamba head", "ng": "Mamba groups",
    "ds": "Mamba state", "k1": "width of the convolution",
}
"""Every symbol and what it stands for."""

_SYMBOL = re.compile(r"[A-Za-z]+\d?")


def values(run: Run) -> dict[str, Fraction]:
    """This run's value of each symbol of a tensor; latent attention has no groups and no one head width."""
    model, options, mixer = run.model, run.options, run.model.mamba
    known = {
        "h": model.hidden, "a": model.heads, "g": model.groups, "d": model.head_width, "f": model.ffn, "G": model.gate, "V": model.vocabulary,
        "s": options.sequence, "b": options.micro_batch, "t": options.tp, "c": options.cp, "S": options.tokens, "T": options.local_tokens,
        "w": options.weight_bytes, "r": options.residual_bytes, "E": model.experts, "EP": run.sizes.ep, "ETP": run.sizes.etp, "k": model.top_k,
        "C": routed_tokens(model, options, run.sizes), "fe": model.expert_ffn, "fs": model.shared_ffn, "l": model.latent, "x": options.router_bytes,
        "nv": model.norm, "np": model.positions, "rq": model.q_latent, "rk": model.kv_latent, "dn": model.nope_width, "dr": model.rope_width,
        "dv": model.value_width, "nh": mixer.heads, "dh": mixer.head_width, "ng": mixer.groups, "ds": mixer.state, "k1": mixer.convolution,
    }
    return {name: Fraction(value) for name, value in known.items() if not (model.mla and name in ("g", "d"))}


def elements_of(name: str, size: int, known: Mapping[str, Fraction]) -> tuple[str, str]:
    """The elements of a parameter in symbols and in numbers; plain where no expression comes to them."""
    return _spelled((*ELEMENTS.get(name, ()), "h"), size, known) or ("elements", f"{size:,}")


def saved_of(name: str, size: int, known: Mapping[str, Fraction]) -> tuple[str, str]:
    """The bytes of a saved tensor of one layer in symbols and in numbers; plain where no expression comes to them."""
    written = SAVED.get(name, ())
    return _spelled((*written, *(text.removeprefix("w*") for text in written)), size, known) or ("bytes", f"{size:,}")


def meanings(lines: Iterable[Line]) -> dict[str, str]:
    """The symbols that these lines use, each with what it stands for."""
    used = {name for line in lines for name in _SYMBOL.findall(line.symbols)}
    return {name: meaning for name, meaning in MEANING.items() if name in used}


def _spelled(written: Iterable[str], size: int, known: Mapping[str, Fraction]) -> tuple[str, str] | None:
    text = next((text for text in written if known.keys() >= {*_SYMBOL.findall(text)} and value_of(text, known) == size), None)
    if text is None:
        return None
    numbers = _SYMBOL.sub(lambda match: f"{int(known[match.group()]):,}", text)
    return _dotted(text), _dotted(numbers)


def _dotted(text: str) -> str:
    return text.replace("*", " · ").replace("/", " / ")
