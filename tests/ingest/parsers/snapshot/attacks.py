"""Pickles that ask for more than data, by name; `CANARY` in one is the file it would create where it ran."""

from __future__ import annotations

import copy
import pickle
import random
import struct
from collections.abc import Iterator
from typing import Any

from tests.ingest.parsers.snapshot import made

CANARY = "ran-by-a-pickle"
_COMMAND = f"touch {CANARY}".encode()
_TEXT = b"X" + struct.pack("<I", len(_COMMAND)) + _COMMAND
_MARK_TEXT = "the place of the attack"

CODE: dict[str, bytes] = {
    "GLOBAL": b"cos\nsystem\n",
    "GLOBAL called": b"cos\nsystem\n" + _TEXT + b"\x85R",
    "STACK_GLOBAL": b"X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93" + _TEXT + b"\x85R",
    "INST": b"(" + _TEXT + b"ios\nsystem\n",
    "OBJ": b"(cos\nsystem\n" + _TEXT + b"o",
    "OBJ of a text": b"(X\x01\x00\x00\x00a" + _TEXT + b"o",
    "EXT1": b"\x82\x01", "EXT2": b"\x83\x01\x01", "EXT4": b"\x84\x01\x01\x01\x00",
    "PERSID": b"Pid\n", "BINPERSID": b"K\x01Q",
    "BUILD": b"}}X\x01\x00\x00\x00aK\x01sb", "BUILD with slots": b"}N}X\x01\x00\x00\x00aK\x01s\x86b",
    "REDUCE": b"])R", "NEWOBJ": b"])\x81", "NEWOBJ_EX": b"])}\x92", "BUILD of nothing": b"}Nb",
}
"""Opcodes that leave one value, to stand anywhere in a pickle. None of them may be in a snapshot."""

LENGTHS: dict[str, bytes] = {
    "LONG_BINPUT": b"]r\xff\xff\xff\x3f", "LONG_BINGET": b"j\xff\xff\xff\x7f", "FRAME": b"\x95" + struct.pack("<Q", 2**62),
    "FRAME of 2 GB": b"\x95" + struct.pack("<Q", 2**31), "FRAME of 2**64": b"\x95" + b"\xff" * 8, "BINUNICODE": b"X\xff\xff\xff\xff",
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", 2**40), "BINBYTES8": b"\x8e" + struct.pack("<Q", 2**40),
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", 2**40),
    "LONG4": b"\x8b\xff\xff\xff\x7f", "LONG4 negative": b"\x8b\xff\xff\xff\xff", "LONG1": b"\x8a\xff", "BINSTRING": b"T\xff\xff\xff\x7f",
}
"""Lengths and indexes far beyond the file."""


def inside(code: bytes) -> bytes:
    """A whole snapshot of protocol 2 in which the allocator's settings are these opcodes."""
    plain = pickle.dumps({**made.snapshot(), "allocator_settings": _MARK_TEXT}, 2)
    text = b"X" + struct.pack("<I", len(_MARK_TEXT)) + _MARK_TEXT.encode()
    assert plain.count(text) == 1
    return plain.replace(text, code)


def alone(code: bytes) -> bytes:
    return b"\x80\x04" + code + b"."


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Snapshots with bytes changed, removed, doubled and put in from elsewhere."""
    draw = random.Random(seed)
    originals = [pickle.dumps(made.snapshot(), protocol) for protocol in (2, 3, 4, 5)]
    for _ in range(count):
        data = bytearray(draw.choice(originals))
        for _ in range(draw.randint(1, 4)):
            at, other, length = draw.randrange(len(data)), draw.randrange(len(data)), draw.randint(1, 12)
            kind = draw.randrange(5)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 2 and len(data) > 100:
                del data[at : at + length]
            elif kind == 3:
                data[at:at] = data[other : other + length]
            else:
                data[at:at] = draw.choice([*CODE.values(), *LENGTHS.values()])
        yield bytes(data)


_OTHERS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 2**64 - 1, -(2**63), -(2**63) - 1, 10**300, 1.5, float("inf"), "", "x", "alloc", "inactive",
    "\ud800", "é" * 100, [], [[]], {}, {"a": 1}, {1: 2}, (), (0, 1), (0, 1, 2), ("a",), [1, 2], {"name": "a"}, {"frames": []})
_KEYS = ("new", 5, None, "addr", "frames", "history", "device_free", "\ud800")


def changes(count: int, seed: int) -> Iterator[bytes]:
    """Whole pickles of snapshots in which values were replaced, removed and added: every type in every place."""
    draw = random.Random(seed)
    for _ in range(count):
        value = copy.deepcopy(made.snapshot())
        for _ in range(draw.choice((1, 1, 2, 3))):
            holder, key = draw.choice(list(_places(value)))
            kind = draw.randrange(5)
            if kind == 0:
                del holder[key]
            elif kind == 1 and isinstance(holder, dict):
                holder[draw.choice(_KEYS)] = copy.deepcopy(draw.choice(_OTHERS))
            elif kind == 2 and isinstance(holder, list):
                holder.append(copy.deepcopy(draw.choice(_OTHERS)))
            else:
                holder[key] = copy.deepcopy(draw.choice(_OTHERS))
            if not value:
                break
        yield pickle.dumps(value, draw.choice((2, 3, 4, 5)))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside with each of its keys or indexes."""
    for key in (list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
        yield value, key
        yield from _places(value[key])


def truncations(count: int) -> Iterator[bytes]:
    """Cuts of one snapshot at this many places, the first and the last byte among them."""
    data = pickle.dumps(made.snapshot(), 4)
    for step in range(count):
        yield data[: 1 + step * (len(data) - 2) // (count - 1)]
