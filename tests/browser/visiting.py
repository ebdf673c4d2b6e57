"""Moving through the app as a person does, one browser for many pages, and reading what a page shows.

A page that is left by a link of the app costs a fraction of one that is loaded anew. That a click was taken is told by the state of the script,
which changes at once; the address changes before the page does, and a page that is drawn anew at that moment swallows a click.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote, urlencode

from analysis.verdict import size_text
from tests.browser.driving import clicked, console_errors, requests_elsewhere, waited
from tests.conftest import ROOT

PAGES = tuple(dict.fromkeys(re.findall(r"app_pages/([a-z]\w*)\.py", (ROOT / "app.py").read_text())))
"""Every page that app.py lists, Start first."""
_WATCH = """
if (window.turns === undefined) {
    window.turns = 0;
    // Of the whole document: the app's own element is put in anew by the theme that arrives after it.
    const what = {subtree: true, attributes: true, attributeFilter: ['data-test-script-state']};
    new MutationObserver(() => { window.turns += 1; }).observe(document, what);
}
return window.turns;
"""
_RESTS = """
const app = document.querySelector('[data-testid=stApp]');
return app !== null && app.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED'
    && document.querySelector('[data-testid=stMain] :is(h1, h2), [data-testid=stException]') !== null
    && !document.querySelector('[data-stale=true], [data-testid=stSpinner], [data-testid=stSkeleton]');
