"""Pictures of Dagster's page, kept where `SCREENSHOTS` names a folder, and what is drawn on a canvas in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# The box around all pixels that are neither grey nor white, those of a line and of its points, as parts of the canvas.
_DRAWN = """canvas => {
  const {width, height} = canvas, data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let [left, right, top, bottom] = [width, -1, height, -1];
  for (let y = 0, n = 0; y < height; y++)
    for (let x = 0; x < width; x++, n += 4) {
      const colours = data.slice(n, n + 3);
      if (data[n + 3] <= 128 || Math.max(...colours) - Math.min(...colours) <= 60) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    }
  return [Math.max(0, right - left) / width, Math.max(0, bottom - top) / height];
}"""


_PATIENCE = 60_000


@contextmanager
def opened_page(chromium: str, address: str) -> Iterator[Page]:
    """A new page of this Chromium; `goto` takes paths below the address."""
    # Imported here: the module is collected also where playwright is not installed.
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        opened = browser.new_page(base_url=address, viewport={"width": 1400, "height": 850})
        opened.set_default_timeout(_PATIENCE)
        expect.set_options(timeout=_PATIENCE)
        yield opened
        browser.close()


def keep_picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        # Fonts and plots move for a moment after they are there.
        page.wait_for_load_state("networkidle")
        page.screenshot(path=str(Path(folder) / f"{name}.png"), animations="disabled")


def wait_until_drawn(page: Page, plot: Locator, width: float, height: float) -> None:
    """Until the line of a plot takes up these parts of its canvas; a single point takes up next to nothing."""
    wanted = f"canvas => {{ const drawn = ({_DRAWN})(canvas); return drawn[0] > {width} && drawn[1] > {height}; }}"
    page.wait_for_function(wanted, arg=plot.element_handle())
