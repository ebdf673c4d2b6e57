"""`hbmledger doctor` says which compiled readers are at work: those that the readers themselves would take."""

from __future__ import annotations

import json

import pytest

import ingest.native
from cli import main


@pytest.mark.parametrize(("there", "said"), [
    (set(), "none: the Python readers are used"), ({"log_scan"}, "of logs"), ({"log_scan", "snapshot_scan"}, "of logs and snapshots"),
])
def test_it_names_the_compiled_readers(monkeypatch, capsys, there, said):
    monkeypatch.setattr(ingest.native, "library", lambda name: object() if name in there else None)
    main(["doctor", "--format", "json"])
    assert {one["name"]: one["found"] for one in json.loads(capsys.readouterr().out)}["compiled readers"] == said


def test_every_compiled_source_is_asked_for():
    from ingest.installation import _COMPILED

    assert set(_COMPILED) == {source.stem for source in ingest.native.FOLDER.glob("*.c")}
