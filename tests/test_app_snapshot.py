"""The page Snapshot on snapshots brought through the ingest: every part of it, two devices, two files, and texts that try to be HTML."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ingest.lake import Lake
from ingest.pipeline import ingest
from sample_data.snapshots import write
from tests.app_page import go

ROOT = Path(__file__).resolve().parent.parent
EVIL = "<script>alert(1)</script> **bold** $x$ :red[red]"
MIB = 2**20
PARTS = ("Lived then", "Allocator", "Staircase", "Out of memory", "Too long alive", "Compare")


def snapshot(path: Path, devices: int = 1, extra: int = 0) -> Path:
    """A small snapshot whose names try to be markup: 8 MiB of a forward, kept, and an out-of-memory event."""
    frames = [{"name": f"forward {EVIL}", "filename": f"/w/{EVIL}.py", "line": 3}]
    traces, segments = [], []
    for device in range(devices):
        size = (8 + device) * MIB + extra
        traces.append([_event("segment_alloc", 4096, 20 * MIB, frames), _event("alloc", 4096, size, frames), _event("oom", 4096, 50 * MIB, frames)])
        blocks = [{"address": 4096, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames},
                  {"address": 4096 + size, "size": 20 * MIB - size, "requested_size": 0, "state": "inactive", "frames": []}]
        segments.append({"device": device, "address": 4096, "total_size": 20 * MIB, "allocated_size": size, "active_size": size,
                         "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                         "frames": frames, "blocks": blocks})
    notes = [{"stage": "START", "name": EVIL, "device": 0, "time_us": 1}]
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": notes}
    path.write_bytes(gzip.compress(pickle.dumps(made, protocol=4)))
    return path


def _event(action: str, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: address, "size": size, "stream": 0, "time_us": 5, "frames": frames}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("HBMLEDGER_LAKE", str(tmp_path / "lake"))
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)


def opened(app: AppTest) -> AppTest:
    app.run()
    app.switch_page("app_pages/snapshot.py").run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    kinds = (app.markdown, app.caption, app.text, app.code, app.info, app.warning, app.error, app.header)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def metrics(app: AppTest) -> dict[str, str]:
    return {one.label: one.value for one in app.metric}


def test_without_a_snapshot_the_page_says_what_to_bring(app: AppTest) -> None:
    assert "Bring a file" in words(opened(app))


def test_every_part_of_the_page_on_texts_that_try_to_be_markup(app: AppTest, tmp_path: Path) -> None:
    ingest([snapshot(tmp_path / "run" / "snap_rank3.pickle.gz")], Lake(tmp_path / "lake"))
    opened(app)
    assert metrics(app)["Peak requested"] == "8.00 MiB"
    assert metrics(app)["Phase of the peak"] == "unknown"
    for part in PARTS:
        app.segmented_control(key="snapshot_part").set_value(part).run()
        assert not app.exception, part
        plain = [one for kind in (app.markdown, app.caption, app.info, app.warning, app.error, app.header) for one in kind]
        assert not any("**bold" in str(one.value) or "<script>" in str(one.value) or ":red[" in str(one.value) for one in plain), part
        assert not any(getattr(one, "allow_html", False) for one in plain), part
    assert "rank 3" in app.sidebar.selectbox[1].value


def test_another_device_has_its_own_peak(app: AppTest, tmp_path: Path) -> None:
    ingest([snapshot(tmp_path / "run" / "snap.pickle.gz", devices=2)], Lake(tmp_path / "lake"))
    opened(app).sidebar.selectbox[2].set_value(1).run()
    assert not app.exception
    assert metrics(app)["Peak requested"] == "9.00 MiB"


def test_two_snapshots_are_compared(app: AppTest, tmp_path: Path) -> None:
    for rank, extra in ((0, 0), (1, 3 * MIB)):
        ingest([snapshot(tmp_path / "run" / f"snap_rank{rank}.pickle.gz", extra=extra)], Lake(tmp_path / "lake"))
    opened(app).segmented_control(key="snapshot_part").set_value("Compare").run()
    assert not app.exception
    assert "3\\.00 MiB more there" in words(app)


def test_files_of_one_name_are_told_apart_by_their_folders(app: AppTest, tmp_path: Path) -> None:
    for step, extra in ((100, 0), (200, MIB)):
        snapshot(tmp_path / "run" / f"iteration_{step}" / "rank0_memory_snapshot.pickle.gz", extra=extra)
    ingest([tmp_path / "run"], Lake(tmp_path / "lake"))
    options = opened(app).sidebar.selectbox[1].options
    assert options == [f"rank 0: iteration_{step}/rank0_memory_snapshot.pickle.gz" for step in (100, 200)]
    app.sidebar.selectbox[1].set_value(options[1]).run()
    assert not app.exception
    assert metrics(app)["Peak requested"] == "9.00 MiB"


def test_only_a_summary_is_told_to_be_one(app: AppTest, tmp_path: Path) -> None:
    ingest([snapshot(tmp_path / "run" / "snap.pickle.gz")], Lake(tmp_path / "lake"), snapshot_detail="summary")
    opened(app)
    assert "summary" in app.error[0].value


def test_a_megatron_rank_shows_its_classes_and_any_range(app: AppTest, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    truth = write(tmp_path / "run" / "snapshot_0.pickle", 5_000)
    ingest([tmp_path / "run"], Lake(tmp_path / "lake"))
    opened(app)
    classes = app.dataframe[0].value
    true = {name.replace("_", " "): size for name, size in truth["requested_by_class"].items() if size}
    assert dict(zip(classes["class"], classes["bytes"], strict=True)) == true
    app.slider[0].set_value((10, 20)).run()
    assert not app.exception
    assert "chosen" in words(app)


def test_a_link_to_a_run_without_a_snapshot_says_that_and_other_pages_go_on_with_the_run(app: AppTest, tmp_path: Path) -> None:
    ingest([snapshot(tmp_path / "with" / "snap.pickle.gz").parent], Lake(tmp_path / "lake"))
    log = tmp_path / "without" / "train.log"
    log.parent.mkdir()
    log.write_text("[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved: 3.00 | max reserved: 3.00\n")
    ingest([log.parent], Lake(tmp_path / "lake"))
    app.run()
    assert not go(app, "snapshot", run="without").exception
    assert "without has no memory snapshot in this lake; one of with is shown" in words(app)
    assert "not there" not in words(app)
    go(app, "overview")
    assert app.sidebar.selectbox[0].value == "without"
