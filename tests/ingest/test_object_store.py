"""A lake in an object store: written by several processes at once, read by DuckDB, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from analysis.database import connect, locked
from analysis.query.ask import ask
from cli import main
from ingest import lake_files
from ingest.conditional_put import _signed
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.conftest import ROOT
from tests.ingest.toy import Toy, log, toy, visible
from tests.s3_server import BUCKET, environment, fresh, serving

__all__ = ["toy"]

SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from ingest import units
from ingest.pipeline import ingest
from tests.ingest.toy import Toy
units.PARSERS = (Toy(),)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(2):
    ingest([sys.argv[1]], sys.argv[2], workers=1)
"""


@pytest.fixture(scope="module")
def address():
    with serving() as served:
        yield served


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An address below which nothing is yet."""
    return fresh(address, monkeypatch, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    for rank in range(6):
        (tmp_path / "job" / f"rank_{rank}.log").write_bytes(log(rank))
    return tmp_path / "job"


def test_a_lake_in_an_object_store_answers_as_one_in_a_folder(store: str, folder: Path, tmp_path: Path, toy: Toy) -> None:
    lake = Lake(store)
    assert (lake.exists(), lake.uris("rank_memory"), lake.sources(), lake.version()) == (False, [], [], "none")
    assert ingest([folder], lake, workers=1).files_new == 6
    ingest([folder], tmp_path / "lake", workers=1)
    assert visible(Lake(store)) == visible(tmp_path / "lake")
    stored, local = ({one.path: (one.closed_bytes, one.parser_state) for one in Lake(root).sources()} for root in (store, tmp_path / "lake"))
    assert stored == local
    (folder / "rank_0.log").write_bytes(log(0, 0, 30))
    assert (again := ingest([folder], Lake(store), workers=1)).files_grown == 1, again
    assert ingest([folder], Lake(store), workers=1).files_unchanged == 6
    assert len(visible(Lake(store))) == 6 * 22 + 10


def test_processes_ingesting_into_an_object_store_at_once_stay_exact(store: str, folder: Path, tmp_path: Path, toy: Toy) -> None:
    command = [sys.executable, "-c", SCRIPT, str(folder), store]
    racers = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 4
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for rank in range(6):  # files grow while all are at it
            with (folder / f"rank_{rank}.log").open("ab") as file:
                file.write(log(rank, 20, 25))
        assert [(racer.communicate(timeout=120)[1], racer.returncode) for racer in racers] == [("", 0)] * 4
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    ingest([folder], store, workers=1)
    ingest([folder], tmp_path / "whole", workers=1)
    assert visible(Lake(store)) == visible(tmp_path / "whole")
    assert len(visible(Lake(store))) == 6 * 27


def test_verbs_work_on_an_address(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(ROOT / "sample_data" / "oom_run"), "--lake", store]) == 0
    assert main(["report", "oom_run", "--lake", store]) == 0
    assert main(["runs", "--lake", store]) == 0
    assert main(["sql", "SELECT COUNT(*) AS n FROM oom_events", "--lake", store, "--format", "csv"]) == 0
    assert main(["check", "oom_run", "--lake", store]) == 1
    assert main(["plan", "oom_run", "--lake", store]) == 0
    assert main(["compact", "--lake", store]) == 0
    assert main(["doctor", "--lake", store]) == 0
    printed = capsys.readouterr()
    assert (store in printed.out, printed.err) == (True, "")


OTHERS = ("lake://rank_memory/_delta_log/00000000000000000000.json", "lake://artifacts/x.parquet", f"s3://{BUCKET}/secret.parquet", "/etc/passwd",
          "http://127.0.0.1:1/x")


def test_sql_of_a_person_reads_the_lakes_own_files_and_no_other_object(store: str, folder: Path, toy: Toy) -> None:
    ingest([folder], store, workers=1)
    lake = Lake(store)
    connection = locked(lake)
    assert ask(connection, "SELECT COUNT(*) FROM rank_memory").rows == ((120,),)
    for place in OTHERS:
        for reader in ("read_parquet", "read_text", "read_csv", "glob"):
            with pytest.raises(LedgerError):
                ask(connection, f"SELECT * FROM {reader}('{place}')")
    with pytest.raises(LedgerError, match="COPY is not allowed"):
        ask(connection, f"COPY (SELECT 1) TO '{lake.uris('rank_memory')[0]}'")


def test_the_file_system_gives_the_named_files_only_and_takes_none(store: str, folder: Path, toy: Toy) -> None:
    ingest([folder], store, workers=1)
    lake = Lake(store)
    reader = lake.file_system()
    (uri,) = lake.uris("rank_memory")
    assert reader is not None
    assert reader.open(uri, "rb").read()[:4] == b"PAR1"
    assert (reader.exists(uri), reader.glob("lake://rank_memory/*"), reader.ls("lake://rank_memory", detail=False)) == (True, [], [])
    with pytest.raises(FileNotFoundError):
        reader.open("lake://rank_memory/_delta_log/00000000000000000000.json", "rb")
    with pytest.raises(PermissionError):
        reader.open(uri, "wb")
    assert lake.addresses("rank_memory") == [uri.replace("lake://", f"{store}/")]


def test_threads_that_share_a_file_do_not_move_each_others_position(store: str, folder: Path, toy: Toy) -> None:
    """The engine seeks and reads from several threads on one handle; one of them may close it first."""
    ingest([folder], store, workers=1)
    lake = Lake(store)
    (uri,), reader = lake.uris("rank_memory"), lake.file_system()
    assert reader is not None
    file = reader.open(uri, "rb")
    whole = file.read()

    def ranges(start: int) -> bool:
        right = True
        for at in range(start, len(whole), 97):
            file.seek(at)
            right = right and file.read(53) == whole[at:at + 53]
        file.close()
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ranges, range(0, 800, 100)))
    assert (file.seek(-4, os.SEEK_END), file.read(), file.read(1)) == (len(whole) - 4, b"PAR1", b"")


def test_a_lost_log_in_an_object_store_is_told(store: str, folder: Path, toy: Toy) -> None:
    from deltalake.fs import DeltaStorageHandler

    ingest([folder], store, workers=1)
    lake = Lake(store)
    assert lake._options
    DeltaStorageHandler(store, lake._options).delete_dir("rank_memory/_delta_log")
    with pytest.raises(LedgerError, match=r"_delta_log.* is lost"):
        connect(lake)


def test_a_store_without_conditional_writes_is_refused(store: str, folder: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(conditional=False) as careless:
        monkeypatch.setenv("AWS_ENDPOINT_URL", careless)
        with pytest.raises(LedgerError, match="If-None-Match"):
            ingest([folder], store, workers=1)
        assert not Lake(store).exists()


@pytest.mark.parametrize(("root", "words"), [
    ("s3://KEY:hush@bucket/lake", "no user, key"), ("s3://bucket/lake?aws_secret_access_key=hush", "no user, key"),
    ("s3://bucket/lake#hush", "no user, key"), ("gs://bucket/lake", "gs:// are not supported"), ("az://bucket/lake", "az:// are not supported"),
    ("file:///tmp/lake", "file:// are not supported"), ("s3://", "is s3://bucket/prefix"), ("s3:///lake", "is s3://bucket/prefix"),
    ("s3://bucket/a b", "is s3://bucket/prefix"), ("s3://bucket/a/../b%20", "is s3://bucket/prefix"),
])
def test_addresses_that_are_refused(store: str, root: str, words: str) -> None:
    with pytest.raises(LedgerError, match=words) as told:
        Lake(root)
    assert "hush" not in str(told.value)


def test_credentials_come_from_a_profile_where_the_environment_has_none(
    store: str, folder: Path, tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest([folder], store, workers=1)
    served = os.environ["AWS_ENDPOINT_URL"]
    for name in environment(""):
        monkeypatch.delenv(name)
    (tmp_path / ".aws").mkdir()
    with pytest.raises(LedgerError, match="no credentials"):
        Lake(store)
    (tmp_path / ".aws" / "credentials").write_text("[lab]\naws_access_key_id = k\naws_secret_access_key = s\n")
    (tmp_path / ".aws" / "config").write_text(f"[profile lab]\nendpoint_url = {served}\nregion = eu-west-3\n[profile sso]\nsso_session = x\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert len(visible(Lake(store))) == 6 * 22
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(LedgerError, match=r"elsewhere \(sso_session\)"):
        Lake(store)
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(LedgerError, match="the profile absent holds no keys"):
        Lake(store)


def test_settings_that_would_give_up_the_stores_decision_do_not_count(store: str, folder: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    ingest([folder], store, workers=1)
    assert len(visible(Lake(store))) == 6 * 22


def test_plain_http_leaves_this_machine_only_where_that_is_allowed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.lab:9000")
    with pytest.raises(LedgerError, match="plain http"):
        Lake(store)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    Lake(store)


def test_a_store_that_does_not_answer_is_one_sentence(store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["runs", "--lake", f"s3://no-such-bucket/{Path(store).name}"]) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert main(["runs", "--lake", store]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "The specified bucket does not exist" in first
    assert "Connection refused" in second


def test_the_package_that_reading_needs_is_named_where_it_is_missing(store: str, folder: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest([folder], store, workers=1)
    monkeypatch.delitem(sys.modules, lake_files.__name__)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(LedgerError, match=r"needs the package fsspec .*hbmledger\[objectstore\]"):
        connect(Lake(store))


def test_the_write_that_tries_a_store_is_signed_as_amazons_own_library_signs_it() -> None:
    auth = pytest.importorskip("botocore.auth", reason="needs botocore (the extra dev)")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = {"aws_access_key_id": "KEY", "aws_secret_access_key": "hush/+=", "aws_session_token": "token"}
    ours = _signed("https://store.example:9000/bucket/a/b=c/_try-1", keys, "eu-west-3", datetime(2026, 11, 29, 20, 15, 7))
    kept = {name: value for name, value in ours.headers.items() if name.lower() not in ("authorization", "content-type")}
    theirs = AWSRequest("PUT", ours.full_url, headers=kept, data=b"")
    theirs.context["timestamp"] = "20261129T201507Z"
    signer = auth.S3SigV4Auth(Credentials(*keys.values()), "s3", "eu-west-3")
    signature = signer.signature(signer.string_to_sign(theirs, signer.canonical_request(theirs)), theirs)
    assert ours.headers["Authorization"].endswith(f"Signature={signature}")
