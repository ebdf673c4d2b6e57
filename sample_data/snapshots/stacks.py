"""The Python stacks of a Megatron-LM rank, innermost frame first: where each tensor of a training step is allocated.

Module paths, functions and lines in `stacks.txt` are those of Megatron-LM and Transformer Engine of August 2026. They are written from
those sources, apart from the rules that read them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

Frame = tuple[str, str, int]
"""Function, file, line."""

_ROOTS = {"megatron": "/opt/megatron-lm/", "pretrain_gpt.py": "/opt/megatron-lm/"}
_PACKAGES = "/usr/local/lib/python3.12/dist-packages/"


class Stacks:
    """Every distinct stack once, in `all`."""

    def __init__(self) -> None:
        self.all: list[tuple[Frame, ...]] = []
        self._known: dict[tuple[str, str], int] = {}

    def of(self, tensor: str, detail: str = "") -> int:
        """The number of the stack that allocates a tensor, a section of `stacks.txt`; `detail` fills its gap."""
        key = tensor, detail
        if key not in self._known:
            self._known[key] = len(self.all)
            self.all.append(tuple(_frames(tensor, detail)))
        return self._known[key]


@cache
def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "stacks.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _frames(section: str, details: str) -> list[Frame]:
    found: list[Frame] = []
    fills = iter(details.split(","))
    for line in _sections()[section]:
        while "{}" in line:
            line = line.replace("{}", next(fills), 1)
        if line.startswith("@"):
            found += _frames(*line.split(" ")) if " " in line else _frames(line, "")
        else:
            function, place = line.rsplit(" ", 1)
            path, number = place.split(":")
            found.append((function, _ROOTS.get(path.split("/")[0], _PACKAGES) + path, int(number)))
    return found
