"""Every page of the app on an empty lake, on a small lake whose texts try to be Markdown and HTML, and on broken uploads."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from analysis.verdict import size_text
from app_pages._origin import context
from app_pages._upload import SPOOL, Job, spool, under_root
from ingest.errors import LedgerError
from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema
from tests.analysis.made import dense_run
from tests.app_page import runs_on_start

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("start", "overview", "theory", "rejects", "sql")
RUN = "a_run [x](http://e.example) <b>**bold**</b>"
EVIL = "<script>alert(1)</script> **bold** $x$ :red[red]"


def lake_with(root: Path, rows: dict[str, list[dict[str, Any]]], run: str = RUN) -> Lake:
    """A lake of one artifact that holds `rows`."""
    lake = Lake(root)
    key = {"run": run, "run_index": 0, "artifact": "piece", "month": "2026-01", "cluster": "default"}
    piece = {**key, "source": "one", "path": "logs/train.log", "kind": "megatron_log", "size_bytes": 1, "start_bytes": 0, "end_bytes": 1,
             "status": "closed", "prefix_bytes": 1, "prefix_hash": "00", "rows": 1, "rejected": 1}
    tables = {name: [pa.Table.from_pylist([{**row, **key} for row in given], schema=arrow_schema(name))] for name, given in rows.items()}
    lake.commit(Batch([piece], tables, {"one": None}))
    return lake


@pytest.fixture
def rows() -> dict[str, list[dict[str, Any]]]:
    text = "Theoretical memory footprints: weight and optimizer=1024.00 MB"
    oom = {"rank": 12, "requested_bytes": 2**30, "text": EVIL, "line": 300, "kind": "cuda", "valid": True}
    device = {"device": 3, "host": EVIL, "used_bytes": 70 * 2**30, "total_bytes": 80 * 2**30, "source": "nvidia-smi", "line": 8, "valid": True}
    return {**dense_run(), "device_memory": [device], "rejects": [{"line": 7, "offset_bytes": 70, "text": EVIL, "reason": EVIL}], "oom_events": [oom],
            "theory_reports": [{"line": 60, "iteration": 10, "weight_and_optimizer_bytes": 2**30, "text": text, "producer": "megatron-lm"}]}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("HBMLEDGER_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("HBMLEDGER_SERVER_ROOT", raising=False)
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)


def on_page(app: AppTest, page: str) -> AppTest:
    app.run()
    app.switch_page(f"app_pages/{page}.py").run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    """Everything a page says in text, captions, messages and code."""
    kinds = (app.markdown, app.caption, app.text, app.code, app.info, app.warning, app.error, app.success, app.title, app.header, app.subheader)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


@pytest.mark.parametrize("page", PAGES)
def test_empty_lake_says_what_to_do(app: AppTest, page: str) -> None:
    assert "lake" in words(on_page(app, page))


@pytest.mark.parametrize("page", PAGES)
def test_page_on_a_small_lake(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]], page: str) -> None:
    lake_with(tmp_path / "lake", rows)
    on_page(app, page)
    assert not app.error or page == "overview"


@pytest.mark.parametrize("kept", [True, False])
def test_a_lake_whose_files_are_damaged_meanwhile_is_told_on_every_page(
    app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]], kept: bool,
) -> None:
    lake_with(tmp_path / "lake", rows)
    if kept:
        on_page(app, "overview")
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:50])
    said = [one.value for page in ("steps", "plan", "findings", "compare") for one in on_page(app, page).error]
    assert any("damaged" in one for one in said)


def test_overview_shows_the_runs_own_figures(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", {**rows, "oom_events": []})
    on_page(app, "overview")
    metrics = {one.label: one.value for one in app.metric}
    assert metrics["Ranks measured"] == "8 of 16"
    assert metrics["Rejects"] == "1"
    table = app.dataframe[0].value
    assert list(table["rank"]) == ["0", "1", "4", "5", "8", "9", "12", "13"]
    assert list(table["peak allocated, GiB"]) == [24, 24, 20, 20, 20, 20, 23, 23]


def test_stages_say_what_they_hold(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", rows)
    on_page(app, "overview").segmented_control[0].set_value("Stages").run()
    assert not app.exception
    table = app.dataframe[0].value
    assert list(table["peak allocated, GiB"]) == [24, 20, 20, 23]
    assert "First stage, peak allocated: 4.00 GiB (20.0%) above the median of 2 middle stages" in words(app)


def test_given_device_memory_gives_headroom_and_a_wrong_one_is_told(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", {**rows, "oom_events": []})
    on_page(app, "overview").text_input(key="capacity").set_value("40GiB").run()
    assert not app.exception
    assert {one.label: one.value for one in app.metric}["Least soft headroom"] == size_text((40 - 2 - 31) * 2**30)
    app.text_input(key="capacity").set_value("much").run()
    assert not app.exception
    assert "much" in app.error[0].value


def test_text_of_files_is_never_markdown(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", rows)
    for page in PAGES:
        on_page(app, page)
        shown = [one for kind in (app.markdown, app.caption, app.info, app.warning, app.error, app.header) for one in kind]
        assert not any("**bold" in str(one.value) or "<b>" in str(one.value) or "](http" in str(one.value) for one in shown), page
        assert not any(getattr(one, "allow_html", False) for one in shown), page


def test_a_link_opens_its_run_and_a_wrong_one_says_so(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", rows)
    app.run()
    app.switch_page("app_pages/overview.py")
    app.query_params["run"] = "nosuch"
    app.run()
    assert not app.exception
    assert "nosuch" in app.warning[0].value
    assert app.selectbox[0].value == RUN
    assert app.query_params["run"] == RUN


def test_sql_answers_a_select_and_refuses_the_rest(app: AppTest, tmp_path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    lake_with(tmp_path / "lake", rows)
    on_page(app, "sql").text_area[0].set_value("SELECT COUNT(*) AS n FROM rank_memory")
    app.button[0].click().run()
    assert not app.exception
    assert list(app.dataframe[0].value["n"]) == [8]
    app.text_area[0].set_value("DROP VIEW rank_memory")
    app.button[0].click().run()
    assert not app.exception
    assert "not allowed" in app.error[0].value


def test_reading_nothing_asks_for_something(app: AppTest) -> None:
    on_page(app, "start").button[0].click().run()
    assert not app.exception
    assert "Choose something" in app.warning[0].value


def ended(app: AppTest) -> Job:
    """The session's job after its end, and the page as it then is."""
    job: Job = app.session_state["job"]
    assert job.thread is not None
    job.thread.join(60)
    assert not job.running
    app.run()
    assert not app.exception
    return job


