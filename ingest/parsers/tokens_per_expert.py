"""`tokens_per_expert/rankN.jsonl`: how many tokens each local expert got, a line a step and MoE layer, as rows of `expert_load`.

Megatron-LM appends `{"iter": 100, "block": "decoder", "layer": 3, "tpe": [[128, 64], ...]}` (one inner list a forward pass, one number a local
expert; MTP lines name `mtp_idx`). A fleet writes more numbers than any other source, so a block of lines is decoded at once by Arrow's JSON reader;
only where that fails are its lines tried one by one. Recorded lists are kept whole. What recomputation recorded twice is marked, not
dropped: whether it is a repetition depends on the run's arguments, which are not here. A restart appends steps that are there already: lines
within one attempt ascend by step, block and layer, so a fall back opens the next `run_index`; one line alone that falls out of order does not.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ingest.parsers.base import Piece, Row
from ingest.parsers.names import rank_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, Any]

BLOCK_BYTES = 4 * 2**20
LONGEST_LINE_BYTES = 64 * 2**20
_STEPS, _DEPTHS, _LAYERS, _TOKENS = 1 << 34, 1 << 12, 1 << 16, 1 << 40


class Line(msgspec.Struct):
    """One line as written; counts by forward pass and local expert."""

    iter: int
    layer: int
    tpe: list[list[int]]
    block: str | None = None
    mtp_idx: int | None = None


_LINE = msgspec.json.Decoder(Line)
_NO_DEPTH = -1


@dataclass(slots=True)
class Counts:
    """Lines as columns: one entry a line, but `experts` (how many, one a forward pass) and `tokens` (one a count). `depth` is -1 in the decoder."""

    step: Array
    layer: Array
    depth: Array
    block: pa.Array
    passes: Array
    experts: Array
    tokens: Array
    number: Array

    @property
    def believable(self) -> bool:
        """Whether every figure can be true."""
        return bool(((self.step >= 0) & (self.step < _STEPS) & (self.layer >= 0) & (self.layer < _LAYERS) & (self.depth >= _NO_DEPTH)
                     & (self.depth < _DEPTHS - 1)).all() and ((self.tokens >= 0) & (self.tokens < _TOKENS)).all())

    @property
    def order(self) -> Array:
        """What ascends within one attempt: step, then decoder before MTP, then depth and layer, as the writer sorts them."""
        found: Array = (self.step * _DEPTHS + self.depth + 1) * _LAYERS + self.layer
        return found


class TokensPerExpert:
    """The parser; see `Parser` for what is promised."""

    name = "tokens_per_expert"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether one of the first lines is whole and of this shape."""
        return any(b'"tpe"' in line and isinstance(_one(line), Line) for line in head.splitlines()[:20])

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """A piece a block of lines. A last line that falls back waits for the next, which tells whether it began a restart, unless `final`."""
        reader = _Reader(path, start, state)
        rest = b""
        while block := stream.read(BLOCK_BYTES):
            data = rest + block
            cut = _closed(data, reader.before)
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
        counts, rejects = at_once(data, self.number + 1), list[Row]()
        if counts is None:
            counts, rejects = self._one_by_one(data)
        self.end += len(data)
        self.number += data.count(b"\n") + (not data.endswith(b"\n"))
        after = _one(following)
        table = self._table(counts, int(_columns([after], [0]).order[0]) if isinstance(after, Line) else None) if len(counts.step) else None
        rows: dict[str, list[Row]] = {"rejects": rejects} if rejects else {}
        return Piece(rows, self.end, self.state(), {"expert_load": table} if table is not None and table.num_rows else {})

    def skipped(self, data: bytes) -> Piece:
        """A line without end."""
        reject = self._reject(self.number + 1, 0, data[:2000], "line longer than 64 MiB")
        self.end += len(data)
        return Piece({"rejects": [reject]}, self.end, self.state())

    def _one_by_one(self, data: bytes) -> tuple[Counts, list[Row]]:
        lines, numbers, rejects, offset = [], [], [], 0
        for number, text in enumerate(data.split(b"\n"), self.number + 1):
            found = _one(text)
            if isinstance(found, Line):
                lines.append(found)
                numbers.append(number)
            elif text.strip(b"\0\r\t "):
                rejects.append(self._reject(number, offset, text, found))
            offset += len(text) + 1
        return _columns(lines, numbers), rejects

    def _reject(self, number: int, offset: int, text: bytes, reason: str) -> Row:
        return {"run_index": 0, "line": number, "offset_bytes": self.end + offset, "reason": reason,
                "text": text.decode("utf-8", "replace")[:2000].rstrip()}

    def _table(self, counts: Counts, after: int | None) -> pa.Table:
        """Every count as a row: the columns of its line and pass repeated."""
        import numpy as np
        import pyarrow as pa

        attempts = self._attempts(counts.order, after)
        row_line = np.repeat(np.repeat(np.arange(len(counts.step)), counts.passes), counts.experts)
        total = len(counts.tokens)
        depth = pa.nulls(total, pa.int32())
        if (counts.depth > _NO_DEPTH).any():
            depth = pa.array(counts.depth[row_line].astype(np.int32), mask=counts.depth[row_line] == _NO_DEPTH)
        columns = {
            "run_index": attempts.astype(np.int32)[row_line], "iteration": counts.step[row_line], "block": counts.block.take(pa.array(row_line)),
            "mtp_index": depth, "layer": counts.layer.astype(np.int32)[row_line],
            "microbatch": np.repeat(_positions(counts.passes).astype(np.int32), counts.experts), "repeated": _repeated(counts),
            "expert": _positions(counts.experts).astype(np.int32), "tokens": counts.tokens,
            "pass_tokens": np.repeat(_sums(counts.tokens, counts.experts), counts.experts), "line": counts.number[row_line]}
        return pa.table(columns if self.rank is None else columns | {"rank": np.full(total, self.rank, np.int32)})

    def _attempts(self, orders: Array, after: int | None) -> Array:
        """The attempt of each line: the next one where a line stands again, or falls below the two before it and the one after stays below too."""
        import numpy as np

        last_one = int(orders[-1]) if after is None else after
        whole = np.concatenate([np.array([-1, -1, *self.before][-2:], np.int64), orders, np.array([last_one], np.int64)])
        older, last, now, following = whole[:-3], whole[1:-2], whole[2:-1], whole[3:]
        falls = (now == last) | ((now < last) & (now <= older) & (following <= last))
        attempts: Array = self.run_index + np.cumsum(falls)
        self.run_index, self.before = int(attempts[-1]), [one for one in whole[-3:-1].tolist() if one >= 0]
        return attempts


