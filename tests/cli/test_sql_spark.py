"""What the command says where Spark cannot be asked: no client, no server, options that do not fit. Needs no Java."""

from __future__ import annotations

import socket
import sys

import pytest

from cli import main
from tests.analysis.made import dense_run
from tests.test_app import lake_with


@pytest.fixture
def lake(tmp_path):
    lake_with(tmp_path / "lake", dense_run())
    return str(tmp_path / "lake")


@pytest.fixture
def nowhere():
    """An address of this machine where nothing listens: a port that is bound and not listened to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"sc://127.0.0.1:{one.getsockname()[1]}"


def said(capsys, lake, *argv):
    assert main(["sql", "SELECT 1", "--lake", lake, *argv]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def test_a_server_that_does_not_answer_is_told(capsys, lake, nowhere):
    pytest.importorskip("pyspark.sql.connect.session", reason="the full pyspark is not installed", exc_type=ImportError)
    assert "no Spark Connect server answers" in said(capsys, lake, "--engine", "spark", "--remote", nowhere)


def test_a_client_that_is_not_installed_is_told(capsys, lake, nowhere, monkeypatch):
    for name in [one for one in sys.modules if one.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "pip install 'hbmledger[spark]'" in said(capsys, lake, "--engine", "spark", "--remote", nowhere)


@pytest.mark.parametrize(("argv", "word"), [(("--engine", "spark"), "go together"), (("--remote", "sc://127.0.0.1:1"), "go together"),
                                            (("--engine", "spark", "--remote", "127.0.0.1:1"), "sc://"),
                                            (("--engine", "spark", "--remote", "sc://"), "sc://"),
                                            (("--engine", "spark", "--remote", "sc://127.0.0.1:port"), "sc://")])
def test_options_that_do_not_fit_are_told(capsys, lake, argv, word):
    assert word in said(capsys, lake, *argv)
