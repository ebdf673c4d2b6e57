"""A memory snapshot is uploaded in a real browser: its peak, its composition, another device, and two beside each other."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep
from typing import Any

from analysis.verdict import size_text
from sample_data.snapshots import write
from tests.browser.driving import NEEDS_BROWSER, clicked, drawn, requests_elsewhere, shows, uploaded, waited
from tests.test_app_snapshot import snapshot

pytestmark = NEEDS_BROWSER


def chosen(browser: Any, label: str, option: str) -> None:
    """Choose an option of the field with this label."""
    field = f"//*[@data-testid='stSelectbox'][.//label[contains(normalize-space(.), '{label}')]]//input"
    waited(lambda: browser.find_elements("xpath", field), f"a field {label!r}")
    browser.find_element("xpath", field).click()
    found = f"//*[@role='option'][contains(normalize-space(.), '{option}')]"
    waited(lambda: browser.find_elements("xpath", found), f"an option {option!r}")
    browser.find_element("xpath", found).click()


def clicked_in_the_timeline(browser: Any) -> None:
    """Click beside the middle of the first picture until the page shows the instant: one that is drawn anew swallows a click."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.common.action_chains import ActionChains

    def chosen_now() -> bool:
        picture = browser.find_elements("css selector", "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg.marks")
        try:
            ActionChains(browser).move_to_element_with_offset(picture[0], 100, 0).click().perform()
        except (WebDriverException, IndexError):
            return False
        limit = monotonic() + 8
        while monotonic() < limit:
            if "(chosen)" in str(browser.execute_script("return document.body.innerText")):
                return True
            sleep(0.1)
        return False

    waited(chosen_now, "a click in the timeline is taken")


def test_an_uploaded_snapshot_shows_its_peak_its_composition_and_its_devices(server: str, browser: Any, tmp_path: Path) -> None:
    uploaded(browser, server, [snapshot(tmp_path / "up" / "snap_rank3.pickle.gz", devices=2)])
    shows(browser, "1 file: 1 new")
    clicked(browser, "Snapshots of")
    shows(browser, "Peak requested", "8.00 MiB", "Lived then", "rank 3: snap_rank3.pickle.gz, device 0")
    assert not browser.find_elements("xpath", "//script[contains(., 'alert(1)')]")
    drawn(browser, 3)
    chosen(browser, "Device", "1")
    shows(browser, "9.00 MiB", "device 1")
    clicked(browser, "Out of memory")
    shows(browser, "50.0 MiB asked", "Case A")
    assert requests_elsewhere(browser) == []


def test_two_ranks_are_compared(server: str, browser: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "up" / f"snapshot_{rank}.pickle" for rank in (0, 128)]
    paths[0].parent.mkdir()
    truths = [write(path, 3_000, stage=stage) for stage, path in enumerate(paths)]
    uploaded(browser, server, paths)
    shows(browser, "2 files: 2 new")
    clicked(browser, "Snapshots of")
    peaks = [size_text(truth["peaks"]["requested"]["bytes"]) for truth in truths]
    shows(browser, "Peak requested", peaks[0], "rank 0: snapshot_0.pickle", "gradient buffer")
    drawn(browser, 3)
    clicked_in_the_timeline(browser)
    clicked(browser, "Compare", "button")
    shows(browser, "Compare with", f"Peak {peaks[0]} here, {peaks[1]} there")
    drawn(browser, 2)
    assert requests_elsewhere(browser) == []
