"""The pipeline layout argument, as a list of cells of `E` embedding, `t` decoder layer, `m` MTP layer, `L` loss.

Source: `PipelineParallelLayerLayout` of Megatron-Core. Commas are cosmetic; `(xyz)*n` repeats a group, then `x*n` repeats one
character (`|` too); `|` ends a cell and empty cells are legal. `Et*3|(tt|)*29,m|L` is 32 cells with 61 layers. A list of
lists of words is the same thing.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.errors import LedgerError

NAME = "pipeline_model_parallel_layout"
_WORDS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_MAX_CHARACTERS = 100_000
_GROUP = re.compile(r"\(([^)]+)\)\*(\d+)")
_ONE = re.compile(r"(.)\*(\d+)")


def parse_layout(layout: Any) -> list[str]:
    """Cells in order, each a string of the letters E, t, m, L. Raises LedgerError for anything else."""
    if isinstance(layout, str):
        return _from_text(layout)
    if isinstance(layout, list) and all(isinstance(cell, list) for cell in layout):
        return ["".join(_letter(layout, word) for word in cell) for cell in layout]
    raise LedgerError(f"argument {NAME} is {layout!r}; a string such as 'Ett|tt|ttL' or a list of lists of words would fit")


def check_layout(cells: list[str], stages: int, layers: int, mtp_layers: int) -> None:
    """Megatron's rules for a layout; a broken one is a sentence."""
    flat = "".join(cells)
    if len(cells) % stages:
        raise LedgerError(f"argument {NAME} has {len(cells)} cells; a multiple of pipeline_model_parallel_size {stages} would fit")
    if flat[:1] != "E" or flat.count("E") != 1:
        raise LedgerError(f"argument {NAME} has {flat.count('E')} E and starts with {flat[:1]!r}; exactly one E, first of all, would fit")
    if flat[-1:] != "L" or flat.count("L") != 1:
        raise LedgerError(f"argument {NAME} has {flat.count('L')} L and ends with {flat[-1:]!r}; exactly one L, last of all, would fit")
    if flat.count("t") != layers:
        raise LedgerError(f"argument {NAME} has {flat.count('t')} t; num_layers {layers} would fit")
    if flat.count("m") != mtp_layers:
        raise LedgerError(f"argument {NAME} has {flat.count('m')} m; mtp_num_layers {mtp_layers} would fit")
    _check_mtp(cells, stages, flat)


def _check_mtp(cells: list[str], stages: int, flat: str) -> None:
    holders = [index for index, cell in enumerate(cells) if "m" in cell]
    if not holders:
        return
    if "t" in flat[flat.index("m"):]:
        raise LedgerError(f"argument {NAME} has a t after an m; every m after every t would fit")
    if len(holders) > 1:
        raise LedgerError(f"argument {NAME} has m in {len(holders)} cells; all m in one cell would fit")
    if holders[0] < len(cells) - stages:
        raise LedgerError(f"argument {NAME} has m in cell {holders[0]}; cell {len(cells) - stages} or later, a last chunk, would fit")


def _from_text(text: str) -> list[str]:
    unrolled = text.replace(",", "")
    for pattern in (_GROUP, _ONE):
        length = len(unrolled) + sum(len(match.group(1)) * _times(match.group(2)) for match in pattern.finditer(unrolled))
        if length > _MAX_CHARACTERS:
            raise LedgerError(f"argument {NAME} unrolls to more than {_MAX_CHARACTERS:,} layers; a layout of the model's own layers would fit")
        unrolled = pattern.sub(lambda match: match.group(1) * int(match.group(2)), unrolled)
    if wrong := sorted(set(unrolled) - set("EtmL|")):
        raise LedgerError(f"argument {NAME} is {text!r} and has {''.join(wrong)!r}; only E, t, m, L, '|', ',' and (...)*n or x*n would fit")
    return unrolled.split("|")


def _times(digits: str) -> int:
    return int(digits) if len(digits) < 7 else _MAX_CHARACTERS + 1


def _letter(layout: Any, word: Any) -> str:
    letter = _WORDS.get(word.strip().lower()) if isinstance(word, str) else None
    if letter is None:
        raise LedgerError(f"argument {NAME} is {layout!r} and has {word!r}; {', '.join(_WORDS)} would fit")
    return letter
