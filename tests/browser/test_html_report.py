"""The HTML report opens from disk in a real browser with networking off: words, pictures, nothing asked of anyone, every line named exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli import main
from tests.browser.driving import NEEDS_BROWSER, browsing, shows

ROOT = Path(__file__).resolve().parents[2]

pytestmark = NEEDS_BROWSER


def test_it_opens_from_disk_without_a_network(tmp_path, capsys):
    assert main(["report", str(ROOT / "sample_data/moe_16ranks"), "--format", "html"]) == 0
    page = tmp_path / "report.html"
    page.write_text(capsys.readouterr().out)
    assert page.stat().st_size < 3 * 2**20
    with browsing(tmp_path) as browser:
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
        browser.get("about:blank")
        browser.get_log("performance")
        browser.get(page.as_uri())
        shows(browser, "came closest", "Findings", "The fullest ranks", "Printed theory")
        drawn = browser.execute_script("return [...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect().height)")
        assert len(drawn) >= 3
        assert all(height > 10 for height in drawn)
        asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
        assert urls == [page.as_uri()]


def test_every_finding_links_to_a_line_that_exists(capsys):
    for run in ("moe_16ranks", "oom_run", "dense_7b5_pp2"):
        assert main(["report", str(ROOT / "sample_data" / run), "--format", "json"]) == 0
        for finding in json.loads(capsys.readouterr().out)["findings"]:
            for source in finding["evidence"]:
                lines = Path(source["artifact"]).read_text().splitlines()
                assert 1 <= source["line"] <= len(lines)
                assert re.search(r"\S", lines[source["line"] - 1])
