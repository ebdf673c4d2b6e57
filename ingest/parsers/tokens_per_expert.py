"""`tokens_per_expert/rankN.jsonl`: how many tokens each local expert got, a line a step and MoE layer, as rows of `expert_load`.

Megatron-LM appends `{"iter": 100, "block": "decoder", "layer": 3, "tpe": [[128, 64], ...]}` (one inner list a forward pass, one number a local
expert; MTP lines name `mtp_idx`). A fleet writes more numbers than any other source, so a block of lines is decoded at once into Arrow columns;
only where that fails are its lines tried one by one. Recorded lists are kept whole. What recomputation recorded twice is marked, not
dropped: whether it is a repetition depends on the run's arguments, which are not here. A restart appends steps that are there already: lines
within one attempt ascend by step, block and layer, so a fall back opens the next `run_index`; one line alone that falls out of order does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ingest.parsers.base import Piece, Row
from ingest.parsers.names import rank_of

if TYPE_CHECKING:
    import numpy as np

BLOCK_BYTES = 4 * 2**20
LONGEST_LINE_BYTES = 64 * 2**20
_MTP, _LAYERS = 1 << 12, 1 << 16


class Line(msgspec.Struct):
    """One line as written; counts by forward pass and local expert."""

    iter: int
    layer: int
    tpe: list[list[int]]
    block: str | None = None
    mtp_idx: int | None = None


_LINE, _LINES = msgspec.json.Decoder(Line), msgspec.json.Decoder(list[Line])


class TokensPerExpert:
    """The parser; see `Parser` for what is promised."""

    name = "tokens_per_expert"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether one of the first lines is whole and of this shape."""
        return any(b'"tpe"' in line and isinstance(_one(line), Line) for line in head.splitlines()[:20])

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """A piece a block of lines. The last line waits for the next one, which tells whether it began a restart, unless the file is `final`."""
        reader = _Reader(path, start, state)
        rest = b""
        while block := stream.read(BLOCK_BYTES):
            data = rest + block
            cut = _last_line(data)
            rest = data[cut:]
            if cut:
                yield reader.piece(data[:cut], rest[: rest.find(b"\n") + 1])
            elif len(rest) > LONGEST_LINE_BYTES:
                yield reader.skipped(rest)
                rest = b""
        if final and rest:
            yield reader.piece(rest, b"")
        elif not rest or not final:
            yield Piece({}, reader.end, reader.state())


class _Reader:
    """Blocks of whole lines in, pieces out; what goes from piece to piece: the line number, the attempt, the last two lines' order."""

    def __init__(self, path: str, start: int, state: str | None) -> None:
        self.end, self.rank = start, rank_of(path)
        self.number, self.run_index, self.before = json.loads(state) if state else (0, 0, [])

    def state(self) -> str:
        """What the next piece starts from."""
        return json.dumps([self.number, self.run_index, self.before])

    def piece(self, data: bytes, following: bytes) -> Piece:
        """The rows of `data`; `following` is the line after it."""
        lines, numbers, rejects = self._decoded(data)
        self.end += len(data)
        self.number += data.count(b"\n") + (not data.endswith(b"\n"))
        after = _one(following)
        table = self._table(lines, numbers, order(after) if isinstance(after, Line) else None) if lines else None
        rows: dict[str, list[Row]] = {"rejects": rejects} if rejects else {}
        return Piece(rows, self.end, self.state(), {"expert_load": table} if table is not None and table.num_rows else {})

    def skipped(self, data: bytes) -> Piece:
        """A line without end."""
        reject = self._reject(self.number + 1, 0, data[:2000], "line longer than 64 MiB")
        self.end += len(data)
        return Piece({"rejects": [reject]}, self.end, self.state())

    def _decoded(self, data: bytes) -> tuple[list[Line], Sequence[int], list[Row]]:
        """Lines with their numbers: all at once where they are whole, as they nearly always are."""
        body = data.rstrip(b"\n")
        try:
            lines = _LINES.decode(b"[" + body.replace(b"\n", b",") + b"]")
            if len(lines) == body.count(b"\n") + 1 and all(map(_believable, lines)):
                return lines, range(self.number + 1, self.number + 1 + len(lines)), []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        return self._one_by_one(data)

    def _one_by_one(self, data: bytes) -> tuple[list[Line], list[int], list[Row]]:
        lines, numbers, rejects, offset = [], [], [], 0
        for number, text in enumerate(data.split(b"\n"), self.number + 1):
            found = _one(text)
            if isinstance(found, Line):
                lines.append(found)
                numbers.append(number)
            elif text.strip(b"\0\r\t "):
                rejects.append(self._reject(number, offset, text, found))
            offset += len(text) + 1
        return lines, numbers, rejects

    def _reject(self, number: int, offset: int, text: bytes, reason: str) -> Row:
        return {"run_index": 0, "line": number, "offset_bytes": self.end + offset, "reason": reason,
                "text": text.decode("utf-8", "replace")[:2000].rstrip()}

    def _table(self, lines: Sequence[Line], numbers: Sequence[int], after: int | None) -> Any:
        import numpy as np
        import pyarrow as pa

        attempts = self._attempts([order(line) for line in lines], after)
        passes = list(chain.from_iterable(line.tpe for line in lines))
        passes_of_line = np.array([len(line.tpe) for line in lines])
        experts_of_pass = np.fromiter(map(len, passes), np.int64, len(passes))
        line_of_pass = np.repeat(np.arange(len(lines)), passes_of_line)
        line_of_row = np.repeat(line_of_pass, experts_of_pass)
        total = int(experts_of_pass.sum())
        blocks = [line.block for line in lines]
        names = sorted({name for name in blocks if name is not None})
        codes = {name: code for code, name in enumerate(names)}
        block = pa.DictionaryArray.from_arrays(pa.array([codes.get(name or "") for name in blocks], pa.int8()).take(pa.array(line_of_row)), names)
        mtp = pa.array([line.mtp_idx for line in lines], pa.int32())
        columns = {
            "run_index": np.asarray(attempts, np.int32)[line_of_row], "iteration": np.array([line.iter for line in lines], np.int64)[line_of_row],
            "block": block, "mtp_index": mtp.take(pa.array(line_of_row)) if mtp.null_count < len(mtp) else pa.nulls(total, pa.int32()),
            "layer": np.array([line.layer for line in lines], np.int32)[line_of_row],
            "microbatch": np.repeat(_positions(passes_of_line), experts_of_pass).astype(np.int32),
            "repeated": _repeated(lines, experts_of_pass), "expert": _positions(experts_of_pass).astype(np.int32),
            "tokens": np.fromiter(chain.from_iterable(passes), np.int64, total), "line": np.asarray(numbers, np.int64)[line_of_row]}
        if self.rank is not None:
            columns["rank"] = np.full(total, self.rank, np.int32)
        return pa.table(columns)

    def _attempts(self, orders: list[int], after: int | None) -> Any:
        """The attempt of each line: the next one where a line stands again, or falls below the two before it and the one after stays below too."""
        import numpy as np

        known = [*[-1] * (2 - len(self.before)), *self.before, *orders]
        whole = np.array([*known, known[-1] if after is None else after], np.int64)
        older, last, now, following = whole[:-3], whole[1:-2], whole[2:-1], whole[3:]
        falls = (now == last) | ((now < last) & (now <= older) & (following <= last))
        attempts = self.run_index + np.cumsum(falls)
        self.run_index, self.before = int(attempts[-1]), known[-2:]
        return attempts


