"""axe-core on every page, light and dark, wide and narrow: nothing that it calls serious or critical.

axe-core comes with `make install-dev` where npm works; without it these tests are skipped. What lies in markup that Streamlit or Vega writes and
gives no way to change is told apart by rule and element, and each of these is looked for: one that is gone must leave the list.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.browser.driving import NEEDS_BROWSER, waited
from tests.browser.visiting import PAGES, Visitor

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [*NEEDS_BROWSER,
              pytest.mark.skipif(not AXE.is_file(), reason=f"needs axe-core in {AXE.parent}: `make install-dev` puts it there where npm works")]

WIDE, NARROW = 1400, 480


class Known(NamedTuple):
    """What breaks a rule and is not ours to mend: the elements of the rule, the page that surely has it, and why it stays."""

    rule: str
    element: str
    page: str
    reason: str


KNOWN = (
    Known("list", "ul[data-testid=stSidebarNavItems]", "start", "Streamlit puts a div for each group of pages between the list and its items"),
    Known("listitem", "ul[data-testid=stSidebarNavItems] > div > li", "start", "the same groups, seen from the items"),
    Known("svg-img-alt", ".range_brush, .range_brush_bg", "snapshot",
          "Vega draws the rectangle of a dragged selection itself; its specification holds no name for it"),
)
_LOOK = """
const [known, done] = arguments;
axe.run(document, {resultTypes: ['violations'], elementRef: true}).then(found => {
    const bad = [], met = new Set();
    for (const rule of found.violations.filter(one => ['serious', 'critical'].includes(one.impact))) {
        for (const node of rule.nodes) {
            const at = known.findIndex(([name, element]) => name === rule.id && node.element.matches(element));
            if (at < 0) { bad.push(`${rule.id} (${rule.impact}): ${node.html.slice(0, 200)}: ${node.failureSummary}`); } else { met.add(at); }
        }
    }
    done({bad, met: [...met]});
}, wrong => done({bad: [String(wrong)], met: []}));
"""
_SETTLED = """
const moving = document.getAnimations().filter(one => one.playState === 'running' && one.effect.getComputedTiming().iterations !== Infinity);
return getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme === arguments[0] && window.innerWidth === arguments[1]
    && moving.length === 0;
"""


def _ways() -> list[Any]:
    """One theme and width in the quick tests, the other three pairs of them in the long ones."""
    others = (("dark", NARROW), ("dark", WIDE), ("light", NARROW))
    return [pytest.param("light", WIDE), *(pytest.param(*way, marks=pytest.mark.long) for way in others)]


@pytest.fixture
def reader(visitor: Visitor) -> Iterator[Visitor]:
    """The visitor, put back to its own size and theme at the end."""
    yield visitor
    visitor.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    visitor.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    waited(lambda: visitor.browser.execute_script("return window.innerWidth") > WIDE, "the window has its own size again")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("theme", "width"), _ways())
def test_a_page_has_no_serious_fault(reader: Visitor, page: str, theme: str, width: int) -> None:
    reader.look(page, "dense_7b5_pp2" if page == "snapshot" else "moe_16ranks")
    found = looked_at(reader, theme, width)
    assert found["bad"] == []
    wanted = {at for at, one in enumerate(KNOWN) if one.page == page}
    assert wanted <= set(found["met"]), [KNOWN[at] for at in wanted - set(found["met"])]


def test_a_fault_of_ours_is_found(reader: Visitor) -> None:
    reader.open("glossary")
    reader.browser.execute_script("document.querySelector('[data-testid=stMain] h2').style = 'color: #eee; background: #fff'")
    assert any("color-contrast" in one for one in looked_at(reader, "light", WIDE)["bad"])


def looked_at(visitor: Visitor, theme: str, width: int) -> Any:
    """What axe finds on the page in this theme and width, and which of the known faults it met."""
    browser = visitor.browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme},
                                                                        {"name": "prefers-reduced-motion", "value": "reduce"}]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": False})
    waited(lambda: browser.execute_script(_SETTLED, theme, width), f"the page is {theme} and {width} px wide")
    visitor.rest()
    if browser.execute_script("return window.axe === undefined"):
        browser.execute_script(AXE.read_text(encoding="utf-8"))
    browser.set_script_timeout(60)
    return browser.execute_async_script(_LOOK, [(one.rule, one.element) for one in KNOWN])
