"""The inspector as somebody sees it in Chromium: light and dark, wide and narrow, by mouse and by keyboard.

Runs in `.venv-browser`, which has Playwright alone; the proxy runs where ``PROXY_PYTHON`` says. With
``SCREENSHOTS`` naming a folder, each page that is tried leaves a picture there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="`make test-browser` has it, in an environment of its own")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
VIEWS = ("pipeline", "program", "repairs", "timing", "stream", "copy")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
LOOKS = [("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)]

# Texts that have too little contrast to the ground that they stand on (WCAG 2.2, 1.4.3).
CONTRAST = """
() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...poor];
}
"""


# Links and buttons on the first screen that something else lies upon.
COVERED = """
() => [...document.querySelectorAll("main a, main button")].filter((element) => {
  const { left, top, width, height } = element.getClientRects()[0] ?? { width: 0 };
  const [x, y] = [left + width / 2, top + height / 2];
  if (!width || x > innerWidth || y > innerHeight) return false;
  const found = document.elementFromPoint(x, y);
  return found !== element && !element.contains(found);
}).map((element) => element.outerHTML)
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with proxy() as address:
        yield address


@contextmanager
def proxy(*arguments: str) -> Iterator[str]:
    command = [os.environ["PROXY_PYTHON"], "-m", "tests.browser.proxy", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        yield started.stdout.readline().strip()
        started.stdin.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox wants namespaces, which containers and root seldom have.
        started = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        yield started
        started.close()


def signed_in(browser: Browser, url: str, **options: Any) -> BrowserContext:
    """A context whose browser has opened the address with the token."""
    context = browser.new_context(base_url=url, **options)
    first = context.new_page()
    first.goto("/?token=the-token")
    assert first.url == f"{url}/"
    first.close()
    return context


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """A page on which nothing may go wrong unseen."""
    context = signed_in(browser, url, viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield opened
    assert wrong == []
    assert not opened.evaluate("window.ran")
    context.close()


def requests(page: Page) -> list[str]:
    """Addresses of the requests in the list, the newest first."""
    page.goto("/")
    links = page.locator(".requests tbody a")
    return [str(links.nth(n).get_attribute("href")) for n in range(links.count())]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_page_can_be_read_and_fits(page: Page, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    passed, hostile, *_, repaired = requests(page)
    page.goto("/inspector/containers")
    container = str(page.locator("main tbody a").first.get_attribute("href"))
    pages = ["/", "/inspector/playground", "/inspector/containers", "/inspector/status", container]
    pages += [f"{hostile}/{view}" for view in VIEWS] + [f"{repaired}/{view}" for view in VIEWS]
    pages += [f"/inspector/playground?replay={repaired.rpartition('/')[2]}", passed]
    for path in pages:
        page.goto(path)
        shot(page, f"{path}-{scheme}-{width}")
        assert page.evaluate(CONTRAST) == [], path
        found = Axe().run(page, options={"runOnly": {"type": "tag", "values": WCAG}})
        assert found.violations_count == 0, (path, found.generate_report())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(COVERED) == [], path


def test_pointing_at_a_call_lights_its_line(page: Page) -> None:
    page.goto(f"{requests(page)[-1]}/program")
    line = page.locator('[data-line="p2-1"]')
    expect(line).not_to_have_class(re.compile("lit"))
    page.locator('[data-lights="p2-1"]').hover()
    expect(line).to_have_class(re.compile("lit"))


def test_the_arrow_keys_walk_through_the_turns_of_a_program(page: Page) -> None:
    first = requests(page)[-1]
    page.goto(f"{first}/program")
    expect(page.locator(".source li.sent")).to_have_count(1)
    slider = page.get_by_role("slider", name="Program's turn")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Resumed without the model")).to_be_visible()
    expect(slider).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("output")).to_have_text("3 of 4")
    expect(page.locator(".source li.resumed")).to_have_count(2)
    third = page.url
    assert first not in third
    shot(page, "program-third-turn")
    page.reload()
    expect(page.locator("output")).to_have_text("3 of 4")
    page.keyboard.press("Tab")
    slider.focus()
    page.keyboard.press("End")
    expect(page.get_by_text("Outcome: ended")).to_be_visible()


def test_an_svg_made_by_a_cell_is_shown_and_runs_no_script(page: Page) -> None:
    page.goto("/inspector/containers")
    page.locator("main tbody a").first.click()
    picture = page.locator("figure img")
    expect(picture).to_have_js_property("naturalWidth", 50)


def test_without_the_script_links_lead_through_the_turns(browser: Browser, url: str) -> None:
    context = signed_in(browser, url, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{requests(page)[-1]}/program")
    expect(page.get_by_role("slider")).to_have_count(0)
    page.get_by_role("link", name="next turn of the program").click()
    expect(page.get_by_text("Resumed without the model")).to_be_visible()
    page.get_by_role("link", name="previous turn of the program").click()
    expect(page.get_by_text("1 of 4")).to_be_visible()
    context.close()


def test_the_playground_copies_the_tools_of_a_recorded_request(page: Page) -> None:
    requests(page)
    page.goto("/inspector/playground")
    page.get_by_label("Tools from").select_option(index=1)
    page.get_by_role("button", name="Use these").click()
    expect(page.get_by_label("Tools (JSON)")).to_have_value(re.compile("get_weather"))


def test_ten_thousand_requests_are_no_slower_than_fifty(browser: Browser) -> None:
    """The page has fifty rows, however many there are; how long it took is printed (`-s`)."""
    with proxy("many") as url:
        context = signed_in(browser, url)
        page = context.new_page()
        took: dict[str, float] = {}
        for what, path, rows in [
            ("list", "/", 50),
            ("last page", "/?page=200", 50),
            ("search by model", "/?q=rare", 1),
            ("search in bodies", "/?q=send_mail", 50),
            ("filter", "/?show=failed", 0),
            ("one request", "/inspector/requests/req_0/pipeline", 0),
        ]:
            began = time.monotonic()
            page.goto(path)
            took[what] = time.monotonic() - began
            expect(page.locator(".requests tbody tr")).to_have_count(rows)
        lines = (f"\n{what}: {1000 * seconds:.0f} ms" for what, seconds in took.items())
        sys.stdout.write("".join(lines))
        page.goto("/")
        expect(page.get_by_text("10000 requests, page 1 of 200")).to_be_visible()
        assert page.evaluate("document.querySelectorAll('*').length") < 1500
        context.close()


def test_the_list_is_walked_by_keyboard(page: Page) -> None:
    second = requests(page)[1]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{second}")
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("gpt-unknown")
    page.keyboard.press("Enter")
    expect(page.locator(".requests tbody tr")).to_have_count(1)


def test_a_pasted_reply_is_read_on_the_page(page: Page) -> None:
    page.goto("/inspector/playground")
    page.get_by_label("Reply of the model").fill('```tool_code\nget_weather(town="Oslo")\n```')
    page.get_by_role("button", name="Read").click()
    expect(page.locator("#explanation")).to_contain_text('unknown argument "town"')


def test_the_playground_sends_a_request_and_the_list_shows_it(page: Page, url: str) -> None:
    listing = page.context.new_page()
    listing.goto("/")
    before = listing.locator(".requests tbody tr").count()
    page.goto("/inspector/playground")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("Show this request")
    expect(page.locator("#answer")).to_contain_text("<script>")
    listing.bring_to_front()
    expect(listing.locator(".requests tbody tr")).to_have_count(before + 1)
    assert not listing.evaluate("window.ran")


def test_the_filters_offer_new_values_and_keep_the_current_choice(page: Page, url: str) -> None:
    """They knew the models of the moment when the page was opened."""
    page.goto("/?state=answered")
    hello = [{"role": "user", "content": "Hello."}]
    ask(f"{url}/v1/chat/completions", {"model": "a-new-model", "messages": hello})
    models = page.get_by_role("combobox", name="model")
    expect(models.locator("option", has_text="a-new-model")).to_have_count(1)
    expect(page.get_by_role("combobox", name="state")).to_have_value("answered")
    models.select_option("a-new-model")
    ask(f"{url}/v1/chat/completions", {"model": "another-model", "messages": hello})
    expect(page.locator("#rows")).to_contain_text("another-model")
    expect(models).to_have_value("a-new-model")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**model=a-new-model**")
    expect(page.locator(".requests tbody tr")).to_have_count(1)
    expect(models.locator("option", has_text="another-model")).to_have_count(1)


def test_a_hosted_call_waits_until_it_is_approved_on_the_page(page: Page, url: str) -> None:
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "Buy tea."}],
        "tools": [{"type": "mcp", "server_label": "shop"}],
    }
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, f"{url}/v1/chat/completions", request)
        page.goto("/inspector/containers")
        for _ in range(100):
            if page.get_by_text("hosted call, since").count():
                break
            page.reload()
        expect(page.get_by_label("Call")).to_have_text('shop.buy { "article": "<b>tea</b>" }')
        assert page.evaluate(CONTRAST) == []
        shot(page, "hosted-call-waits")
        page.get_by_role("button", name="Approve and run").click()
        expect(page.get_by_text("Nothing waits for approval.")).to_be_visible()
        assert "Bought: " in json.dumps(answer.result(20))


def ask(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_the_theme_is_switched_and_kept(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(CONTRAST) == []


def test_one_click_deletes_all_requests(page: Page) -> None:
    """Last: the others look at what this forgets."""
    page.goto("/")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("No requests yet.")).to_be_visible()


def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        file = re.sub(r"[^\w-]+", "_", name).strip("_")
        page.screenshot(path=Path(folder) / f"{file}.png", full_page=True)