def _positions(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """0, 1, ... within each of consecutive groups of these lengths."""
    import numpy as np

    positions: np.ndarray[Any, Any] = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return positions


def _repeated(lines: Sequence[Line], experts_of_pass: np.ndarray[Any, Any]) -> Any:
    import numpy as np

    if not any(len(line.tpe) > 1 for line in lines):
        return np.zeros(int(experts_of_pass.sum()), bool)
    flags = np.fromiter(chain.from_iterable(repetitions(line.tpe) for line in lines), bool, len(experts_of_pass))
    return np.repeat(flags, experts_of_pass)


def repetitions(passes: Sequence[Sequence[int]]) -> list[bool]:
    """Which passes repeat an earlier one, first in, first out; all False where not every pass has its partner.

    Recomputation runs each forward again, in the order of the forwards: after all of them, or interleaved as 1F1B does it.
    """
    waiting: list[Sequence[int]] = []
    flags = []
    for one in passes if len(passes) % 2 == 0 else ():
        again = bool(waiting) and waiting[0] == one
        flags.append(again)
        if again:
            waiting.pop(0)
        else:
            waiting.append(one)
    return [False] * len(passes) if waiting or not flags else flags


def _last_line(data: bytes) -> int:
    """Where the last whole line that can be read begins; 0 where there is none before it."""
    end = data.rfind(b"\n") + 1
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if isinstance(_one(data[begin:end]), Line):
            return begin
        end = begin
    return 0


def order(line: Line) -> int:
    """What ascends within one attempt: step, then decoder before MTP, then depth and layer, as the writer sorts them."""
    depth = 0 if line.mtp_idx is None else line.mtp_idx + 1
    return (line.iter * _MTP + depth) * _LAYERS + line.layer


def _one(text: bytes) -> Line | str:
    """The line, or why it is none."""
    try:
        line = _LINE.decode(text.strip(b"\0\r\n\t \xef\xbb\xbf"))
    except msgspec.ValidationError as error:
        return f"not a line of tokens per expert: {error}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "a line that is not whole"
    return line if _believable(line) else "a figure that cannot be true"


def _believable(line: Line) -> bool:
    return (0 <= line.iter < 1 << 34 and 0 <= line.layer < _LAYERS and (line.mtp_idx is None or 0 <= line.mtp_idx < _MTP - 1)
            and all(not one or (min(one) >= 0 and max(one) < 1 << 40) for one in line.tpe))


TOKENS_PER_EXPERT = TokensPerExpert()
