"""The printed block of a theoretical footprint, found in any text: launcher prefixes cut off, other lines passed over.

A block ends with its footprint line (or the sentence for hybrid models). Training prints it verbose and may print it several
times; a grep keeps only some of its lines, and a blank line after a full footprint is the mark of a whole block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"(?:Number of (?:active )?parameters in |Total number of (?:active )?parameters in billions: |compute_activation_memory"
    r"|Activation memory footprint per transformer layer|Memory penalty from interleaved schedule: |Number of in-flight microbatches: "
    r"|(?:ValueError: )?Theoretical memory footprints).*")
_FOREIGN = re.compile(
    r">>> \[FS\]|Number of (?:attn|dense mlp|sparse mlp) parameters|footprint per (?:dense|sparse) transformer layer"
    r"|num_bytes_per_parameter=|model states=|Number of parameters in every GPU|Number of activation in every GPU")
"""Words of other programs that print a footprint line of the same name: FlagScale, Megatron-Bridge, stand-alone estimators."""
_FULL = re.compile(r"weight and optimizer=\S+ MB, activation=\S+ MB, total=\S+ MB")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

FIGURES = {
    "weight_and_optimizer": re.compile(r"weight and optimizer=(-?\d+(?:\.\d+)?) MB"),
    "activation": re.compile(r"activation=(-?\d+(?:\.\d+)?) MB"),
    "total": re.compile(r"total=(-?\d+(?:\.\d+)?) MB"),
    "in_flight": re.compile(r"Number of in-flight microbatches: (\d+)"),
    "layers_billions": re.compile(r"Number of parameters in transformer (?:block|layers) in billions: +(\S+)"),
    "mtp_billions": re.compile(r"Number of parameters in mtp block in billions: +(\S+)"),
    "embedding_billions": re.compile(r"Number of parameters in embedding layers in billions: +(\S+)"),
    "total_billions": re.compile(r"Total number of parameters in billions: +(\S+)"),
}
"""Figures of a block, as printed: MB are MiB."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the block, with its 1-based number in the text it came from; runs of blanks are one blank."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one printed footprint; `closed` when the blank line that ends a full footprint follows; `foreign` words in it that
    Megatron-LM never printed."""

    lines: tuple[Line, ...]
    closed: bool
    foreign: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines without their numbers."""
        return tuple(line.text for line in self.lines)

    @property
    def lone_footprint(self) -> bool:
        """Only a full footprint line, and nothing says whether it was all that was printed."""
        return len(self.lines) == 1 and bool(_FULL.search(self.lines[0].text)) and not self.closed

    def figure(self, name: str) -> tuple[float, int] | None:
        """A figure of `FIGURES` as printed, and the number of its line."""
        for line in self.lines:
            if match := FIGURES[name].search(line.text):
                try:
                    return float(match.group(1)), line.number
                except ValueError:
                    return None
        return None

    def line_of(self, words: str) -> int | None:
        """The number of the first line that has these words."""
        return next((line.number for line in self.lines if words in line.text), None)


def normal(text: str) -> str:
    """A line with runs of blanks as one: pipes and viewers change them, and no generation differs in them alone."""
    return " ".join(text.split())


def shape(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Lines with their numbers taken out."""
    return tuple(_NUMBER.sub("#", line) for line in lines)


def blocks(text: str) -> list[Block]:
    """Every block of a text, in order; lines after the last footprint are a block of their own (torn)."""
    found: list[Block] = []
    lines: list[Line] = []
    foreign: str | None = None
    rows = text.splitlines()
    for number, row in enumerate(rows, 1):
        if strange := _FOREIGN.search(row):
            foreign = strange.group()
        match = _LINE.search(row)
        if not match:
            continue
        said = normal(match.group())
        lines.append(Line(number, said))
        if "Theoretical memory footprints" in said:
            prefix = row[: match.start()].strip()
            after = rows[number].strip() if number < len(rows) else "-"
            found.append(Block(tuple(lines), after in ("", prefix), foreign))
            lines, foreign = [], None
    return [*found, Block(tuple(lines), False, foreign)] if lines else found
