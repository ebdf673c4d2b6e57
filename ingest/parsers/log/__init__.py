"""The Megatron log: any text in which a training run, its launcher or its libraries left records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from ingest.parsers.base import Piece
from ingest.parsers.log.engine import Engine
from ingest.parsers.log.lines import encoding_of
from ingest.parsers.log.records import Recognizer

LARGEST_CONTROL_RATIO = 0.1
_BINARY = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PAR1", b"\x89PNG", b"\x7fELF", b"%PDF", b"PK\x03\x04", b"PK\x05\x06")


class MegatronLog:
    """The parser, asked last; see `Parser` for what is promised. `recognizers` are the visible list unless others are given."""

    name = "megatron_log"
    version = 1

    def __init__(self, recognizers: Sequence[Recognizer] | None = None) -> None:
        self.recognizers = recognizers

    def matches(self, head: bytes, path: str) -> bool:
        """Any text: no known magic, few control characters but NUL (crashed file systems) and escapes."""
        if head.startswith(_BINARY) or head[257:262] == b"ustar":
            return False
        if encoding_of(head) != "utf-8":
            return True
        text = head.replace(b"\0", b"")
        control = sum(text.count(bytes([code])) for code in range(1, 32) if code not in (8, 9, 10, 11, 12, 13, 27))
        return control <= len(text) * LARGEST_CONTROL_RATIO and (bool(text) or not head)

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Pieces that end where no record is open."""
        if self.recognizers is None:
            from ingest.parsers.log.recognizers import RECOGNIZERS

            return Engine(RECOGNIZERS, path, state).run(stream, start, final)
        return Engine(self.recognizers, path, state).run(stream, start, final)


MEGATRON_LOG = MegatronLog()
