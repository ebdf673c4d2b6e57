"""Pickles as torch's C++ pickler writes them: protocol 2, BINPUT for texts alone, other key orders, one group for a whole list."""

from __future__ import annotations

import struct
from typing import Any


def dumps(value: Any) -> bytes:
    """A snapshot as `_memory_snapshot_pickled()` gives it."""
    return b"\x80\x02" + _Writer().of(value) + b"."


class _Writer:
    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def of(self, value: Any) -> bytes:
        if value is None or isinstance(value, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, tuple):
            return b"".join(map(self.of, value)) + b"\x86" if len(value) == 2 else b"(" + b"".join(map(self.of, value)) + b"t"
        if isinstance(value, list):
            return b"](" + b"".join(map(self.of, value)) + b"e"
        return b"}(" + b"".join(self.of(key) + self.of(one) for key, one in reversed(value.items())) + b"u"

    def _text(self, text: str) -> bytes:
        if text not in self._known:
            at = len(self._known)
            self._known[text] = b"h" + bytes((at,)) if at < 256 else b"j" + struct.pack("<I", at)
            put = b"q" + bytes((at,)) if at < 256 else b"r" + struct.pack("<I", at)
            return b"X" + struct.pack("<I", len(text.encode())) + text.encode() + put
        return self._known[text]


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes((value,))
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True) if value < 2**63 else b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
