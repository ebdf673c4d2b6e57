"""A picture is kept from a real browser, as PNG and as SVG, with its data: files that open elsewhere, and nothing asked of anybody."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq

from tests.browser.driving import NEEDS_BROWSER, drawn, waited
from tests.browser.visiting import Visitor

pytestmark = NEEDS_BROWSER
_HOST = "[...document.querySelectorAll('*')].find(one => one.shadowRoot && one.shadowRoot.querySelector('button[data-as]'))"


def test_a_picture_and_its_data_are_kept(visitor: Visitor, tmp_path: Path) -> None:
    browser = visitor.browser
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})

    def kept(name: str) -> bytes:
        path = tmp_path / name
        waited(path.is_file, f"{name} is kept")
        return path.read_bytes()

    visitor.open("overview", run="moe_16ranks")
    drawn(browser, 3)
    browser.find_element("css selector", ".st-key-picture-ranks-by-stage [data-testid=stPopover] button").click()
    waited(lambda: browser.execute_script(f"return Boolean({_HOST})"), "the box to keep a picture is open")
    for kind in ("svg", "png"):
        browser.execute_script(f"{_HOST}.shadowRoot.querySelector('button[data-as={kind}]').click()")
    svg, png = kept("ranks-by-stage.svg").decode(), kept("ranks-by-stage.png")
    assert {"12", "15", "25.3", "soft headroom, GiB"} - set(ElementTree.fromstring(svg).itertext()) == {"12"}
    assert "127.0.0.1" not in svg
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert width > 600 < 4 * height

    for kind in ("CSV", "Parquet"):
        button = f"//*[@data-testid='stPopoverBody']//button[normalize-space()='{kind}']"
        waited(lambda button=button: browser.find_elements("xpath", button), kind)[0].click()
    assert kept("ranks-by-stage.csv").decode().splitlines()[0] == "stage,who,of,seen,bytes"
    rows = pq.read_table(waited(lambda: next(iter(tmp_path.glob("*.parquet")), None), "the rows are kept")).to_pylist()
    assert [row["who"] for row in rows if not row["seen"]] == ["12"]
    assert min(row["bytes"] for row in rows if row["seen"]) == 471860
    visitor.in_order()