"""
_LINK = """
const link = [...document.querySelectorAll('a')].find(one => one.pathname === arguments[0] && !one.search && one.getClientRects().length);
if (link) { link.click(); }
return Boolean(link);
"""
_CELLS = """
const done = arguments[1];
for (const one of document.querySelectorAll('[data-testid=stDataFrame] .dvn-scroller')) {
    one.scrollTo(arguments[0] % 2 ? one.scrollWidth : 0, arguments[0] % 4 > 1 ? one.scrollHeight : 0);
}
const cells = () => [...document.querySelectorAll('[data-testid=stDataFrame] table [role=gridcell], [data-testid=stTable] td')];
// A table names its cells 0.2 s after it was scrolled last; asked earlier it still names those of the corner before.
const drawn = () => setTimeout(() => done(cells().map(one => one.textContent)), 300);
requestAnimationFrame(() => requestAnimationFrame(drawn));
"""
_NAMED = """
const words = arguments[0], shown = one => one.getClientRects().length > 0;
const said = one => (one.innerText || '').split('\\n').map(line => line.trim()).filter(Boolean).pop() || one.getAttribute('aria-label');
const target = [...document.querySelectorAll('[role=option], a, button')].find(one => shown(one) && said(one) === words);
if (target) { return {target, at: null, opens: false}; }
const label = [...document.querySelectorAll('label')].find(one => shown(one) && said(one) === words);
const field = label && label.parentElement.querySelector('input, textarea');
const held = field && (field.value || label.parentElement.innerText.split('\\n').pop());
if (field) { return {target: field, at: null, opens: true, held}; }
const cell = [...document.querySelectorAll('[data-testid=stDataFrame] [role=gridcell]')].find(one => one.textContent === words);
if (!cell) { return null; }
const frame = cell.closest('[data-testid=stDataFrame]'), scroller = frame.querySelector('.dvn-scroller');
const rows = Number(cell.closest('table').getAttribute('aria-rowcount')), row = Number(cell.closest('tr').getAttribute('aria-rowindex'));
const height = scroller.scrollHeight / rows, box = scroller.getBoundingClientRect();
return {target: scroller, at: [18 - box.width / 2, height * (row - 0.5) - scroller.scrollTop - box.height / 2], opens: false};
"""


@dataclass
class Visitor:
    """A browser on an app, and the run it looks at."""

    browser: Any
    address: str
    run: str | None = None

    def open(self, page: str, **query: str) -> None:
        """Load a page by its address."""
        self.run = query.get("run")
        self.browser.get(f"{self.address}{path_of(page)}" + (f"?{urlencode(query, quote_via=quote)}" if query else ""))
        self.rest()

    def turn(self, page: str) -> None:
        """Go to a page by the app's own link to it; the run that is looked at stays."""
        if not self._at(page):
            self._taken(lambda: self.browser.execute_script(_LINK, path_of(page)), f"a link of the app to {page}")
            self.arrive(page)

    def look(self, page: str, run: str | None) -> None:
        """A page on a run, by the app's link to it; by its address first where another run is looked at."""
        if run is None:
            self.open(page)
            return
        if run != self.run:
            self.open("overview", run=run)
        self.turn(page)

    def click(self, words: str, *kinds: str) -> None:
        """Click what has these words, and wait for what follows."""
        self._taken(lambda: clicked(self.browser, words, *kinds), f"a click on {words!r}")
        self.rest()

    def _at(self, page: str) -> bool:
        return bool(self.browser.execute_script("return location.pathname") == path_of(page))

    def _taken(self, act: Callable[[], Any], what: str) -> None:
        """Act until the app takes it. A script that ends within one frame of the browser never shows as running: then the new address tells."""
        before, address = self.browser.execute_script(_WATCH), self.browser.current_url

        def taken() -> bool:
            act()
            limit = monotonic() + 5
            while (left := limit - monotonic()) > 0:
                if self.browser.execute_script(_WATCH) > before or (left < 4 and self.browser.current_url != address):
                    return True
                sleep(0.05)
            return False

        waited(taken, f"{what} is taken on {self.browser.current_url}")

    def pick(self, words: str, typed: str = "") -> None:
        """One click on the link, button, option, field or row of a table that has exactly these words, what is typed there, and what follows."""
        found = waited(lambda: self._named(words), f"something named {words!r} on {self.browser.current_url}")
        if found["opens"] and (not typed or str(found["held"]).startswith(typed)):
            self._press(found, "")  # nothing follows where a field opens, or holds already what is asked for
            return
        self._taken(lambda: self._press(self._named(words) or found, typed), f"a click on {words!r}")
        self.rest()

    def _press(self, found: Any, typed: str) -> None:
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        hand = ActionChains(self.browser)
        across, down = found["at"] or (0, 0)  # a table takes a click where it saw the pointer come, which one that rests there since before does not
        hand.move_to_element_with_offset(found["target"], across + 3, down + 3).move_to_element_with_offset(found["target"], across, down).click()
        if typed:
            hand.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(typed, Keys.ENTER)
        with suppress(WebDriverException):
            hand.perform()

    def _named(self, words: str) -> Any:
        for corner in range(4):
            if found := self.browser.execute_script(_NAMED, words):
                return found
            self.browser.execute_async_script(_CELLS, corner)
        return None

    def arrive(self, page: str) -> None:
        """Wait until a page that a click leads to by way of another is there."""
        waited(lambda: self._at(page), f"the page {page}")
        self.rest()

    def rest(self) -> None:
        """Wait until the script has ended and nothing on the page is older than it; an exception there is told at once."""
        waited(lambda: self.browser.execute_script(_RESTS), f"{self.browser.current_url} comes to rest")
        assert self.exceptions() == []

    def shows(self, *words: str, cells: tuple[str, ...] = ()) -> None:
        """Wait until the page's text has all the words, and its tables all the cells."""
        self._words(words)
        seen: set[str] = set()

        def there() -> bool:
            for corner in range(4):
                seen.update(self.browser.execute_async_script(_CELLS, corner))
                if seen.issuperset(cells):
                    return True
            return False

        try:
            waited(there, "the tables show their cells")
        except AssertionError:
            raise AssertionError(f"not in a table of {self.browser.current_url}: {set(cells) - seen}; there are: {sorted(seen)}") from None

    def _words(self, words: tuple[str, ...]) -> None:
        missing: list[str] = []

        def there() -> bool:
            shown = self.text()
            missing[:] = [word for word in words if " ".join(word.split()) not in shown]
            return not missing

        try:
            waited(there, "the page shows its words")
        except AssertionError:
            raise AssertionError(f"not on {self.browser.current_url}: {missing}; it shows: {self.text()}") from None

    def text(self) -> str:
        """What the page shows, as one line."""
        return " ".join(str(self.browser.execute_script("return document.body.innerText")).split())

    def exceptions(self) -> list[str]:
        """What the page tells of exceptions in it."""
        return [one.text for one in self.browser.find_elements("css selector", "[data-testid=stException]")]

    def in_order(self) -> None:
        """No exception on the page, no error in the console, nothing asked of anybody but the server."""
        assert self.exceptions() == []
        assert console_errors(self.browser) == []
        assert requests_elsewhere(self.browser) == []


def path_of(page: str) -> str:
    """The address of a page below the server's."""
    return "/" if page == PAGES[0] else f"/{page}"


def gib_cell(size_bytes: float) -> str:
    """Bytes as the cell of a table in GiB holds them, before it rounds them for the eye."""
    return number_cell(size_bytes / 2**30)


def number_cell(value: float) -> str:
    """A number as a browser writes it."""
    return repr(float(value)).removesuffix(".0")


def size(size_bytes: float) -> str:
    """Bytes as a sentence of the app tells them."""
    return size_text(int(size_bytes))
