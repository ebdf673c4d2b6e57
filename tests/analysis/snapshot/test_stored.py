"""Snapshots of the lake: the same answers as from the file, the SQL view the same as the Python levels, classes as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.database import connect, locked, records
from analysis.query.ask import ask
from analysis.snapshot.report import device_json
from analysis.snapshot.stored import from_lake, stored
from analysis.snapshot.trace import from_columns
from analysis.snapshot.view import devices
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.parsers.snapshot.reading import read_snapshot
from ingest.pipeline import ingest
from sample_data.snapshots import write


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("snapshots")
    for stage, rank in ((0, 0), (1, 128)):
        write(root / f"snapshot_{rank}.pickle", 6_000, stage=stage, device=rank % 8, seed=rank)
    made = Lake(root / "lake")
    ingest(sorted(root.glob("*.pickle")), made, run="run")
    return made


def test_the_lake_answers_as_the_file_does(lake: Lake) -> None:
    connection = connect(lake)
    found = stored(connection, "run")
    assert [(one.rank, one.device, one.events) for one in found] == [(0, 0, 6_000), (128, 0, 6_000)]
    assert stored(connection, "other") == ()
    for one in found:
        again = devices(from_lake(connection, one.artifact, one.device))[0]
        read = devices(from_columns(read_snapshot(Path(one.path))))[0]
        assert device_json(again) == device_json(read)
        assert (one.peak_requested_bytes, one.peak_reserved_bytes) == (read.peak.bytes, int(read.levels.reserved.max()))
        kept = connection.execute("SELECT peak_allocated_low_bytes, peak_allocated_high_bytes FROM snapshot_devices WHERE artifact = ?",
                                  [one.artifact])
        assert kept.fetchall() == [(int(read.levels.low.max()), int(read.levels.high.max()))]


def test_the_view_gives_the_levels_of_every_event(lake: Lake) -> None:
    connection = connect(lake)
    for one in stored(connection):
        levels = devices(from_lake(connection, one.artifact, one.device))[0].levels
        rows = records(connection, "SELECT event, requested_bytes, allocated_bytes, reserved_bytes FROM snapshot_levels WHERE artifact = ? "
                       "ORDER BY event", [one.artifact])
        assert [row["event"] for row in rows] == list(range(one.events))
        assert [row["requested_bytes"] for row in rows] == levels.requested[1:].tolist()
        assert [row["allocated_bytes"] for row in rows] == levels.allocated[1:].tolist()
        assert [row["reserved_bytes"] for row in rows] == levels.reserved[1:].tolist()


def test_classes_at_the_peak_are_a_table_for_those_who_name_it(lake: Lake) -> None:
    query = "SELECT rank, class, bytes FROM snapshot_peak_classes ORDER BY rank, bytes DESC, class"
    found = ask(locked(lake), query)
    one = stored(connect(lake))[0]
    device = devices(from_lake(connect(lake), one.artifact, one.device))[0]
    expected = sorted(((0, share.name, share.bytes) for share in device.by_class(device.peak.event)), key=lambda row: (-row[2], row[1]))
    assert [row for row in found.rows if row[0] == 0] == expected
    assert {row[0] for row in found.rows} == {0, 128}
    assert ask(locked(lake), "DESCRIBE snapshot_peak_classes").rows[6][0] == "class"


def test_an_unknown_artifact_is_told(lake: Lake) -> None:
    with pytest.raises(LedgerError, match="no such snapshot"):
        from_lake(connect(lake), "nothing", 0)
