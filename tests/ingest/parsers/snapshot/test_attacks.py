"""Hostile and damaged pickles: nothing is executed, memory and time stay inside their limits, each ends in one sentence."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import LedgerError
from ingest.parsers.snapshot import compiled
from ingest.parsers.snapshot.limits import ReadLimits, damaged, hostile, no_snapshot, too_large
from ingest.parsers.snapshot.reading import read_snapshot
from tests.conftest import ROOT
from tests.ingest.parsers.snapshot import attacks, made
from tests.ingest.parsers.snapshot.made import READERS

MIB = 2**20
REFUSALS = {refusal("").todo for refusal in (damaged, hostile, no_snapshot, too_large)}


def ended(folder: Path, reader: str, pickles: Iterable[bytes]) -> list[dict[str, Any]]:
    """How each pickle ended, read in one confined process that runs in `folder`; none created the canary or took ten seconds."""
    (folder / "in").mkdir()
    for number, data in enumerate(pickles):
        (folder / "in" / f"{number:05}").write_bytes(data)
    command = [sys.executable, "-m", "tests.ingest.parsers.snapshot.batch", reader, "in"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [path.name for path in folder.iterdir()] == ["in"]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    for one in outcomes:
        assert one["seconds"] < 10
        assert one["ok"] or is_one_sentence(one["what"], one["todo"]), one
    return outcomes


def is_one_sentence(what: str, todo: str) -> bool:
    return 0 < len(what) < 400 and "\n" not in what and todo in REFUSALS and "Traceback" not in what and "please report" not in what


@pytest.mark.parametrize("reader", READERS)
def test_code_is_refused_wherever_it_stands(tmp_path: Path, reader: str) -> None:
    names = list(attacks.CODE)
    outcomes = ended(tmp_path, reader, [*map(attacks.alone, attacks.CODE.values()), *map(attacks.inside, attacks.CODE.values())])
    assert [one["ok"] for one in outcomes] == [False] * 2 * len(names)
    for name, one in zip(names * 2, outcomes, strict=True):
        assert "(byte " in one["what"], name
        assert "nothing was executed" in one["what"], name


@pytest.mark.parametrize("reader", READERS)
def test_lengths_beyond_the_file(tmp_path: Path, reader: str) -> None:
    outcomes = ended(tmp_path, reader, [*map(attacks.alone, attacks.LENGTHS.values()), *map(attacks.inside, attacks.LENGTHS.values())])
    assert [one["ok"] for one in outcomes] == [False] * 2 * len(attacks.LENGTHS)


@pytest.mark.parametrize("reader", READERS)
def test_truncated_at_each_of_200_offsets(tmp_path: Path, reader: str) -> None:
    outcomes = ended(tmp_path, reader, attacks.truncations(200))
    assert [one["ok"] for one in outcomes] == [False] * 200
    assert all("cut off" in one["what"] or "begin" in one["what"] for one in outcomes)


@pytest.mark.parametrize("reader", READERS)
def test_mutations(tmp_path: Path, reader: str) -> None:
    outcomes = ended(tmp_path, reader, attacks.mutations(400, seed=1))
    assert {one["ok"] for one in outcomes} == {False, True}


@pytest.mark.skipif(not compiled.available(), reason="the compiled reader was not built")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_the_readers_agree_on_every_type_in_every_place(tmp_path: Path, count: int) -> None:
    """Refused by both or by none, but for keys that the compiled reader does not take."""
    both = []
    for reader in ("python", "compiled"):
        (tmp_path / reader).mkdir()
        both.append(ended(tmp_path / reader, reader, attacks.changes(count, seed=3)))
    apart = [pair for pair in zip(*both, strict=True) if pair[0]["ok"] != pair[1]["ok"] and "key that is n" not in pair[1].get("what", "")]
    assert not apart
    assert {one["ok"] for one in both[0]} == {False, True}


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_5000_mutations(tmp_path: Path, reader: str) -> None:
    assert len(ended(tmp_path, reader, attacks.mutations(5000, seed=2))) == 5000


NESTED_LISTS = b"]" * 300_000 + b"a" * 299_999
NESTED_KEY = b"})" + b"\x85" * 3_000_000 + b"K\x01s"
ENDLESS_HASH = b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (at, at, at + 1) for at in range(64)) + b"}h@K\x01s"
MANY_DICTIONARIES = b"](" + b"}" * 8_000_000 + b"e"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("code", "said"), [
    (NESTED_LISTS, "no memory snapshot"), (NESTED_KEY, ""), (ENDLESS_HASH, "more than 1 s"), (MANY_DICTIONARIES, "memory"),
    (attacks.LENGTHS["LONG_BINPUT"], "memory"),
], ids=["nested lists", "nested key", "endless hash", "many dictionaries", "memo"])
def test_bombs_end_in_a_process_of_their_own(tmp_path: Path, reader: str, code: bytes, said: str) -> None:
    """The process may crash, run out of memory or of time: the one that asked gets one sentence."""
    path = tmp_path / "bomb.pickle"
    path.write_bytes(attacks.alone(code))
    with pytest.raises(LedgerError) as caught:
        read_snapshot(path, reader, ReadLimits(memory_bytes=300 * MIB, seconds=1, file_bytes=2**30))
    error = caught.value
    assert is_one_sentence(error.what, error.todo), error
    assert (error.where, said in error.what or reader == "compiled") == (str(path), True)


def test_code_is_not_run_by_the_process_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("attack.pickle").write_bytes(attacks.inside(attacks.CODE["GLOBAL called"]))
    with pytest.raises(LedgerError, match="nothing was executed"):
        read_snapshot("attack.pickle")
    assert [path.name for path in tmp_path.iterdir()] == ["attack.pickle"]


def test_the_attacks_are_live(tmp_path: Path) -> None:
    """The canary is created where the plain unpickler reads one: the tests above could fail."""
    code = f"import pickle; pickle.loads({attacks.inside(attacks.CODE['GLOBAL called'])!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / attacks.CANARY).exists()


def test_packages_of_the_working_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ingest", "pyarrow", "json"):
        Path(name).mkdir()
        Path(name, "__init__.py").write_text("raise SystemExit('imported from the working folder')")
    Path("snapshot.pickle").write_bytes(pickle.dumps(made.snapshot(), 4))
    assert len(read_snapshot("snapshot.pickle").events) == 9


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(made.snapshot(), 4))
    with pytest.raises(LedgerError, match="more than the 100 that may be read"):
        read_snapshot(path, limits=ReadLimits(memory_bytes=300 * MIB, seconds=5, file_bytes=100))
