"""The instructions that a snapshot's pickle may hold, checked over the whole file before anything is unpickled.

Plain containers, texts, numbers and memo references: what 71 real files hold, and what torch's C++ pickler writes besides. All others find,
call or fill classes, or are not needed. One regular expression runs over thousands of instructions at a time (0.2 GB/s); the loop sees those
with a length and stops at whatever the expression does not know. So a refusal names its byte, no length beyond the file and no memo index beyond
the instructions so far reaches the unpickler. Not `pickletools.genops`: 200 times slower.
"""

from __future__ import annotations

import pickletools
import re

from ingest.errors import LedgerError
from ingest.parsers.snapshot.limits import damaged, hostile
from ingest.parsers.snapshot.source import Bytes

PROTOCOLS = (2, 3, 4, 5)
_SHORT = 32


def _sized(opcode: bytes, length: bytes, sizes: int) -> bytes:
    """Instructions with `sizes` lengths of one byte, filled up by `length`."""
    return b"|".join(opcode + re.escape(bytes([size])) + length + b".{%d}" % size for size in range(sizes))


def _plain(indexes: bytes) -> re.Pattern[bytes]:
    """Any number of whole plain instructions; LONG_BINPUT of the `indexes`."""
    return re.compile(
        rb"(?:[\x94}\]()\x85-\x87eusatN\x88\x89]"  # MEMOIZE, empty containers, MARK, tuples, APPENDS, SETITEMS, SETITEM, APPEND, None, booleans
        rb"|h.|j.{4}|q.|r" + indexes +  # memo: BINGET, LONG_BINGET, BINPUT
        rb"|K.|M..|J.{4}|G.{8}|" + _sized(rb"\x8a", b"", 10) + b"|" + _sized(rb"\x8c", b"", _SHORT) + b"|" + _sized(b"X", rb"\0\0\0", _SHORT)
        + rb")*+", re.DOTALL)


_FEW, _MANY = _plain(rb"..\0\0"), _plain(rb"...\0")
_MANY_BYTES = 2**24  # a file of this size may have memo indexes below it
_STOP, _LONG_BINPUT, _FRAME = b"."[0], b"r"[0], 0x95
_LENGTHS = {b"X"[0]: 4, 0x8C: 1, 0x8D: 8, 0x8A: 1, 0x8B: 4}  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8, LONG1, LONG4: bytes of the length
_FIXED = {b"h"[0]: 1, b"j"[0]: 4, b"q"[0]: 1, b"K"[0]: 1, b"M"[0]: 2, b"J"[0]: 4, b"G"[0]: 8}
_CODE = frozenset(("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"))


def checked_end(data: Bytes) -> int:
    """The byte after the pickle's STOP. Raises `LedgerError` where anything else than plain data stands before, or the file ends early."""
    if len(data) < 2 or data[0] != 0x80 or data[1] not in PROTOCOLS:
        raise damaged("does not begin as a pickle of protocol 2 to 5", 0)
    at, size = 2, len(data)
    plain = _MANY if size > _MANY_BYTES else _FEW
    while True:
        match = plain.match(data, at)
        at = match.end() if match else at
        if at < size and data[at] == _STOP:
            return at + 1
        at = _next(data, at, size)


def _next(data: Bytes, at: int, size: int) -> int:
    """The byte after the one instruction at `at`."""
    code = data[at] if at < size else -1
    if code in _LENGTHS:
        end = at + 1 + _LENGTHS[code]
        end += int.from_bytes(data[at + 1 : end], "little")
    elif code == _FRAME:
        end = at + 9
        if int.from_bytes(data[at + 1 : end], "little") > size - end:
            raise _cut(at, size)
    elif code == _LONG_BINPUT:
        end = at + 5
        if int.from_bytes(data[at + 1 : end], "little") > at:
            raise hostile("asks for memory for more objects than it has instructions: LONG_BINPUT", at)
    elif code in _FIXED:
        end = at + 1 + _FIXED[code]
    else:
        raise _cut(at, size) if code < 0 else _refused(data, code, at)
    if end > size:
        raise _cut(at, size)
    return end


def _cut(at: int, size: int) -> LedgerError:
    return damaged(f"ends early: the pickle is cut off or damaged, {size:,} bytes do not hold what it announces", at)


def _refused(data: Bytes, code: int, at: int) -> LedgerError:
    name = next((opcode.name for opcode in pickletools.opcodes if opcode.code == chr(code)), None)
    if name is None:
        return damaged(f"is no whole pickle: 0x{code:02x} is no instruction", at)
    if name not in _CODE:
        return hostile(f"is a pickle with an instruction that no snapshot has: {name}", at)
    named = b".".join(bytes(data[at + 1 : at + 120]).split(b"\n")[:2]) if name in ("GLOBAL", "INST") else b""
    what = f"{name} {ascii(named.decode('latin-1')[:80])[1:-1]}".strip()
    return hostile(f"is a pickle with instructions to run code, which no snapshot has; nothing was executed: {what}", at)
