"""Paths by pattern: `*` and `?` within a name, `**` for any folders, `{run}` for a name to keep.

A pattern that begins with `/` is held against the whole absolute path, another one against its end, so that `checkpoints/**` is any folder
of that name; the name of an archive counts as a folder. Matching goes from left to right and never back: of several ways to read a path the one that
gives each wildcard as little as fits. So its time is bounded by length of path times length of pattern, which a regular expression from a
settings file would not promise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}|(\*)|([^*{}]+)")

Wild = str | None
"""The name under which a wildcard's text is kept; None for `*`."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One name of a pattern: literal chunks (`?` for any character) with a wildcard between each two."""

    chunks: tuple[str, ...]
    wilds: tuple[Wild, ...]

    def match(self, text: str) -> dict[str, str] | None:
        """What the names hold; None where the text does not fit."""
        first, *rest = self.chunks
        if not rest:
            return {} if len(text) == len(first) and _at(text, 0, first) else None
        last = rest.pop()
        stop, position = len(text) - len(last), len(first)
        if stop < position or not _at(text, 0, first) or not _at(text, stop, last):
            return None
        kept: dict[str, str] = {}
        for wild, chunk in zip(self.wilds, [*rest, None], strict=True):
            begin = position + (wild is not None)
            found = stop if chunk is None else next((at for at in range(begin, stop - len(chunk) + 1) if _at(text, at, chunk)), -1)
            if found < begin:
                return None
            if wild is not None:
                kept[wild] = text[position:found]
            position = found + len(chunk or "")
        return kept


def _at(text: str, position: int, chunk: str) -> bool:
    """Whether a chunk stands there; `?` is any character."""
    if "?" not in chunk:
        return text.startswith(chunk, position)
    part = text[position : position + len(chunk)]
    return len(part) == len(chunk) and all(one in ("?", other) for one, other in zip(chunk, part, strict=True))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of paths: blocks of segments with any number of folders between each two."""

    text: str
    blocks: tuple[tuple[Segment, ...], ...]
    names: frozenset[str]

    def match(self, path: str) -> dict[str, str] | None:
        """What the names hold in an absolute logical path (`archive.zip!member`); None where it does not fit."""
        parts = path.replace("!", "/").strip("/").split("/")
        first, *rest = self.blocks
        if not rest:
            return _block(first, parts, 0) if len(parts) == len(first) else None
        last = rest.pop()
        stop, position = len(parts) - len(last), len(first)
        ends = (_block(first, parts, 0), _block(last, parts, stop)) if stop >= position else (None, None)
        if ends[0] is None or ends[1] is None:
            return None
        kept = ends[0] | ends[1]
        for block in rest:
            found = next(((at, names) for at in range(position, stop - len(block) + 1) if (names := _block(block, parts, at)) is not None), None)
            if found is None:
                return None
            position, kept = found[0] + len(block), kept | found[1]
        return kept


def _block(block: tuple[Segment, ...], parts: list[str], start: int) -> dict[str, str] | None:
    kept: dict[str, str] = {}
    for segment, part in zip(block, parts[start : start + len(block)], strict=True):
        names = segment.match(part)
        if names is None:
            return None
        kept |= names
    return kept


def pattern(text: str) -> Pattern:
    """Read a pattern. Raises ValueError with a sentence for one that cannot be meant."""
    if not text.strip("/ ") or any(ord(character) < 32 for character in text):
        raise ValueError("is empty or holds characters that do not print")
    blocks: list[list[Segment]] = [[]]
    if not text.startswith("/"):
        blocks.append([])
    for part in text.strip("/").split("/"):
        if part == "**":
            if blocks[-1] or len(blocks) == 1:
                blocks.append([])
            continue
        if "**" in part or part in ("", ".", ".."):
            raise ValueError(f"has the part {part!r}; `**` stands alone between two `/`, and no part is empty, `.` or `..`")
        blocks[-1].append(_segment(part))
    names = [wild for block in blocks for segment in block for wild in segment.wilds if wild]
    if len(set(names)) < len(names):
        raise ValueError("keeps one name twice")
    return Pattern(text, tuple(map(tuple, blocks)), frozenset(names))


def _segment(part: str) -> Segment:
    chunks, wilds, position = [""], list[Wild](), 0
    for token in _TOKEN.finditer(part):
        if token.start() != position:
            break
        position = token.end()
        if token[3]:
            chunks[-1] += token[3]
        elif wilds and not chunks[-1]:
            raise ValueError(f"has nothing between two wildcards in {part!r}, so that nothing tells where the first ends")
        else:
            wilds.append(token[1])
            chunks.append("")
    if position != len(part):
        raise ValueError(f"has a brace that does not close around a name in {part!r}; names are letters, digits and `_`, as in {{run}}")
    return Segment(tuple(chunks), tuple(wilds))


def filled(template: str, names: dict[str, str]) -> str:
    """A template with each `{name}` replaced by what it holds."""
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], template)
