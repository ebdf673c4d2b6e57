"""Damage as logs and files meet it: bytes lost, changed, doubled, cut, and pieces of other lines put between."""

from __future__ import annotations

import random

_PIECES = (b"\x00", b"\x1b[0m", b"\xff\xfe", b"[Rank 1]", b"{", b"}", b'"', b"'", b"|", b"\r", b" ", b"-", b"9" * 25, b"1e999", b"nan",
           b"null", b"\\u0000", b":", b",", b"[")


def mutated(data: bytes, chance: random.Random, times: int = 4) -> bytes:
    """`data` with up to `times` wounds; the same random source gives the same wounds."""
    found = bytearray(data)
    for _ in range(chance.randint(1, times)):
        at = chance.randrange(len(found) + 1)
        until = min(len(found), at + chance.choice((0, 1, 2, 5, 30)))
        kind = chance.randrange(6)
        if kind == 0:
            del found[at:until]
        elif kind == 1:
            found[at:until] = bytes(chance.randrange(256) for _ in range(until - at))
        elif kind == 2:
            found[at:at] = found[at:until] * chance.randint(1, 3)
        elif kind == 3:
            found[at:at] = chance.choice(_PIECES)
        elif kind == 4:
            found[at:until] = bytes(chance.choice(b"0123456789.eE+-") for _ in range(until - at))
        elif chance.random() < 0.3:
            del found[at:]
    return bytes(found)


def one_line(data: bytes) -> bytes:
    """The same without line ends."""
    return data.replace(b"\n", b" ").replace(b"\r", b" ")