def test_an_upload_becomes_a_run(app: AppTest) -> None:
    line = b'{"rank": 3, "iteration": 5, "scope": "interval", "stats": {"allocated_bytes.all.peak": 1048576, "allocated_bytes.all.current": 4096}}\n'
    app.run()
    app.file_uploader[0].set_value(("memory_stats_rank3.jsonl", line, "application/json"))
    app.button[0].click().run()
    job = ended(app)
    assert job.error is None
    assert job.summary.files_new == 1
    assert "1 file: 1 new" in app.success[0].value
    assert "1 of ? ranks measured" in words(app)
    on_page(app, "overview")
    assert list(app.dataframe[0].value["rank"]) == ["3"]
    assert SPOOL not in words(app)


def test_a_file_without_any_record_is_no_success(app: AppTest) -> None:
    app.run()
    app.file_uploader[0].set_value(("train.log", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "text/plain"))
    app.button[0].click().run()
    assert ended(app).error is None
    assert not app.success
    assert "Nothing in it looks like a record" in app.warning[0].value


def test_a_broken_archive_is_told_beside_the_file_that_was_read(app: AppTest) -> None:
    line = b'{"rank": 0, "iteration": 5, "scope": "interval", "stats": {"allocated_bytes.all.peak": 1048576}}\n'
    app.run()
    broken = ("broken.zip", b"PK\x03\x04 this is no archive", "application/zip")
    app.file_uploader[0].set_value([broken, ("memory_stats_rank0.jsonl", line, "text/plain")])
    app.button[0].click().run()
    job = ended(app)
    assert job.error is None
    assert any("broken.zip" in path for path, _ in job.summary.problems)
    assert "broken.zip" in words(app)
    assert SPOOL not in words(app)
    assert job.summary.rows["memory_stats"] == 1


