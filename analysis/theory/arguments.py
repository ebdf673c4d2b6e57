"""Megatron's arguments as a mapping of native values, whatever the source printed.

A JSON file gives JSON types, an argument dump gives `str(value)` (`True`, `None`, `[0, 1, 1]`, `AttnBackend.flash`),
a launch command may give an expression (`([0]*3+[1]*58)`). All become the same Python values here, read by a small
grammar and never evaluated: a dump is input, not code. Names are Megatron's own (`args.<name>`); a few command-line
spellings that carry another name or the opposite sense are translated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.errors import LedgerError

Args = Mapping[str, Any]

_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}
_MAX_LIST = 100_000
_MOST = dict.fromkeys(("num_layers", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
                       "mtp_num_layers"), 100_000)
"""Sizes that are listed one by one: a larger number is a mistake, not a model."""

COMMAND_LINE_NAMES: dict[str, tuple[str, Any]] = {
    "disable_bias_linear": ("add_bias_linear", False),
    "group_query_attention": ("group_query_attention", True),
    "no_rope_fusion": ("apply_rope_fusion", False),
    "no_gradient_accumulation_fusion": ("gradient_accumulation_fusion", False),
    "no_bias_swiglu_fusion": ("bias_swiglu_fusion", False),
}
"""Switches whose argument has another name or sense; applied where the value is true."""

_SAME_MEANING = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "mla": "multi_latent_attention",
}


def native(value: Any) -> Any:
    """One value as a native type: text that prints a number, a word or a list becomes it, other text stays."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in "+-.0123456789" and (number := _number(text)) is not None:
        return number
    if text[:1] in "[(" and (parsed := _expression(text)) is not None:
        return parsed
    return text


def native_args(args: Args) -> dict[str, Any]:
    """All arguments with native values and Megatron's argument names; dashes, and a leading `--` where an empty value is a switch, are accepted."""
    result: dict[str, Any] = {}
    for printed, value in args.items():
        name = printed.lstrip("-").replace("-", "_")
        parsed = True if value == "" and printed.startswith("--") else native(value)
        if name in COMMAND_LINE_NAMES and parsed is True:
            name, parsed = COMMAND_LINE_NAMES[name]
        result[_SAME_MEANING.get(name, name)] = parsed
    if result.get("recompute_activations") is True and result.get("recompute_granularity") is None:
        result["recompute_granularity"] = "selective"
    return result


def whole(args: Args, name: str, default: int | None = None, *, least: int = 1) -> int:
    """A whole number of at least `least`, or one sentence that names the argument, its value and what would fit."""
    value = args.get(name)
    value = default if value is None else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    most = _MOST.get(name, 10**15)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        shown = "missing" if name not in args or args[name] is None else f"{value!r:.60}"
        fits = f"from {least} to {most}" if isinstance(value, int) and value > most else f"of at least {least}"
        raise LedgerError(f"argument {name} is {shown}; a whole number {fits} would fit")
    return value


def fraction(args: Args, name: str, default: float) -> float:
    """A number from 0 to 1, or one sentence."""
    value = args.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise LedgerError(f"argument {name} is {value!r}; a number from 0 to 1 would fit")
    return float(value)


def padded_vocabulary(args: Args) -> int | None:
    """The padded vocabulary: as given, else padded as Megatron does it: up to a multiple of divisor x TP; None where unknown."""
    if args.get("padded_vocab_size"):
        return whole(args, "padded_vocab_size")
    if not args.get("vocab_size"):
        return None
    multiple = whole(args, "make_vocab_size_divisible_by", 128) * whole(args, "tensor_model_parallel_size", 1)
    return -(-whole(args, "vocab_size") // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An argument that cannot be true beside the others: its name, its value and the sentence that says what would fit."""

    argument: str
    value: Any
    sentence: str

    def error(self) -> LedgerError:
        """The same as an error of the command."""
        return LedgerError(self.sentence)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _expression(text: str) -> Any:
    """A list, or an expression of lists with `+` and `*` as Megatron's frequency arguments allow; None where it is anything else."""
    if len(text) > _MAX_LIST:
        return None
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_of_type(_value(node.operand), int, float)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sized(_of_type(_value(node.left), list), _of_type(_value(node.right), list), 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _value(node.left), _value(node.right)
        listed, times = (left, right) if isinstance(left, list) else (right, left)
        return _sized([], _of_type(listed, list), _of_type(times, int))
    raise ValueError("not a list expression")


def _of_type(value: Any, *kinds: type) -> Any:
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError("not a list expression")
    return value


def _sized(head: list[Any], body: list[Any], times: int) -> list[Any]:
    if len(head) + len(body) * max(times, 0) > _MAX_LIST:
        raise ValueError("too long")
    return head + body * times
