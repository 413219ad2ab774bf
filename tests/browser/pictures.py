"""The pictures of the documentation: `.venv-browser/bin/python -m tests.browser.pictures` takes them anew."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.test_inspector import proxy, signed_in

DOCS = Path(__file__).parents[2] / "docs"
WIDTH = 1000
PICTURES = {"inspector": ("pipeline", 1420), "inspector-repairs": ("repairs", 1030)}
"""Name -> view of the program's first request, height."""


def main() -> None:
    with proxy() as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        page = signed_in(chromium, url, viewport={"width": 1200, "height": 640}).new_page()
        page.goto("/?q=qwen")
        page.screenshot(path=DOCS / "inspector-requests.png")
        first = page.locator(".requests tbody a").last.get_attribute("href")
        for name, (view, height) in PICTURES.items():
            page.set_viewport_size({"width": WIDTH, "height": height})
            page.goto(f"{first}/{view}")
            if view == "pipeline":
                page.locator("details.message").first.evaluate("(e) => e.removeAttribute('open')")
            page.screenshot(path=DOCS / f"{name}.png")
        page.set_viewport_size({"width": WIDTH, "height": 720})
        page.goto(f"{first}/program")
        page.locator("#step").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_text("Resumed").wait_for()
        page.keyboard.press("ArrowRight")
        page.locator("output", has_text="3 of 4").wait_for()
        page.locator(".source li.sent").wait_for()
        page.locator(".calls summary").first.click()
        page.locator(".calls li").first.hover()
        page.screenshot(path=DOCS / "inspector-program.png")
        chromium.close()


if __name__ == "__main__":
    main()
