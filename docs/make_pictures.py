"""Write docs/pictures: the real app on the sample runs, driven by a real browser. `python docs/make_pictures.py`; needs chromium and chromedriver."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLOURS = 256
UNSETTLED = "[data-testid=stStatusWidget], [data-testid=stSkeleton], [data-stale=true]"
SHOTS = (("start", "", 1280, 760, 0, ("Bring a run", "Tick a row")),
         ("overview_dense", "overview?run=dense_7b5_pp2", 1280, 1000, 3, ("Ranks measured",)),
         ("overview_moe", "overview?run=moe_16ranks", 1280, 1000, 2, ("came closest",)),
         ("overview_oom", "overview?run=oom_run", 1280, 1000, 2, ("Out of memory",)),
         ("findings", "findings?run=moe_16ranks", 1280, 1000, 0, ("What to try first",)),
         ("ledger", "ledger?run=moe_16ranks", 1280, 1100, 2, ("Where the gap",)),
         ("steps", "steps?run=moe_16ranks", 1280, 1100, 1, ("rank by step",)),
         ("plan", "plan?run=moe_16ranks", 1280, 1100, 2, ("each single change",)),
         ("theory", "theory?run=dense_7b5_pp2", 1280, 1100, 1, ("Evidence",)),
         ("snapshot", "snapshot?run=dense_7b5_pp2", 1280, 1500, 3, ("Peak requested", "Lived then")),
         ("overview_narrow", "overview?run=moe_16ranks", 480, 1000, 2, ("came closest",)))
"""Name, address, width, height, charts and words to wait for."""


def main() -> None:
    """Ingest the samples, serve them, and take every shot."""
    sys.path.insert(0, str(ROOT))
    from ingest.pipeline import ingest
    from tests.browser.driving import browsing, serving

    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        ingest(sorted(path for path in (ROOT / "sample_data").iterdir() if any(path.glob("*.log"))), folder / "lake")
        with serving(Path("lake"), folder) as address, browsing(folder) as browser:
            for shot in SHOTS:
                print(_taken(browser, address, *shot))


def _taken(browser: Any, address: str, name: str, page: str, width: int, height: int, charts: int, words: tuple[str, ...]) -> str:
    from tests.browser.driving import drawn, shows, waited

    browser.set_window_size(width, height)
    browser.get(f"{address}/{page}")
    shows(browser, *words)
    drawn(browser, charts)
    waited(lambda: not browser.find_elements("css selector", UNSETTLED), "the page is still")
    target = PICTURES / f"{name}.png"
    Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB").quantize(COLOURS).save(target, optimize=True)
    return f"{target.relative_to(ROOT)} {target.stat().st_size}"


if __name__ == "__main__":
    main()
