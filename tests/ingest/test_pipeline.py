"""Ingest: nothing twice, nothing lost, whatever happens to files, archives, writers and parsers."""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from ingest.errors import QUARANTINED, LedgerError
from ingest.lake import Lake
from ingest.pipeline import Summary, ingest
from tests.ingest.toy import Toy, log, toy, visible

__all__ = ["toy"]
pytestmark = pytest.mark.usefixtures("toy")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def counts(summary: Summary) -> tuple[int, int, int]:
    return summary.files_new, summary.files_grown, summary.files_unchanged


def whole(folder: Path, name: str = "whole") -> list[tuple[object, ...]]:
    """What a fresh lake shows of the folder as it is."""
    fresh = Lake(folder.parent / name)
    shutil.rmtree(fresh.root, ignore_errors=True)
    ingest([folder], fresh, workers=1)
    return visible(fresh)


def test_the_same_folder_twice_adds_nothing(folder: Path, lake: Lake) -> None:
    for rank in range(4):
        (folder / f"rank_{rank}.log").write_bytes(log(rank))
    first = ingest([folder], lake, workers=1)
    assert counts(first) == (4, 0, 0)
    assert (first.rows, first.rejects, first.runs) == ({"rank_memory": 80, "run_args": 8}, 0, ("job",))
    version, rows = lake.version(), visible(lake)
    assert len(rows) == 88
    second = ingest([folder], lake, workers=1)
    assert (counts(second), second.rows) == ((0, 0, 4), {})
    assert (lake.version(), visible(lake)) == (version, rows)


def test_a_copy_a_move_and_a_rotation_are_the_same_source(folder: Path, lake: Lake) -> None:
    (folder / "train.log").write_bytes(log(0, 0, 200))
    ingest([folder], lake, workers=1)
    rows = visible(lake)
    shutil.copy(folder / "train.log", folder / "backup_of_it.log")
    assert counts(ingest([folder], lake, workers=1)) == (0, 0, 2)
    os.remove(folder / "backup_of_it.log")
    os.rename(folder / "train.log", folder / "train.log.1")
    (folder / "train.log.1").write_bytes(log(0, 0, 220))
    assert counts(ingest([folder], lake, workers=1)) == (0, 1, 0)
    assert len(visible(lake)) == len(rows) + 20
    (folder / "train.log.2.gz").write_bytes(gzip.compress(log(0, 0, 220)))
    os.remove(folder / "train.log.1")
    (folder / "train.log").write_bytes(log(0, 220, 230))
    assert counts(ingest([folder], lake, workers=1)) == (1, 0, 1)
    assert len(visible(lake)) == len(rows) + 30
    assert {row[0] for row in visible(lake)} == {"job"}


def test_a_replaced_file_is_a_new_source_and_another_run(folder: Path, lake: Lake) -> None:
    (folder / "train.log").write_bytes(log(0))
    ingest([folder], lake, workers=1)
    (folder / "train.log").write_bytes(log(5, 0, 3))
    assert counts(ingest([folder], lake, workers=1)) == (1, 0, 0)
    assert {(row[0], row[2]) for row in visible(lake) if row[1] == "m"} == {("job", 0), ("job@2", 5)}


def test_a_file_rewritten_behind_an_equal_head_is_not_read_on_from_its_middle(folder: Path, lake: Lake) -> None:
    head = b"mem 1 1 1\n" * 7000
    (folder / "train.log").write_bytes(head + b"mem 2 2 2\n" * 1000)
    ingest([folder], lake, workers=1)
    (folder / "train.log").write_bytes(head + b"mem 3 3 3\n" * 1200)
    assert counts(ingest([folder], lake, workers=1)) == (1, 0, 0)
    assert len(visible(lake)) == 8000 + 8200


