"""Tokens per expert: every count as written, doubled lists marked, restarts apart, damage kept to its line, any cut the same rows."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from ingest.parsers import parse_file
from ingest.parsers.tokens_per_expert import TOKENS_PER_EXPERT, repetitions
from tests.ingest.parsers.mutations import mutated, one_line

PATH = "save/tokens_per_expert/rank5.jsonl"


def line(step: int, layer: int, passes: list[list[int]], **more: Any) -> str:
    return json.dumps({"iter": step, "block": "decoder", **more, "layer": layer, "tpe": passes}) + "\n"


def read(data: bytes | str, path: str = PATH, **options: Any) -> list[dict[str, Any]]:
    data = data.encode() if isinstance(data, str) else data
    pieces = list(TOKENS_PER_EXPERT.parse(io.BytesIO(data), path, **options))
    assert not options or pieces
    return [row for piece in pieces for part in piece.tables.values() for row in part.to_pylist()]


def attempts(*steps: int) -> list[int]:
    return [row["run_index"] for row in read("".join(line(step, 0, [[1]]) for step in steps))]


def test_a_count_is_a_row() -> None:
    rows = read(line(100, 3, [[128, 64], [96, 80]]) + line(100, 0, [[50, 7, 9]], block="mtp", mtp_idx=0))
    told = [(row["iteration"], row["block"], row["mtp_index"], row["layer"], row["microbatch"], row["expert"], row["tokens"]) for row in rows]
    assert told == [(100, "decoder", None, 3, 0, 0, 128), (100, "decoder", None, 3, 0, 1, 64), (100, "decoder", None, 3, 1, 0, 96),
                    (100, "decoder", None, 3, 1, 1, 80), (100, "mtp", 0, 0, 0, 0, 50), (100, "mtp", 0, 0, 0, 1, 7), (100, "mtp", 0, 0, 0, 2, 9)]
    assert {(row["rank"], row["run_index"]) for row in rows} == {(5, 0)}
    assert [row["line"] for row in rows] == [1, 1, 1, 1, 2, 2, 2]


def test_an_empty_list_is_no_zero_load() -> None:
    assert read(line(1, 0, []) + line(1, 1, [[]]) + line(1, 2, [[0, 4]])) == read("\n\n" + line(1, 2, [[0, 4]]))


def test_a_restart_in_the_same_file_is_another_attempt() -> None:
    assert attempts(8, 9, 10, 9, 10, 11) == [0, 0, 0, 1, 1, 1]
    assert attempts(8, 9, 10, 10, 11) == [0, 0, 0, 1, 1]
    assert attempts(8, 9, 1, 2, 1, 2) == [0, 0, 1, 1, 2, 2]
    layers = "".join(line(step, layer, [[1]]) for step in (4, 5, 4, 5) for layer in (0, 1))
    assert [row["run_index"] for row in read(layers)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_one_line_out_of_order_is_no_restart() -> None:
    assert attempts(8, 9, 900, 11, 12) == [0] * 5
    assert attempts(8, 9, 1, 11, 12) == [0] * 5


@pytest.mark.parametrize(("passes", "flags"), [
    ([[1, 2], [3, 4], [1, 2], [3, 4]], [False, False, True, True]),
    ([[1, 2], [1, 2], [3, 4], [3, 4]], [False, True, False, True]),
    ([[1, 2], [3, 4], [1, 2], [5, 6], [3, 4], [5, 6]], [False, False, True, False, True, True]),
    ([[1, 2], [3, 4], [5, 6], [3, 4]], [False] * 4), ([[1, 2], [3, 4], [1, 2]], [False] * 3), ([[7, 7]], [False]),
])
def test_what_a_recomputation_recorded_again_is_marked(passes: list[list[int]], flags: list[bool]) -> None:
    assert repetitions(passes) == flags
    assert [row["repeated"] for row in read(line(1, 0, passes)) if row["expert"] == 0] == flags


def test_damaged_lines_are_rejected_alone() -> None:
    data = line(1, 0, [[1, 2]]) + '{"iter": 1, "layer": 1, "tpe": [[3,\n' + line(1, 2, [[-3, 4]]) + '{"iter": 2}\n' + line(2, 0, [[5, 6]])
    rejects = [row for piece in TOKENS_PER_EXPERT.parse(io.BytesIO(data.encode()), PATH) for row in piece.rows.get("rejects", [])]
    assert [row["tokens"] for row in read(data)] == [1, 2, 5, 6]
    assert [(row["line"], row["reason"].partition(":")[0]) for row in rejects] == [
        (2, "a line that is not whole"), (3, "a figure that cannot be true"), (4, "not a line of tokens per expert")]
    assert data[rejects[1]["offset_bytes"]:].startswith('{"iter": 1, "block": "decoder", "layer": 2')


def _document() -> bytes:
    chance = random.Random(3)
    steps = [*range(1, 6), *range(4, 8)]
    lines = [line(step, layer, [[chance.randrange(999), chance.randrange(999)] for _ in range(2)]) for step in steps for layer in range(2)]
    return "".join([*lines[:7], '{"iter": 3, "layer"\n', *lines[7:]]).encode()


def test_a_file_cut_anywhere_gives_the_rows_of_the_whole() -> None:
    data = _document()
    whole = read(data)
    for cut in range(0, len(data) + 1, 7):
        first = list(TOKENS_PER_EXPERT.parse(io.BytesIO(data[:cut]), PATH, final=False))
        end, state = first[-1].end_bytes, first[-1].state
        rest = read(data[end:], start=end, state=state)
        assert [row for piece in first for part in piece.tables.values() for row in part.to_pylist()] + rest == whole, cut


def test_the_file_is_known_by_its_first_lines_and_its_rank_by_its_name(tmp_path: Any) -> None:
    path = tmp_path / "tokens_per_expert" / "rank7.jsonl"
    path.parent.mkdir()
    path.write_text('{"iter": 1, "la\n' + line(1, 0, [[4, 5]]))
    found = parse_file(path)
    assert (found.kind, [row["rank"] for row in found.rows["expert_load"]]) == ("tokens_per_expert", [7, 7])
    assert not TOKENS_PER_EXPERT.matches(b'{"iter": 1, "loss": 2.0}\n', str(path))


def _mutations(count: int) -> None:
    """Wounded files raise nothing; a line that was left whole keeps its counts, and where the wounded one is no record, its attempt too."""
    chance = random.Random(20261129)
    lines = [line(step, layer, [[step, layer], [layer, 9]]).encode() for step in range(1, 9) for layer in range(3)]
    whole = {(row["line"], row["microbatch"], row["expert"]): row for row in read(b"".join(lines))}
    for _ in range(count):
        victim = chance.randrange(len(lines))
        body = one_line(mutated(lines[victim][:-1], chance)) + b"\n"
        rows = read(b"".join([*lines[:victim], body, *lines[victim + 1:]]))
        still_a_record = any(row["line"] == victim + 1 for row in rows)
        for row in rows:
            if row["line"] != victim + 1:
                expected = whole[row["line"], row["microbatch"], row["expert"]]
                assert row == expected or (still_a_record and row | {"run_index": 0} == expected), body
        intact = [row["line"] for row in rows if row["line"] != victim + 1]
        assert len(intact) == 4 * (len(lines) - 1)


def test_mutated_files_raise_nothing_and_leave_intact_lines_alone() -> None:
    _mutations(500)


@pytest.mark.long
def test_many_mutated_files() -> None:
    _mutations(20_000)
