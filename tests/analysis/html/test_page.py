"""The HTML report: whole, small, without network or script, hostile text harmless, and redacted where asked."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from analysis.database import from_rows
from analysis.overview import overview
from analysis.report.html import as_html, redacted
from tests.analysis.made import GIB, dense_run, memory

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def of(rows, run="made"):
    return overview(from_rows(rows, run=run), run)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.handlers, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def tags_of(text):
    parser = _Tags()
    parser.feed(text)
    return parser


def test_a_report_needs_nothing_but_itself():
    found = tags_of(as_html(of(dense_run())))
    assert not {"script", "link", "iframe", "img", "object"} & set(found.tags)
    assert found.links == []
    assert {"svg", "table", "h2"} <= set(found.tags)


def test_every_mark_tells_its_bytes_and_its_line():
    text = as_html(of(dense_run()))
    assert f"({24 * GIB:,} B), read at made:100" in text


def test_text_of_artifacts_is_never_markup():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 0, "text": HOSTILE, "frame": HOSTILE, "allocator_hint": HOSTILE, "kind": "cuda", "line": 3}]
    rows["rejects"] = [{"text": HOSTILE, "reason": HOSTILE, "line": 1}]
    rows["rank_memory"] += [memory(None, line=9, rank_label=HOSTILE)]
    found = tags_of(as_html(of(rows, run=HOSTILE)))
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert found.handlers == []


def test_thousands_of_ranks_stay_under_three_megabytes():
    rows = {"rank_memory": [memory(rank, line=rank + 1, peak=20 + rank % 7, device_total_bytes=80 * GIB, device_used_bytes=33 * GIB)
                            for rank in range(16_384)]}
    text = as_html(of(rows))
    assert len(text.encode()) < 3 * 2**20
    assert text.count("<rect") <= 5_200
    assert "the 500 fullest of 16384" in text


def test_an_empty_run_still_reads():
    text = as_html(of({"rejects": [{"reason": "cut", "text": "x"}]}))
    assert "Not measurable" in text


def test_redaction_hides_hosts_addresses_users_and_folders():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 0, "kind": "cuda", "line": 3, "frame": "/home/alice/src/train.py:12",
                           "text": "node-17.cluster: File /home/alice/src/train.py, peer 10.1.2.3:4321, node-17.cluster-b"}]
    found = overview(from_rows(rows, run="made", artifact="/data/alice/logs/rank0.log"), "made")
    text = as_html(redacted(found, ["node-17.cluster"]))
    assert "alice" not in text
    assert "10.1.2.3" not in text
    assert re.search(r"host-1: File train\.py, peer address:4321", text)
    assert "rank0.log:112" in text


def test_redaction_changes_no_figure():
    found = of(dense_run())
    figures = [[replace(rank, source=None, peak_source=None) for rank in one.ranks] for one in (found, redacted(found))]
    assert figures[0] == figures[1]