def at_once(data: bytes, first_number: int) -> Counts | None:
    """Whole lines, one object each, as columns; None where any of them is damaged or says something else."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import json as arrow_json

    body = data.rstrip(b"\n")
    count = body.count(b"\n") + 1
    if not body.isascii() or not body.startswith(b"{") or not body.endswith(b"}") or body.count(b"}\n{") != count - 1:
        return None
    schema = pa.schema([("iter", pa.int64()), ("block", pa.string()), ("layer", pa.int64()), ("mtp_idx", pa.int64()),
                        ("tpe", pa.list_(pa.list_(pa.int64())))])
    try:
        read = arrow_json.read_json(
            pa.BufferReader(body), arrow_json.ReadOptions(use_threads=False, block_size=len(body) + 1),
            arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")).combine_chunks()
    except pa.ArrowException:
        return None
    columns = [read[name].chunk(0) for name in schema.names] if read.num_rows == count else []
    if not columns or any(one.null_count for one in (columns[0], columns[2], columns[4], columns[4].values, columns[4].values.values)):
        return None
    step, block, layer, depth, passes = columns
    counts = Counts(
        step.to_numpy(), layer.to_numpy(), depth.fill_null(_NO_DEPTH).to_numpy(), block.dictionary_encode(), np.diff(passes.offsets.to_numpy()),
        np.diff(passes.values.offsets.to_numpy()), passes.values.values.to_numpy(), np.arange(first_number, first_number + count))
    return counts if counts.believable else None


def _columns(lines: Sequence[Line], numbers: Sequence[int]) -> Counts:
    import numpy as np
    import pyarrow as pa

    def column(values: Iterable[int]) -> Array:
        return np.fromiter(values, np.int64)

    passes = list(chain.from_iterable(line.tpe for line in lines))
    return Counts(
        column(line.iter for line in lines), column(line.layer for line in lines),
        column(_NO_DEPTH if line.mtp_idx is None else line.mtp_idx for line in lines),
        pa.array([line.block for line in lines], pa.string()).dictionary_encode(), column(len(line.tpe) for line in lines), column(map(len, passes)),
        column(chain.from_iterable(passes)), column(numbers))


def _positions(lengths: Array) -> Array:
    """0, 1, ... within each of consecutive groups of these lengths."""
    import numpy as np

    positions: Array = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return positions


def _sums(values: Array, lengths: Array) -> Array:
    """The sum of each of consecutive groups of these lengths."""
    import numpy as np

    ends = np.concatenate([[0], np.cumsum(values)])
    stops = np.cumsum(lengths)
    sums: Array = ends[stops] - ends[stops - lengths]
    return sums


def _repeated(counts: Counts) -> Array:
    """For each count whether its pass repeats an earlier one of its line; see `repetitions`."""
    import numpy as np

    flags = np.zeros(len(counts.experts), bool)
    if len(counts.passes) and counts.passes.max() > 1:
        ends = np.cumsum(counts.experts)
        data = [counts.tokens[end - size:end].tobytes() for end, size in zip(ends.tolist(), counts.experts.tolist(), strict=True)]
        stops = np.cumsum(counts.passes).tolist()
        flags = np.fromiter(chain.from_iterable(
            repetitions(data[stop - size:stop]) for stop, size in zip(stops, counts.passes.tolist(), strict=True)), bool, len(data))
    return np.repeat(flags, counts.experts)


def repetitions(passes: Sequence[object]) -> list[bool]:
    """Which passes repeat an earlier one, first in, first out; all False where not every pass has its partner.

    Recomputation runs each forward again, in the order of the forwards: after all of them, or interleaved as 1F1B does it.
    """
    waiting: deque[object] = deque()
    flags = []
    for one in passes if len(passes) % 2 == 0 else ():
        again = bool(waiting) and waiting[0] == one
        flags.append(again)
        if again:
            waiting.popleft()
        else:
            waiting.append(one)
    return [False] * len(passes) if waiting or not flags else flags


def _closed(data: bytes, before: Sequence[int]) -> int:
    """Up to where the whole lines need not wait: to their end, or to the last one where it falls below the one before it."""
    begin, last = _last_line(data, data.rfind(b"\n") + 1)
    if last is None:
        return data.rfind(b"\n") + 1
    _, previous = _last_line(data, begin)
    falls = last < previous if previous is not None else bool(before) and last < before[-1]
    return begin if falls else data.rfind(b"\n") + 1


def _last_line(data: bytes, end: int) -> tuple[int, int | None]:
    """Where the last line before byte `end` that can be read begins, and its order; None where there is none."""
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        line = _one(data[begin:end])
        if isinstance(line, Line):
            return begin, int(_columns([line], [0]).order[0])
        end = begin
    return 0, None


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
    return (0 <= line.iter < _STEPS and 0 <= line.layer < _LAYERS and (line.mtp_idx is None or 0 <= line.mtp_idx < _DEPTHS - 1)
            and all(not one or (min(one) >= 0 and max(one) < _TOKENS) for one in line.tpe))


TOKENS_PER_EXPERT = TokensPerExpert()
