"""Write docs/pictures: the real app on the sample runs, driven by a real browser. `python -m docs.make_pictures`; needs chromium and chromedriver.

Beside each picture stand the words that its page showed (`NAME.txt`). Pixels differ from one browser to the next and are compared by nobody; a
test drives the same pages and holds their words to these files, so that a picture whose page says something else now is told. A picture is
written where its words changed or more than a speck of it looks different; `--all` writes every one.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageChops

from tests.browser.driving import CHROMIUM, DRIVER, browsing, drawn, serving, shows
from tests.browser.visiting import Visitor

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLOURS = 256
SPECK = 0.004
"""Share of a picture that may look different without being drawn anew: the hour of an ingest, a caret."""
_MAIN = """
const main = document.querySelector('[data-testid=stMain]') || document.body;
const drawn = [...main.querySelectorAll('canvas, svg, [role=img], [data-testid=stIconMaterial]')];
const was = drawn.map(one => one.style.display);
drawn.forEach(one => { one.style.display = 'none'; });
const text = main.innerText;
drawn.forEach((one, at) => { one.style.display = was[at]; });
return text;
"""
_VARYING = ((re.compile(r"\b\d+(?:\.\d+)? s\b"), "N s"), (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "TIME"))


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: its page, of a run or with a query, the window, charts and words to wait for, and what is done before it is taken."""

    name: str
    page: str
    run: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    width: int = 1280
    height: int = 1000
    charts: int = 0
    words: tuple[str, ...] = ()
    before: Callable[[Any], None] | None = None


def _asked(visitor: Visitor) -> None:
    visitor.click("Ask", "button")


QUERY = ("SELECT run, verdict, ranks_measured AS ranks, fullest_rank, ROUND(peak_bytes / 1073741824, 1) AS peak_gib, ooms\n"
         "FROM fleet_runs ORDER BY peak_bytes DESC")
SHOTS = (
    Shot("start", "start", height=760, words=("Bring a run", "ranks")),
    Shot("overview_dense", "overview", "dense_7b5_pp2", charts=2, words=("came closest",)),
    Shot("theory", "theory", "dense_7b5_pp2", height=1100, charts=1, words=("Evidence",)),
    Shot("snapshot", "snapshot", "dense_7b5_pp2", height=1500, charts=2, words=("Peak requested", "Lived then")),
    Shot("overview_oom", "overview", "oom_run", charts=2, words=("Out of memory",)),
    Shot("overview_moe", "overview", "moe_16ranks", charts=2, words=("came closest",)),
    Shot("findings", "findings", "moe_16ranks", words=("What to try first",)),
    Shot("ledger", "ledger", "moe_16ranks", height=1100, charts=2, words=("Where the gap",)),
    Shot("steps", "steps", "moe_16ranks", height=1100, charts=1, words=("rank by step",)),
    Shot("communication", "communication", "moe_16ranks", height=1100, charts=1, words=("By communicator",)),
    Shot("plan", "plan", "moe_16ranks", height=1100, charts=1, words=("each single change",)),
    Shot("overview_narrow", "overview", query=(("run", "moe_16ranks"),), width=480, charts=2, words=("came closest",)),
    Shot("fleet", "fleet", height=1200, charts=1, words=("Attempts, worst first", "Hardware")),
    Shot("compare", "compare", query=(("before", "dense_7b5_pp2#0"), ("after", "oom_run#0")), height=1100, words=("above that of", "Open this run")),
    Shot("sql", "sql", query=(("query", QUERY),), height=900, words=("Ask",), before=_asked),
)
REPORT = "report"
"""The picture of the report that `hbmledger report moe_16ranks --format html` writes."""


def main() -> None:
    """Ingest the samples, serve them, and take every shot. They are read below a folder of their own, so that no place of this machine shows."""
    from ingest.lake import Lake
    from ingest.pipeline import ingest

    if not (CHROMIUM and DRIVER):
        sys.exit("make_pictures: needs chromium and chromedriver on the path; the pictures stay as they are")
    PICTURES.mkdir(exist_ok=True)
    everything = "--all" in sys.argv[1:]
    with TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        shutil.copytree(ROOT / "sample_data", "sample_data")
        ingest(sorted(path for path in Path("sample_data").iterdir() if any(path.glob("*.log"))), Lake(folder / "lake"))
        with serving(Path("lake"), folder) as address, browsing(folder) as browser:
            visitor = Visitor(browser, address)
            for shot in SHOTS:
                browser.set_window_size(shot.width, shot.height)
                print(_kept(browser, shot.name, shown(visitor, shot), everything))
            browser.set_window_size(1280, 1300)
            print(_kept(browser, REPORT, reported(browser, folder / "lake", folder), everything))


def shown(visitor: Visitor, shot: Shot) -> str:
    """Go there, wait until all is drawn; the words of the page's main part."""
    if shot.query:
        visitor.open(shot.page, **dict(shot.query))
    else:
        visitor.look(shot.page, shot.run)
    if shot.before:
        shot.before(visitor)
    shows(visitor.browser, *shot.words)
    drawn(visitor.browser, shot.charts)
    visitor.rest()
    return words(visitor.browser)


def reported(browser: Any, lake: Path, folder: Path) -> str:
    """Write the HTML report of a run, open it; its words."""
    from cli import main as command

    page = folder / "report.html"
    with page.open("w", encoding="utf-8") as output, redirect_stdout(output):
        command(["report", "moe_16ranks", "--lake", str(lake), "--format", "html"])
    browser.get(page.as_uri())
    shows(browser, "came closest", "Findings")
    return words(browser)


def words(browser: Any) -> str:
    """The words shown, a line each: no chart, icon, time, duration, place of the checkout, nor the day of today's ingest."""
    text = str(browser.execute_script(_MAIN)).replace(f"{ROOT}/", "")
    for day in range(3):
        text = text.replace(f"{datetime.now(UTC) - timedelta(days=day):%Y-%m-%d}", "TODAY")
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return "\n".join(line for each in text.splitlines() if (line := " ".join(each.split()))) + "\n"


def _kept(browser: Any, name: str, text: str, everything: bool) -> str:
    target, record = PICTURES / f"{name}.png", PICTURES / f"{name}.txt"
    picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB").quantize(COLOURS)
    same = record.exists() and record.read_text(encoding="utf-8") == text
    if same and not everything and target.exists() and alike(picture, Image.open(target)):
        return f"{target.relative_to(ROOT)} as before"
    picture.save(target, optimize=True)
    record.write_text(text, encoding="utf-8")
    return f"{target.relative_to(ROOT)} {target.stat().st_size}"


def alike(one: Image.Image, other: Image.Image) -> bool:
    """Whether two pictures of one size differ visibly in no more than a speck."""
    if one.size != other.size:
        return False
    counts = ImageChops.difference(one.convert("RGB"), other.convert("RGB")).convert("L").histogram()
    return sum(counts[48:]) <= SPECK * one.width * one.height


if __name__ == "__main__":
    main()
