"""The lake by itself: what a commit accepts, and what readers are given."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest import lake as lake_module
from ingest.errors import LedgerError
from ingest.lake import Batch, Lake, default_root
from ingest.pipeline import ingest
from ingest.tables import arrow_schema


def batch(expected: int | None, *ends: int, start: int = 0, status: str = "closed") -> Batch:
    """One source's pieces, ending at `ends`, with one rank_memory row each."""
    keys: dict[str, Any] = {"run": "r", "run_index": 0, "month": "2026-01", "cluster": "default"}
    made = Batch(expected={"s": expected})
    for end in ends:
        name = f"s:{start}-{end}{status[0]}"
        made.artifacts.append({
            **keys, "artifact": name, "source": "s", "path": "p", "start_bytes": start, "end_bytes": end, "status": status, "size_bytes": end,
            "prefix_bytes": end, "prefix_hash": "h", "ingested_at": datetime(2026, 1, 1),
        })
        made.tables.setdefault("rank_memory", []).append(
            pa.Table.from_pylist([{**keys, "artifact": name, "rank": end}], schema=arrow_schema("rank_memory"))
        )
        start = end
    return made


def test_a_new_lake_knows_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert (lake.exists(), lake.uris("rank_memory"), lake.sources(), lake.version()) == (False, [], [], "none")
    lake.create()
    assert (lake.exists(), lake.uris("rank_memory"), lake.sources()) == (True, [], [])


def test_pieces_follow_each_other_and_are_accepted_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.commit(batch(None, 10, 25)) == set()
    version = lake.version()
    assert lake.commit(batch(None, 10, 25)) == {"s"}
    assert lake.commit(batch(10, 30, start=10)) == {"s"}
    assert lake.version() == version
    assert lake.commit(batch(25, 40, start=25)) == set()
    assert [(source.closed_bytes, source.size_bytes) for source in lake.sources()] == [(40, 40)]
    assert len(lake.uris("rank_memory")) == 2


def test_an_open_end_does_not_move_the_closed_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(batch(None, 10))
    assert lake.commit(batch(10, 15, start=10, status="tail")) == set()
    assert lake.commit(batch(10, 20, start=10)) == set()
    assert [(source.closed_bytes, source.size_bytes) for source in lake.sources()] == [(20, 20)]


def test_two_writers_who_both_miss_the_rows_of_a_piece_write_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that cut the same bytes otherwise took the source's transaction and died before its artifacts."""
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "_append_artifacts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Lake(tmp_path).commit(batch(None, 25))
    write, others = lake_module._write, [Lake(tmp_path)]

    def beaten(*arguments: Any) -> bool:
        if others:
            assert others.pop().commit(batch(None, 10)) == set()
        return write(*arguments)

    monkeypatch.setattr(lake_module, "_write", beaten)
    Lake(tmp_path).commit(batch(None, 10))
    rows = lake_module._read(Lake(tmp_path)._opened("rank_memory"), "rank_memory", ["artifact"])["artifact"].to_pylist()
    assert sorted(rows) == ["s:0-10c", "s:0-25c"]


def test_a_place_that_cannot_be_a_lake_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="cannot be written"):
        Lake(tmp_path / "file").create()


def test_the_default_root_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HBMLEDGER_LAKE", raising=False)
    assert default_root() == "./lake"
    monkeypatch.setenv("HBMLEDGER_LAKE", "/some/where")
    assert default_root() == "/some/where"


def test_a_local_lake_is_read_without_threads_that_hold_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's threads under delta-rs's file system aborted about one process in fifteen at its end."""
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("read through delta-rs")

    for name in ("to_pyarrow_dataset", "to_pyarrow_table", "to_pandas"):
        monkeypatch.setattr(f"ingest.lake.DeltaTable.{name}", refused)
    (tmp_path / "train.log").write_text("[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved: 3.00 | "
                                        "max reserved: 3.00\n")
    for seen in (1, 0):
        assert ingest([tmp_path / "train.log"], tmp_path / "lake", workers=1).files_new == seen
    assert len(Lake(tmp_path / "lake").sources()) == 1
