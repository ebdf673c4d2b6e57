"""hbmledger.toml: what it says, where it is found, and that every mistake is told with key and line."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.errors import LedgerError
from ingest.settings import Settings, moment, read_settings, seconds, settings_of


@pytest.mark.parametrize(("text", "line", "sentence"), [
    ("lake = 3", 1, "lake is 3 — give a text in quotes"), ("# x\nexlude = ['a']", 2, "exlude is no setting — did you mean 'exclude'?"),
    ("zzz = 1", 1, "known keys are lake, cluster"), ("include = [3]", 1, "include is 3"), ("include = ['a//b']", 1, "no part is empty"),
    ("paths = {a = 1}", 1, "paths is {'a': 1} — give a list"), ("since = 'soon'", 1, "since is 'soon' — a date such as"),
    ("since = '999999w'", 1, "since is"),
    ("every = '0s'", 1, "every is '0s' — a duration"), ("every = 60", 1, "every is 60"), ("workers = true", 1, "workers is True"),
    ("workers = 0", 1, "workers is 0"), ("snapshot_detail = 'none'", 1, "snapshot_detail is 'none'"), ("cluster = 'a/b'", 1, "cluster is 'a/b'"),
    ("names = 3", 1, "write each as a table"), ("retention = 3", 1, "write it as a table, [retention]"),
    ("\n[[names]]\nrun = 'x'", 2, "names.path is missing"),
    ("[[names]]\npath = '/a/{run}'\n\n[retention]\n[[names]]\npath = '/b/{run}'\ncluster = '{where}'", 7, "names.cluster uses {where}"),
    ("[[names]]\npath = '/a/{user}'", 2, "names neither {run} nor {cluster}"), ("[[names]]\npath = '/a/{run'", 2, "a brace that does not close"),
    ("[[names]]\npath = '/a/{run}'\nrun = '{run'", 3, "a brace closes around"),
    ("[[names]]\npath = '/a/{run}'\nclusters = 'x'", 3, "did you mean 'cluster'?"),
    ("[[names]]\npath = '/a/{run}'\ncluster = 'a b'", 3, "names.cluster is 'a b'"),
])
def test_a_mistake_is_told_with_key_and_line(text: str, line: int, sentence: str) -> None:
    with pytest.raises(LedgerError) as raised:
        settings_of(text.encode(), "my.toml")
    assert str(raised.value).startswith(f"my.toml:{line}: ")
    assert sentence in str(raised.value)


@pytest.mark.parametrize("content", [b"lake = ", b"\xff\xfe", b"a = " + b"[" * 5000])
def test_what_is_no_toml_is_one_sentence(content: bytes) -> None:
    with pytest.raises(LedgerError, match="the settings are no TOML"):
        settings_of(content, "my.toml")


def test_relative_places_are_seen_from_the_file(tmp_path: Path) -> None:
    settings = settings_of(b"lake = 'lake'\npaths = ['runs', '/data']\nsince = 2026-11-01", str(tmp_path / "x.toml"))
    assert (settings.lake, settings.paths, settings.since) == (str(tmp_path / "lake"), (str(tmp_path / "runs"), "/data"), "2026-11-01")
    assert settings_of(b"lake = 's3://bucket/a'", "x.toml").lake == "s3://bucket/a"


def test_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HBMLEDGER_CONFIG", raising=False)
    assert read_settings(None) == Settings()
    for number, name in enumerate(("hbmledger.toml", "other.toml", "given.toml")):
        (tmp_path / name).write_text(f"workers = {number + 1}\n")
    assert read_settings(None).workers == 1
    monkeypatch.setenv("HBMLEDGER_CONFIG", "other.toml")
    assert (read_settings(None).workers, read_settings("given.toml").workers) == (2, 3)
    with pytest.raises(LedgerError, match="cannot be read"):
        read_settings("absent.toml")
    (tmp_path / "big.toml").write_text("#" * (1 << 21))
    with pytest.raises(LedgerError, match="longer than 1 MiB"):
        read_settings("big.toml")


def test_a_cluster_from_a_path_becomes_a_name_that_a_partition_can_have() -> None:
    settings = settings_of(b"[[names]]\npath = '/a/{cluster}/**'", "x.toml")
    assert settings.named("/a/rack one:2/x.log") == (None, "rack_one_2")
    assert settings.named("/b/c/x.log") == (None, None)


def test_moments_and_durations() -> None:
    now = datetime(2026, 11, 2, 12, tzinfo=UTC)
    assert moment("90m", now) == datetime(2026, 11, 2, 10, 30, tzinfo=UTC)
    assert moment("2026-11-01") == datetime(2026, 11, 1, tzinfo=UTC)
    assert moment("2026-11-01T02:00+02:00") == datetime(2026, 11, 1, tzinfo=UTC)
    assert (seconds("90s"), seconds("1h")) == (90, 3600)
