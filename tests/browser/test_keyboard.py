"""Without a mouse: Tab reaches the drop zone, the navigation, the run list and a page's first control, and shows where it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.driving import NEEDS_BROWSER, shows
from tests.browser.visiting import Visitor

pytestmark = NEEDS_BROWSER

MOST_TABS = 80
# The looks of an element and of what holds it once a frame was drawn and its transitions have ended: a border that is still
# fading in has the colour that it had without the focus.
_LOOKS = """
const [element, done] = arguments, chain = [];
for (let one = element; one && chain.length < 5; one = one.parentElement) chain.push(one);
const settled = () => Promise.allSettled(chain.flatMap(one => one.getAnimations()).map(one => one.finished));
requestAnimationFrame(() => requestAnimationFrame(() => settled().then(() => done(chain.map(one => {
    const style = getComputedStyle(one);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.borderColor, style.backgroundColor].join(';');
}).join(';')))));
"""


def tabbed(browser: Any, selector: str) -> Any:
    """Press Tab until an element that fits has the focus; the element."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    passed = []
    for _ in range(MOST_TABS):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        element = browser.switch_to.active_element
        if browser.execute_script("return arguments[0].matches(arguments[1])", element, selector):
            return element
        passed.append(browser.execute_script("return arguments[0].tagName + ' ' + (arguments[0].innerText || arguments[0].ariaLabel)", element))
    raise AssertionError(f"{MOST_TABS} tabs lead past {selector} nowhere; they lead to {passed}")


def seen(browser: Any, element: Any) -> bool:
    """Whether an element that has the focus looks otherwise than without it."""
    focused = browser.execute_async_script(_LOOKS, element)
    assert browser.switch_to.active_element == element, "the page took the focus away by itself"
    browser.execute_script("arguments[0].blur()", element)
    return bool(browser.execute_async_script(_LOOKS, element) != focused)


@pytest.mark.parametrize(("page", "what"), [
    ("start", "[data-testid=stFileUploaderDropzone] :is(button, input), [data-testid=stFileUploader] button"),
    ("start", "[data-testid=stSidebarNavLink][href$='/overview']"),
    ("start", "[data-testid=stMain] button[kind], [data-testid=stMain] [data-testid^=stBaseButton]"),
    ("overview", "[data-testid=stSidebar] :is(input, [role=combobox])"),
    ("findings", "[data-testid=stMain] :is(button, input, summary)"),
    ("plan", "[data-testid=stMain] input"),
    ("sql", "textarea"),
], ids=["drop zone", "navigation", "button", "run", "severity", "setting", "query"])
def test_tab_reaches_it_and_shows_it(visitor: Visitor, page: str, what: str) -> None:
    visitor.open(page, **({"run": "moe_16ranks"} if page in ("overview", "findings", "plan") else {}))
    element = tabbed(visitor.browser, what)
    assert seen(visitor.browser, element)


def test_a_run_is_opened_from_the_list_by_the_keyboard(visitor: Visitor) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    visitor.open("start")
    tabbed(visitor.browser, "[data-testid=stMain] a[href*='run=moe_16ranks']")
    ActionChains(visitor.browser).send_keys(Keys.ENTER).perform()
    visitor.arrive("overview")
    shows(visitor.browser, "Ranks measured")
