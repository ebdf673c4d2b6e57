"""The verbs that keep a lake in order: compact, vacuum, retention."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from analysis.database import connect, from_rows
from cli import main
from ingest.lake import Lake
from ingest.upkeep.reading import spilling
from tests.ingest.daily import Fleet


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def answer(*argv: str, code: int = 0) -> Any:
        assert main(list(argv)) == code
        return capsys.readouterr()

    return answer


@pytest.fixture
def lake(tmp_path: Path) -> str:
    fleet = Fleet(Lake(tmp_path / "a lake"), 1)
    for _ in range(4):
        fleet.write()
    return fleet.lake.root


def test_compact_says_what_it_did_and_then_that_nothing_is_left(ask: Any, lake: str) -> None:
    assert "rank_memory: " in (out := ask("compact", "--lake", lake, "--table", "rank_memory", "--table", "rank_day").out)
    assert "oom_events" not in out
    assert "hbmledger vacuum" in out
    done = {one["table"]: one for one in json.loads(ask("compact", "--lake", lake, "--format", "json").out)}
    assert (done["rank_memory"]["commits"], done["artifacts"]["commits"]) == (0, 1)
    assert ask("compact", "--lake", lake).out.startswith("Nothing to do")


def test_vacuum_keeps_what_is_young(ask: Any, lake: str) -> None:
    ask("compact", "--lake", lake)
    assert ask("vacuum", "--lake", lake).out == "No file was replaced or left behind more than 7d ago.\n"
    assert json.loads(ask("vacuum", "--lake", lake, "--dry-run", "--format", "json").out)[0]["files"] == 0
    assert "1h" not in ask("vacuum", "--lake", lake, "--older-than", "1h").err


def test_retention_says_what_it_would_remove(ask: Any, lake: str) -> None:
    out = ask("retention", "--lake", lake, "--raw", "1h", "--events", "1h", "--dry-run").out
    assert out.splitlines()[-1] == "Nothing was removed: --dry-run."
    assert [one["rule"] for one in json.loads(ask("retention", "--lake", lake, "--thin", "30d", "--format", "json").out)] == ["thin", "thin"]


def test_retention_takes_its_ages_from_the_settings(ask: Any, lake: str, tmp_path: Path) -> None:
    config = tmp_path / "hbmledger.toml"
    config.write_text(f'lake = "{lake}"\n[retention]\nevents = "30d"\nraw = "90d"\n')
    said = json.loads(ask("retention", "--config", str(config), "--dry-run", "--format", "json").out)
    assert [(one["table"], one["rule"]) for one in said] == [("snapshot_events", "events"), ("rank_memory", "raw"), ("memory_stats", "raw")]
    said = json.loads(ask("retention", "--config", str(config), "--thin", "9d", "--dry-run", "--format", "json").out)
    assert {one["rule"] for one in said} == {"thin"}, "options come before settings"
    for text, told in (("evnets = '30d'", "retention.evnets is no setting"), ("raw = 90", "'90' is no age")):
        config.write_text(f"[retention]\n{text}\n")
        assert told in ask("retention", "--lake", lake, "--config", str(config), code=2).err


def checks(out: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(out)}


def test_doctor_tells_the_tables_and_what_is_due(ask: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks(ask("doctor", "--lake", lake, "--format", "json").out)
    assert [found[name]["due"] for name in ("small files", "files of no use", "days")] == [None] * 3
    assert "4 commits" in found["table artifacts"]["found"]
    monkeypatch.setattr("ingest.upkeep.health.MANY_SMALL", 3)
    assert checks(ask("doctor", "--lake", lake, "--format", "json", code=1).out)["small files"]["due"] == f"hbmledger compact --lake {lake}"
    assert f"run `hbmledger compact --lake {lake}`" in ask("doctor", "--lake", lake, code=1).out
    ask("compact", "--lake", lake)
    assert checks(ask("doctor", "--lake", lake, "--format", "json").out)["small files"]["found"].startswith("0 could be merged")


def test_doctor_tells_files_that_nobody_needs(ask: Any, lake: str) -> None:
    stray = Path(Lake(lake).uris("rank_memory")[0]).with_name("part-left.parquet")
    stray.write_bytes(b"half")
    os.utime(stray, (0, 0))
    found = checks(ask("doctor", "--lake", lake, "--format", "json", code=1).out)["files of no use"]
    assert found["found"].startswith("1 of 0.0 MiB, the oldest of 1970-01-01")
    assert found["due"] == f"hbmledger vacuum --lake {lake}"
    ask("vacuum", "--lake", lake)
    assert checks(ask("doctor", "--lake", lake, "--format", "json").out)["files of no use"]["found"] == "none older than a week"


def test_doctor_tells_records_that_no_day_holds(ask: Any, lake: str) -> None:
    DeltaTable(Lake(lake)._address("rank_day")).delete()
    assert "records are in no day" in checks(ask("doctor", "--lake", lake, "--format", "json").out)["days"]["found"]


def test_doctor_tells_a_lost_log(ask: Any, lake: str) -> None:
    shutil.rmtree(Path(lake) / "rank_memory" / "_delta_log")
    found = checks(ask("doctor", "--lake", lake, "--format", "json", code=2).out)
    assert "the log of the table rank_memory (_delta_log) is lost" in found["tables"]["found"]


def test_no_engine_draws_a_bar_into_the_output(lake: str) -> None:
    shown = "SELECT current_setting('enable_progress_bar')"
    with spilling(Lake(lake)) as connection:
        assert connection.execute(shown).fetchall() == [(False,)]
    assert [one.execute(shown).fetchall() for one in (connect(Lake(lake)), from_rows({}))] == [[(False,)]] * 2


@pytest.mark.parametrize(("argv", "told"), [
    (["compact", "--table", "nonsense"], "there is no table nonsense"), (["vacuum", "--older-than", "10m"], "'10m' is no age"),
    (["vacuum", "--older-than", "0h"], "cannot be removed after"), (["retention"], "nothing to remove was named"),
    (["retention", "--raw", "ninety"], "'ninety' is no age"),
])
def test_mistakes_are_one_sentence(ask: Any, lake: str, argv: list[str], told: str) -> None:
    assert told in ask(argv[0], "--lake", lake, *argv[1:], code=2).err


@pytest.mark.parametrize("verb", [["compact"], ["vacuum"], ["retention", "--raw", "1d"]])
def test_where_no_lake_is(ask: Any, tmp_path: Path, verb: list[str]) -> None:
    assert "there is no lake here" in ask(*verb, "--lake", str(tmp_path / "none"), code=2).err
