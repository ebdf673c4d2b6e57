"""Stacks and frames kept once, by content.

A trace of a million events holds half a million lists of frames and a few hundred different stacks. A frame's dictionary is one
object wherever it is used, so lists with the same length and the same first, middle and last frame are compared as they are, which looks at
identities first; a tuple of all identities as key would take five times as long. Identities hold because the whole snapshot is alive meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.parsers.snapshot.columns import FRAMES
from ingest.parsers.snapshot.limits import damaged
from ingest.parsers.snapshot.texts import Texts
from ingest.parsers.snapshot.values import counted, many

_FRAME = frozenset(("name", "filename", "line"))
_MOST_ALIKE = 16
Frame = tuple[int | None, int | None, int | None]


class Stacks:
    """Lists of frames in, rows of `STACKS` out."""

    def __init__(self, texts: Texts, unknown: Counter[str]) -> None:
        self._texts, self._unknown = texts, unknown
        self._by_list: dict[int, int | None] = {id(None): None}
        self._alike: dict[tuple[int, int, int, int], list[tuple[list[Any], int]]] = {}
        self._by_content: dict[tuple[int, ...], int] = {}
        self._frame_by_id: dict[int, int] = {}
        self._frame_by_content: dict[Frame, int] = {}

    def indexes(self, lists: list[Any]) -> pa.Array:
        """The stack of each list, null for None."""
        if set(map(type, lists)) - {list, type(None)}:
            other = next(one for one in lists if type(one) not in (list, type(None)))
            raise damaged(f"`frames` is a {type(other).__name__} where a list is due")
        known = self._by_list
        identities = list(map(id, lists))
        for identity, frames in zip(identities, lists, strict=True):
            if identity not in known:
                known[identity] = self._stack(frames)
        return pa.array(list(map(known.__getitem__, identities)), pa.int32())

    def _stack(self, frames: list[Any]) -> int:
        count = len(frames)
        alike = self._alike.setdefault((count, id(frames[0]), id(frames[count >> 1]), id(frames[-1])) if count else (0, 0, 0, 0), [])
        for other, index in alike:
            if other == frames:
                return index
        content = tuple(map(self._frame, frames))
        index = self._by_content.setdefault(content, len(self._by_content))
        if len(alike) < _MOST_ALIKE:
            alike.append((frames, index))
        return index

    def _frame(self, frame: Any) -> int:
        index = self._frame_by_id.get(id(frame))
        if index is None:
            index = self._frame_by_id[id(frame)] = self._frame_by_content.setdefault(self._content(frame), len(self._frame_by_content))
        return index

    def _content(self, frame: Any) -> Frame:
        if type(frame) is not dict:
            raise damaged(f"a frame is a {type(frame).__name__} where a dictionary is due")
        for key in frame.keys() - _FRAME:
            counted(self._unknown, f"frame key {many(key)}")
        line = frame.get("line")
        if line is not None and (type(line) is not int or not -(2**63) <= line < 2**63):
            raise damaged(f"a frame's `line` is a {type(line).__name__} that is no whole number of 64 bits")
        return self._text(frame.get("name")), self._text(frame.get("filename")), line

    def _text(self, text: Any) -> int | None:
        if text is not None and type(text) is not str:
            raise damaged(f"a frame's name is a {type(text).__name__} where a text is due")
        return None if text is None else self._texts.index(text)

    def table(self) -> pa.Table:
        """The stacks as lists of rows of the frames."""
        stacks = list(self._by_content)
        offsets = np.concatenate(([0], np.cumsum([len(stack) for stack in stacks], dtype=np.int64)))
        if offsets[-1] >= 2**31:
            raise damaged("holds more than two thousand million different frames of stacks")
        rows = np.fromiter((frame for stack in stacks for frame in stack), np.int32, int(offsets[-1]))
        return pa.table({"frames": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(rows))})

    def frames(self) -> pa.Table:
        """The frames."""
        names, files, lines = zip(*self._frame_by_content, strict=True) if self._frame_by_content else ((), (), ())
        return pa.table([pa.array(names, pa.int32()), pa.array(files, pa.int32()), pa.array(lines, pa.int64())], schema=FRAMES)
