"""The check of instructions before anything is unpickled: what it lets through, and where it stops."""

from __future__ import annotations

import pickle
import pickletools
import random
import re
import struct

import pytest

from ingest.errors import LedgerError
from ingest.parsers.snapshot import opcodes
from ingest.parsers.snapshot.opcodes import checked_end

ALLOWED = frozenset(re.findall(r"\w+", """FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET EMPTY_DICT EMPTY_LIST
EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 SETITEM
SETITEMS APPEND APPENDS NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT SHORT_BINUNICODE BINUNICODE BINUNICODE8"""))


def text(draw: random.Random) -> bytes:
    size = draw.choice((0, 1, 3, 31, 32, 255))
    form = draw.choice(((b"\x8c", "<B"), (b"X", "<I"), (b"\x8d", "<Q")))
    return form[0] + struct.pack(form[1], size) + draw.randbytes(size)


def instruction(draw: random.Random) -> bytes:
    """One whole instruction of those allowed; its bytes are any, as only its length counts here."""
    size = draw.choice((0, 1, 8, 9, 10, 200))
    return draw.choice((
        bytes([draw.choice(b"\x94}])(\x85\x86\x87eusatN\x88\x89")]), b"h" + draw.randbytes(1), b"j" + draw.randbytes(4), b"q" + draw.randbytes(1),
        b"K" + draw.randbytes(1), b"M" + draw.randbytes(2), b"J" + draw.randbytes(4), b"G" + draw.randbytes(8),
        b"\x8a" + bytes([size]) + draw.randbytes(size), b"\x8b" + struct.pack("<i", size) + draw.randbytes(size), text(draw),
        b"r" + struct.pack("<I", 1)))


@pytest.mark.parametrize("many", [False, True])
def test_whole_instructions_pass_and_what_follows_them_is_found(monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    monkeypatch.setattr(opcodes, "_MANY_BYTES", 0 if many else 2**30)
    draw = random.Random(5)
    for _ in range(2000):
        data = b"\x80\x04" + b"".join(instruction(draw) for _ in range(draw.randrange(30)))
        assert checked_end(data + b".rest") == len(data) + 1
        for code in (b"c", b"R", b"\x93", b"\xff", b"0"):
            with pytest.raises(LedgerError, match=rf"\(byte {len(data):,}\)"):
                checked_end(data + code + b"os\nsystem\n.")
        with pytest.raises(LedgerError, match="cut off"):
            checked_end(data)


def test_every_instruction_is_allowed_or_refused_by_name() -> None:
    for opcode in pickletools.opcodes:
        if opcode.name in ALLOWED or opcode.name == "PROTO":
            continue
        with pytest.raises(LedgerError, match=rf"{opcode.name}.*\(byte 2\)") as caught:
            checked_end(b"\x80\x04" + opcode.code.encode("latin-1") + b"aaaa\nbbbb\n" * 20)
        assert "\n" not in caught.value.what


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_long_pickles_of_the_standard_library_pass(protocol: int) -> None:
    value = [{"name": f"frame {row}" * (row % 40), "line": row * 7919, "big": 2**row, "t": (row, (1, 2, 3, 4)), "f": row / 7} for row in range(700)]
    data = pickle.dumps(value, protocol)
    if all(opcode.name in ALLOWED | {"PROTO"} for opcode, _, _ in pickletools.genops(data)):
        assert checked_end(data) == len(data)
    else:
        pytest.fail("the standard library writes an instruction that is not allowed")


def test_memo_indexes_are_bounded_by_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = b"\x80\x02" + b"N" * 100_000
    assert checked_end(plain + b"r" + struct.pack("<I", 90_000) + b".")
    with pytest.raises(LedgerError, match="LONG_BINPUT"):
        checked_end(plain + b"r" + struct.pack("<I", 110_000) + b".")


@pytest.mark.parametrize("head", [b"", b"\x80", b"\x80\x01.", b"\x80\x06.", b"(dp0\n.", b"PK\x03\x04"])
def test_other_heads(head: bytes) -> None:
    with pytest.raises(LedgerError, match="does not begin as a pickle"):
        checked_end(head)
