"""Archives that mean harm, or are only broken: one sentence each, the other files read."""

import io
import os
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from ingest.archives import archive_kind, files_below, members
from ingest.artifacts import Limits
from ingest.errors import QUARANTINED, LedgerError
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.ingest.toy import log, toy, visible

__all__ = ["toy"]


def make_tar(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for info, data in entries:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info


def said(path: Path, limits: Limits = Limits()) -> dict[str, str | None]:  # noqa: B008
    return {member.name: member.problem or (member.stream.read().decode() if member.stream else None) for member in members(str(path), limits)}


HOSTILE = [
    ("../../etc/cron.d/x", tarfile.REGTYPE, "climbs out"), ("/etc/x", tarfile.REGTYPE, "absolute"), ("link", tarfile.SYMTYPE, "link"),
    ("hard", tarfile.LNKTYPE, "link"), ("dev", tarfile.CHRTYPE, "device"), ("pipe", tarfile.FIFOTYPE, "device"),
    ("..\\..\\x", tarfile.REGTYPE, "climbs out"),
]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_hostile_members_of_a_tar_are_refused_and_the_others_read(tmp_path: Path, mode: str) -> None:
    hostile = [(entry(name, kind), b"") for name, kind, _ in HOSTILE]
    path = make_tar(tmp_path / "a.tar", [(entry("one.log"), b"1"), *hostile, (entry("d/two.log"), b"2")], mode)
    read = said(path)
    assert (read["one.log"], read["d/two.log"]) == ("1", "2")
    for name, _, sentence in HOSTILE:
        assert sentence in str(read[name])


def test_hostile_members_of_a_zip_are_refused_and_the_others_read(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../x", "bad")
        archive.writestr("/abs", "bad")
        archive.writestr("C:/x", "bad")
        archive.writestr(link, "/etc/passwd")
        archive.writestr("inner.zip", b"PK\x03\x04 and more")
        archive.writestr("bomb", bytes(5_000_000))
        archive.writestr("ok.log", "fine")
    read = said(tmp_path / "a.zip", Limits(ratio_from_bytes=1_000_000))
    assert read.pop("ok.log") == "fine"
    told = {"../x": "climbs", "/abs": "absolute", "C:/x": "absolute", "link": "link", "inner.zip": "inside an archive", "bomb": "bomb"}
    assert {name: told[name] in str(problem) for name, problem in read.items()} == dict.fromkeys(told, True)


def test_a_bomb_of_a_tar_ends_the_archive(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a.tgz", [(entry("one.log"), b"1"), (entry("bomb"), bytes(5_000_000))])
    with pytest.raises(LedgerError, match="bomb"):
        said(path, Limits(ratio_from_bytes=1_000_000))


def test_too_many_members_end_the_archive(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a.tgz", [(entry(f"{number}.log"), b"1") for number in range(12)])
    with pytest.raises(LedgerError, match="more than 10 files"):
        said(path, Limits(members=10))


def test_a_pax_header_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    header = entry("pax", tarfile.XHDTYPE)
    header.size = 8 * 10**9
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(LedgerError, match="a header of the archive"):
        said(tmp_path / "a.tar")


@pytest.mark.parametrize("keep", [700, 1500, 3500])
def test_a_cut_archive_is_one_sentence(tmp_path: Path, keep: int) -> None:
    noise = [random.Random(seed).randbytes(2000).hex().encode() for seed in range(2)]
    path = make_tar(tmp_path / "a.tgz", [(entry("one.log"), noise[0]), (entry("two.log"), noise[1])])
    path.write_bytes(path.read_bytes()[:keep])
    assert archive_kind(str(path)) == "tar"
    with pytest.raises(LedgerError, match=r"cut off|damaged"):
        said(path)


def test_a_directory_loop_is_walked_once(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("x.log", "train.py", ".hidden"):
        (tmp_path / "a/b" / name).touch()
    (tmp_path / "a/b/up").symlink_to(tmp_path / "a")
    (tmp_path / "a/again").symlink_to(tmp_path / "a/b")
    assert [(path.name, problem) for path, problem in files_below(tmp_path)] == [("x.log", None)]


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "x.log").touch()
    scan = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [(path.name, bool(problem)) for path, problem in files_below(tmp_path)] == [("x.log", False), ("closed", True)]


@pytest.mark.usefixtures("toy")
def test_ingest_reads_what_is_good_in_an_archive_and_tells_the_rest(tmp_path: Path) -> None:
    make_tar(tmp_path / "logs.tar.gz", [(entry("rank_0.log"), log(0)), (entry("../evil.log"), log(1)), (entry("rank_2.log"), log(2))])
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("job/rank_0.log", log(7))
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "plain.log").write_bytes(log(9))
    lake = Lake(tmp_path / "lake")
    summary = ingest([tmp_path], lake, workers=1)
    assert summary.exit_code == QUARANTINED
    assert sorted(Path(path).name for path, _ in summary.problems) == ["broken.zip", "evil.log"]
    assert {row[2] for row in visible(lake) if row[1] == "m"} == {0, 2, 7, 9}
    assert ingest([tmp_path], lake, workers=1).rows == {}