def test_an_ingest_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "memory_stats_rank0.jsonl").write_text("{}\n")
    job = Job([tmp_path / "one"], str(tmp_path / "lake"))
    job.stop.set()
    job.start()
    assert job.thread is not None
    job.thread.join(60)
    assert job.error is None
    assert job.summary.cancelled


def test_an_ingest_under_way_shows_its_stage_and_can_be_stopped(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go = threading.Event(), threading.Event()

    def slow(paths: Any, lake: Any, *, run: Any, progress: Any, cancelled: Any, committed: Any, **_: Any) -> Any:
        progress("read", 2**20, 2**22, "logs/train.log")
        committed({"early run"})
        reached.set()
        go.wait(60)
        raise LedgerError("stopped" if cancelled() else "not stopped")

    monkeypatch.setattr("ingest.pipeline.ingest", slow)
    app.run()
    app.file_uploader[0].set_value(("train.log", b"x", "text/plain"))
    app.button[0].click().run()
    assert reached.wait(60)
    app.run()
    assert not app.exception
    assert app.status[0].label == "Reading"
    assert "logs/train.log" in words(app)
    assert [link.label for link in app.get("page_link")] == ["Open early run as far as it is read"]
    next(button for button in app.button if button.label == "Cancel").click().run()
    go.set()
    assert ended(app).error == "stopped"


def test_a_defect_of_ours_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ingest.pipeline.ingest", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    job = Job([tmp_path], str(tmp_path / "lake")).start()
    assert job.thread is not None
    job.thread.join(60)
    assert job.error
    assert "defect" in job.error


class Given(io.BytesIO):
    """An uploaded file."""

    def __init__(self, name: str, content: bytes = b"x") -> None:
        super().__init__(content)
        self.name = name


@pytest.mark.parametrize(("names", "written"), [
    (["train.log"], ["train/train.log"]),
    (["run7/rank_0.log", "run7/sub/rank_1.log"], ["run7/rank_0.log", "run7/sub/rank_1.log"]),
    (["../../etc/x.log"], ["etc/x.log"]),
    (["..\\..\\x.log", "/y.log"], ["upload/x.log", "upload/y.log"]),
    (["a.log", "a.log"], ["upload/a-2.log", "upload/a.log"]),
    (["a\x00\n.log"], ["a__/a__.log"]),
    ([".."], ["upload/upload"]),
])
def test_uploads_stay_in_their_folder(tmp_path: Path, names: list[str], written: list[str]) -> None:
    spool([Given(name) for name in names], tmp_path, known=())
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == written


@pytest.mark.parametrize(("name", "ending"), [
    ("\u00e4" * 240 + ".log", ".log"), ("\u6f22" * 255, ""), ("x" * 250 + ".log.gz", ".gz"), ("." + "x" * 300, ""),
])
def test_a_name_longer_than_a_file_system_takes_is_cut_and_keeps_its_ending(tmp_path: Path, name: str, ending: str) -> None:
    spool([Given(name), Given(name)], tmp_path, known=())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert all(path.name.endswith(ending) and path.stat().st_size == len(Given(name).read()) for path in written)


def test_an_upload_that_the_disk_does_not_take_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    class Full(Given):
        def read(self, size: int = -1, /) -> bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(LedgerError, match="No space left on device") as refused:
        spool([Given("a.log"), Full("b.log")], tmp_path, known=())
    assert "TMPDIR" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_second_upload_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    assert [spool([Given("train.log")], tmp_path, known={"train-2"}).name for _ in range(2)] == ["train", "train-3"]


def test_one_archive_stands_for_itself(tmp_path: Path) -> None:
    assert spool([Given("moe.tar.gz")], tmp_path, known=()) == tmp_path / "moe" / "moe.tar.gz"
    assert spool([Given("moe.tar.gz")], tmp_path, known=()) == tmp_path / "moe-2" / "moe-2.tar.gz"


@pytest.mark.parametrize("given", ["..", "/etc/passwd", "a/../../x", "link/x"])
def test_a_server_path_stays_below_its_root(tmp_path: Path, given: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(LedgerError, match="outside"):
        under_root(given, str(root))


def test_a_server_path_below_the_root_is_taken(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    assert under_root("logs", str(tmp_path)) == (tmp_path / "logs").resolve()
    with pytest.raises(LedgerError, match="no such"):
        under_root("nothing", str(tmp_path))


def test_context_shows_the_lines_around_as_text(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"".join(b"line %d\x1b\xff\n" % number for number in range(1, 11)))
    shown = context(str(log), 5).splitlines()
    assert [line.split()[-1][0] for line in shown] == list("2345678")
    assert [line for line in shown if line.startswith(">")] == [">       5  line 5\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"]
    assert context(str(tmp_path / "gone.log"), 5) == ""


def test_lines_are_those_of_the_file_as_it_lies_now(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert context(str(log), 1) == ""
    log.write_text("one\n")
    assert context(str(log), 1) == ">       1  one"
    log.write_text("another\n")
    assert context(str(log), 1) == ">       1  another"


def test_a_relative_path_is_another_file_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_text(f"{name}\n")
    monkeypatch.chdir(tmp_path / "here")
    assert context("x.log", 1).endswith("here")
    monkeypatch.chdir(tmp_path / "there")
    assert context("x.log", 1).endswith("there")


def test_a_path_on_the_server_is_read_and_one_outside_is_refused(app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "job_1").mkdir(parents=True)
    (tmp_path / "root" / "job_1" / "memory_stats_rank0.jsonl").write_text('{"rank": 0, "stats": {"allocated_bytes.all.peak": 1048576}}\n')
    monkeypatch.setenv("HBMLEDGER_SERVER_ROOT", str(tmp_path / "root"))
    app.run()
    app.segmented_control[0].set_value("Path on the server").run()
    app.text_input[0].set_value("../lake")
    app.button[0].click().run()
    assert not app.exception
    assert "outside" in app.error[0].value
    app.text_input[0].set_value("job_1")
    app.button[0].click().run()
    assert ended(app).summary.runs == ("job_1",)


def test_a_session_sees_no_other_ones_upload_until_it_is_published(app: AppTest) -> None:
    other = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.run()
    other.run()
    app.file_uploader[0].set_value(("memory_stats_rank3.jsonl", b'{"rank": 3, "stats": {"allocated_bytes.all.peak": 1}}\n', "text/plain"))
    app.button[0].click().run()
    ended(app)
    assert runs_on_start(app) == ["memory_stats_rank3"]
    other.run()
    assert not other.exception
    assert not other.dataframe
    other.switch_page("app_pages/overview.py")
    other.query_params["run"] = "memory_stats_rank3"
    assert "No run in this lake" in words(other.run())
    next(button for button in app.button if button.label == "Publish to the lake").click().run()
    ended(app)
    assert not any(button.label == "Publish to the lake" for button in app.button)
    other.switch_page("app_pages/start.py")
    other.run()
    assert runs_on_start(other) == ["memory_stats_rank3"]


def test_two_uploads_of_one_name_are_published_as_two_runs(app: AppTest) -> None:
    sessions = app, AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    for rank, session in enumerate(sessions):
        session.run()
        line = b'{"rank": %d, "stats": {"allocated_bytes.all.peak": 1}}\n' % rank
        session.file_uploader[0].set_value(("memory_stats_rank3.jsonl", line, "text/plain"))
        session.button[0].click().run()
        ended(session)
    for session in sessions:
        next(button for button in session.button if button.label == "Publish to the lake").click().run()
        ended(session)
    assert sorted(runs_on_start(app.run())) == ["memory_stats_rank3", "memory_stats_rank3-2"]


def test_an_upload_can_be_published_at_once(app: AppTest, tmp_path: Path) -> None:
    app.run()
    app.file_uploader[0].set_value(("memory_stats_rank3.jsonl", b'{"rank": 3, "stats": {"allocated_bytes.all.peak": 1}}\n', "text/plain"))
    app.toggle[0].set_value(True)
    app.button[0].click().run()
    ended(app)
    assert Lake(tmp_path / "lake").exists()
    assert runs_on_start(app)[0] == "memory_stats_rank3"
