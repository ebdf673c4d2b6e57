"""A real server and a real browser: artifacts are uploaded and their numbers are read off the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.browser.driving import NEEDS_BROWSER, clicked, drawn, requests_elsewhere, shows, uploaded

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_data"

pytestmark = NEEDS_BROWSER


def test_an_uploaded_log_shows_its_numbers(server: str, browser: Any) -> None:
    browser.get(server)
    shows(browser, "No run in this lake yet")
    uploaded(browser, server, [SAMPLES / "dense_7b5_pp2" / "train.log"])
    shows(browser, "1 file: 1 new")
    clicked(browser, "Open train")
    shown = shows(browser, "Ranks measured", "4 of 256", "sp_selective", "train.log:")
    assert "TP2 PP2" in shown
    assert "run=train" in browser.current_url
    drawn(browser, 3)
    assert requests_elsewhere(browser) == []


def test_an_uploaded_archive_shows_the_fullest_rank_and_a_broken_one_is_told(server: str, browser: Any, tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken.zip", tmp_path / "moe.zip"
    broken.write_bytes(b"PK\x03\x04 this is no archive")
    with ZipFile(whole, "w") as archive:
        for path in (SAMPLES / "moe_16ranks").glob("memory_stats_rank*.jsonl"):
            archive.write(path, f"moe/{path.name}")
    uploaded(browser, server, [broken, whole])
    shows(browser, "15 new", "broken.zip:")
    clicked(browser, "Open upload")
    shows(browser, "Rank 3 came closest", "15 of")
    drawn(browser, 2)
    assert requests_elsewhere(browser) == []
