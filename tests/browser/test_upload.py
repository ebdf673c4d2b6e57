"""A real server and a real browser: artifacts are uploaded and their numbers are read off the page.

Each ends in the same way: no exception on any page, no error in the console, nothing asked of anybody but the server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.browser.driving import FILES, NEEDS_BROWSER, clicked, drawn, shows, uploaded, waited
from tests.browser.visiting import Visitor, size

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
    Visitor(browser, server).in_order()


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
    Visitor(browser, server).in_order()


def test_an_uploaded_folder_of_a_mixture_of_experts_shows_its_ranks_and_their_load(server: str, browser: Any) -> None:
    folder = SAMPLES / "moe_16ranks"
    truth = json.loads((SAMPLES / "truth/moe_16ranks.json").read_text())
    browser.get(server)
    clicked(browser, "Folder", "button")
    field = waited(lambda: browser.find_elements("css selector", "input[type=file][webkitdirectory]"), "the field for a folder")
    field[0].send_keys(str(folder))
    files = sum(path.is_file() for path in folder.rglob("*"))
    waited(lambda: browser.find_elements("css selector", FILES), "the files in the field")
    clicked(browser, "Read it")
    shows(browser, f"{files} files: {files} new")
    clicked(browser, "Open moe_16ranks")
    shows(browser, "Rank 3 (stage 0) came closest", f"{len(truth['classes'])} of 16")
    visitor = Visitor(browser, server)
    visitor.turn("steps")
    visitor.shows("stable 1", "occasional 2", "The fullest rank moved")
    visitor.in_order()


def test_an_uploaded_snapshot_of_an_error_shows_what_was_asked_and_which_case_it_is(server: str, browser: Any) -> None:
    case = json.loads((SAMPLES / "truth/oom_cases.json").read_text())["oom_case_b1"]
    uploaded(browser, server, [SAMPLES / "oom_case_b1" / case["snapshot"]])
    shows(browser, "1 file: 1 new")
    clicked(browser, "Snapshots of")
    shows(browser, "Peak requested", case["snapshot"])
    drawn(browser, 3)
    clicked(browser, "Out of memory")
    shows(browser, f"{size(case['account_bytes']['requested'])} asked", f"Case {case['case']}")
    Visitor(browser, server).in_order()


def test_an_archive_that_is_broken_is_told_and_nothing_else_is_lost(server: str, browser: Any, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.write(SAMPLES / "oom_run/train.log", "oom_run/train.log")
    cut = tmp_path / "cut.zip"
    cut.write_bytes((tmp_path / "whole.zip").read_bytes()[:2000])
    uploaded(browser, server, [cut])
    shows(browser, "1 file: 1 could not be read", "cut.zip:", "No run in this lake yet")
    Visitor(browser, server).in_order()
    uploaded(browser, server, [SAMPLES / "oom_run/train.log"])
    shows(browser, "1 file: 1 new")
    clicked(browser, "Open train")
    shows(browser, "ran out of memory at iteration 17", "4 of 8")
    Visitor(browser, server).in_order()
