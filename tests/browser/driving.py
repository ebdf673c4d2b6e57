"""A real server of the app and a real browser, for the browser tests and for the pictures of the documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SECONDS = 60.0
NEEDS_BROWSER = [pytest.mark.browser,
                 pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver on the path")]
"""For `pytestmark` of a file of browser tests."""
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")
FILES = "[data-testid=stFileChip]"
"""What was brought, as the field lists it: a few at a time, and long names shortened."""
_SOUGHT = re.compile(r"http://127\.0\.0\.1:\d+/\w+/_stcore/(health|host-config) - Failed to load resource: .* status of 404 ")


@contextmanager
def serving(lake: Path, folder: Path) -> Iterator[str]:
    """The address of `hbmledger app`; its output is printed at the end. An app that does not end well on Ctrl-C is an error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "app", "--lake", str(lake), "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, "STREAMLIT_SERVER_HEADLESS": "true"}, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            waited(lambda: process.poll() is not None or _healthy(port), "the server answers")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
            print(log.read_text(errors="replace"))
    assert code == 0, f"Ctrl-C ended the app with code {code}"
    assert "Traceback" not in log.read_text(errors="replace")


@contextmanager
def browsing(folder: Path, width: int = 1400, height: int = 1200) -> Iterator[Any]:
    """A headless Chromium with a user folder of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "SEVERE"})
    for flag in (*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={folder / 'user'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def waited(asked: Callable[[], Any], what: str) -> Any:
    """The first true answer, asked again until the limit."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        if answer := asked():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"waited {SECONDS:g} s in vain: {what}")


def shows(browser: Any, *words: str) -> str:
    """The page's text once it has all the words."""
    def text() -> str:
        shown = str(browser.execute_script("return document.body.innerText"))
        return shown if all(word in shown for word in words) else ""

    try:
        return str(waited(text, f"the page shows {words}"))
    except AssertionError as error:
        raise AssertionError(f"{error}; it shows: {browser.execute_script('return document.body.innerText')}") from None


def clicked(browser: Any, words: str, *kinds: str) -> None:
    """Click the button or link, or another kind of element, with these words, once it is there and takes clicks.

    A form takes none while its files are under way.
    """
    from selenium.common.exceptions import WebDriverException

    wanted = " or ".join(f"self::{kind}" for kind in kinds or ("button", "a"))

    def click() -> bool:
        try:
            found = browser.find_element("xpath", f"//*[{wanted}][contains(normalize-space(.), '{words}')]")
            if not found.is_enabled():
                return False
            found.click()
        except WebDriverException:
            return False
        return True

    waited(click, f"a button {words!r}")


def uploaded(browser: Any, address: str, files: Sequence[Path], publish: bool = False) -> None:
    """Bring files on the start page and have them read: for this session, or into the lake that all share."""
    browser.get(address)
    field = waited(lambda: browser.find_elements("css selector", "input[type=file]"), "the field to upload to")
    field[0].send_keys("\n".join(str(file) for file in files))
    waited(lambda: browser.find_elements("css selector", FILES), "the files in the field")
    if publish:
        clicked(browser, "Publish to the lake", "label")
    waited(lambda: _asked_to_read(browser), "the app takes the request to read")


def _asked_to_read(browser: Any) -> bool:
    """Click until the app answers: a page that is drawn anew at that moment swallows a click."""
    clicked(browser, "Read it")
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        shown = str(browser.execute_script("return document.body.innerText"))
        if "Cancel" in shown or re.search(r"\d+ files?: \d+", shown) or "Open " in shown:
            return True
        time.sleep(0.1)
    return False


def drawn(browser: Any, charts: int) -> None:
    """Wait until this many charts are painted."""
    inside = "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg.marks"
    waited(lambda: len(browser.find_elements("css selector", inside)) >= charts, f"{charts} charts")


def requests_elsewhere(browser: Any) -> list[str]:
    """Addresses off loopback that the pages asked for."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if url.startswith(("http", "ws")) and "://127.0.0.1:" not in url]


def console_errors(browser: Any) -> list[str]:
    """What the console told as an error since it was last asked, but for what Streamlit does at each link to a page.

    Opened below its root, it looks for its server below the page's own address first, and the console tells that nothing is there.
    """
    told = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    return [message for message in told if not _SOUGHT.match(message)]


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
            return bool(answer.read() == b"ok")
    except (urllib.error.URLError, OSError):
        return False