def test_equal_files_of_different_ranks_stay_two_and_equal_copies_one(folder: Path, lake: Lake) -> None:
    for name in ("rank_0.log", "rank_1.log", "old/rank_0.log"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(log(0))
    assert counts(ingest([folder], lake, workers=1)) == (2, 0, 1)
    assert len(visible(lake)) == 2 * 22


DATA = b"mem 0 1 5\nmem x\nargs\ntp 2\nend\nmem 0 2 6\nargs\npp 4"


@pytest.mark.parametrize("cut", [0, 5, 14, 24, 45], ids=["empty", "in a record", "in a reject", "in a block", "in the open block"])
def test_a_log_cut_and_completed_later_gives_the_rows_of_the_whole(folder: Path, lake: Lake, cut: int) -> None:
    (folder / "train.log").write_bytes(DATA[:cut])
    ingest([folder], lake, workers=1)
    assert visible(lake) == whole(folder)
    (folder / "train.log").write_bytes(DATA)
    ingest([folder], lake, workers=1)
    assert visible(lake) == whole(folder)


@pytest.mark.long
def test_a_log_that_grows_byte_by_byte(folder: Path, lake: Lake) -> None:
    for size in range(len(DATA) + 1):
        (folder / "train.log").write_bytes(DATA[:size])
        ingest([folder], lake, workers=1)
        assert visible(lake) == whole(folder), f"cut at byte {size}"


def test_a_member_of_an_archive_grows_with_it(folder: Path, lake: Lake) -> None:
    for last in (30, 60):
        (folder / "rank_0.log").write_bytes(log(0, 0, last))
        shutil.make_archive(str(folder.parent / "logs"), "gztar", folder)
        ingest([folder.parent / "logs.tar.gz"], lake, workers=1)
        assert len(visible(lake)) == last + 2
    assert counts(ingest([folder], lake, workers=1)) == (0, 0, 1)


def test_an_empty_file_is_fine_and_grows(folder: Path, lake: Lake) -> None:
    (folder / "a.log").touch()
    (folder / "b.log").touch()
    summary = ingest([folder], lake, workers=1)
    assert (counts(summary), summary.exit_code) == ((2, 0, 0), 0)
    assert counts(ingest([folder], lake, workers=1)) == (0, 0, 2)
    (folder / "b.log").write_bytes(log(1))
    ingest([folder], lake, workers=1)
    assert len(visible(lake)) == 22


@pytest.mark.parametrize("table", ["rank_memory", "run_args", "artifacts"])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_between_two_tables_is_made_good_by_the_next_run(
    folder: Path, lake: Lake, table: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        (folder / f"rank_{rank}.log").write_bytes(log(rank))
    from ingest import lake as module
    write = module._write

    def crash(handle, rows, pieces, attempt, overtaken=()):
        if handle.table_uri.rstrip("/").endswith(f"/{table}"):
            if not before:
                write(handle, rows, pieces, attempt, overtaken)
            raise KeyboardInterrupt
        return write(handle, rows, pieces, attempt, overtaken)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", crash)
        with pytest.raises(KeyboardInterrupt):
            ingest([folder], lake, workers=1)
    ingest([folder], lake, workers=1)
    assert visible(lake) == whole(folder)
    raw = sum(module.DeltaTable(f"{lake.root}/{name}").to_pyarrow_table(columns=["run"]).num_rows for name in ("rank_memory", "run_args"))
    assert raw == 66


def test_rows_a_crash_left_are_not_taken_for_those_of_a_file_replaced_since(
    folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "train.log").write_bytes(b"mem 0 1 5\n")
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "_append_artifacts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ingest([folder], lake, workers=1)
    (folder / "train.log").write_bytes(b"mem 0 1 7\n")
    ingest([folder], lake, workers=1)
    assert [row[4] for row in visible(lake)] == [7]


def test_a_parser_that_fails_quarantines_its_file_only(folder: Path, lake: Lake) -> None:
    (folder / "rank_0.log").write_bytes(log(0))
    (folder / "rank_1.log").write_bytes(b"mem 1 1 1\nboom\n")
    summary = ingest([folder], lake, workers=1)
    assert (summary.exit_code, summary.files_quarantined, summary.files_new) == (QUARANTINED, 1, 1)
    assert "this line breaks the parser" in summary.problems[0][1]
    assert len(visible(lake)) == 22
    again = ingest([folder], lake, workers=1)
    assert again.exit_code == QUARANTINED
    (folder / "rank_1.log").write_bytes(b"mem 1 1 1\n")
    ingest([folder], lake, workers=1)
    assert len(visible(lake)) == 23


def test_a_row_that_does_not_fit_the_schema_is_rejected(folder: Path, lake: Lake) -> None:
    (folder / "train.log").write_bytes(b"mem 0 1 5\nmem 0 2 99999999999999999999999\nmem 0 3 6\n")
    summary = ingest([folder], lake, workers=1)
    assert (summary.rows, summary.rejects) == ({"rank_memory": 2}, 1)
    assert [row[1] for row in visible(lake)].count("r") == 1


def test_big_files_go_on_where_their_window_ended(folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.units.UNIT_ROWS", 15)
    monkeypatch.setattr("ingest.units.WINDOW_BYTES", 300)
    monkeypatch.setattr("ingest.pipeline.BATCH_BYTES", 5000)
    (folder / "train.log").write_bytes(log(0, 0, 300) + b"mem 0 300 1")
    (folder / "other.log.gz").write_bytes(gzip.compress(log(1, 0, 200)))
    ingest([folder], lake, workers=1)
    rows = visible(lake)
    monkeypatch.undo()
    monkeypatch.setattr("ingest.units.PARSERS", (Toy(),))
    assert rows == whole(folder)
    assert len(rows) == 505


def test_cancel_leaves_whole_pieces_and_the_next_run_completes(folder: Path, lake: Lake) -> None:
    for rank in range(4):
        (folder / f"rank_{rank}.log").write_bytes(log(rank))
    assert ingest([folder], lake, workers=1, cancelled=lambda: True).cancelled
    assert visible(lake) == []
    ingest([folder], lake, workers=1)
    assert visible(lake) == whole(folder)


def test_a_path_that_is_not_there_is_one_sentence(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no such file or folder"):
        ingest([tmp_path / "absent"], lake)
    assert not lake.exists()


def test_a_known_file_keeps_its_run_and_new_ranks_join_it(folder: Path, lake: Lake) -> None:
    (folder / "train.rank0.log").write_bytes(log(0))
    ingest([folder], lake, workers=1, run="mine")
    (folder / "train.rank0.log").write_bytes(log(0, 0, 30))
    (folder / "train.rank1.log").write_bytes(log(1))
    ingest([folder], lake, workers=1)
    assert {row[0] for row in visible(lake)} == {"mine"}


def test_a_truncated_gzip_is_read_as_far_as_it_goes_and_told(folder: Path, lake: Lake) -> None:
    data = gzip.compress(os.urandom(20_000).hex().encode() + b"\n" + log(0))
    (folder / "train.log.gz").write_bytes(data[:-200])
    summary = ingest([folder], lake, workers=1)
    assert summary.exit_code == QUARANTINED
    assert "cut off" in summary.problems[0][1]
    (folder / "train.log.gz").write_bytes(data)
    assert ingest([folder], lake, workers=1).exit_code == 0
    assert len(visible(lake)) == 22


def test_unreadable_and_special_files_end_in_a_sentence(folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "rank_0.log").write_bytes(log(0))
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder)
    summary = ingest([folder], lake, workers=1)
    assert summary.exit_code == QUARANTINED
    assert sorted(Path(path).name for path, _ in summary.problems) == ["dangling", "pipe"]
    assert len(visible(lake)) == 22


def test_a_known_file_that_cannot_be_read_for_a_while_is_not_read_twice(folder: Path, lake: Lake) -> None:
    (folder / "train.log").write_bytes(log(0))
    ingest([folder], lake, workers=1)
    rows = visible(lake)
    os.rename(folder / "train.log", folder.parent / "aside")
    (folder / "train.log").symlink_to("nowhere")
    assert ingest([folder], lake, workers=1).exit_code == QUARANTINED
    os.remove(folder / "train.log")
    os.rename(folder.parent / "aside", folder / "train.log")
    assert counts(ingest([folder], lake, workers=1)) == (0, 0, 1)
    assert visible(lake) == rows
    (folder / "train.log").write_bytes(log(0, 0, 25))
    assert counts(ingest([folder], lake, workers=1)) == (0, 1, 0)
    assert visible(lake) == whole(folder)


@pytest.mark.parametrize("name", ["", "a\u202egol", "a\x1b[2J", "a" * 201])
def test_a_run_is_not_given_a_name_that_cannot_be_shown(name: str, folder: Path, lake: Lake) -> None:
    (folder / "a.log").write_bytes(log(1))
    with pytest.raises(LedgerError, match="printable") as error:
        ingest([folder], lake, run=name)
    assert error.value.where.isprintable()
    assert lake.version() == "none"
