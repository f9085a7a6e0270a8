"""The system's Chromium, and a page that must stay silent: no error, and no request off the machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clearhead.look.render.html import page as html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LOCAL = ("file:", "data:", "blob:", "https://views.test/")  # the last is answered from the folder of the views
SIZE: Any = {"width": 1000, "height": 760}

Open = Callable[..., Any]


class Watched:
    """A page, and all that it said or asked for since the test began."""

    def __init__(self, page: Any):
        self.page = page
        self.said: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(LOCAL):
            self.said.append(f"asked for {request.url}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'clearhead[dev]'")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield running
        running.close()


@pytest.fixture(scope="session")
def watched(browser: Any) -> Watched:
    """One page for all tests: each goes to a document of its own."""
    return Watched(browser.new_page(viewport=SIZE, color_scheme="light"))


@pytest.fixture
def page(watched: Watched) -> Iterator[Any]:
    """A page in the light, of the usual size; after the test it must have been silent."""
    watched.said.clear()
    watched.page.set_viewport_size(SIZE)
    watched.page.emulate_media(color_scheme="light")
    yield watched.page
    watched.page.unroute_all()
    assert watched.said == []


@pytest.fixture
def show(page: Any, tmp_path: Path) -> Open:
    """Write a view to a file and open it from disk, as a reader would."""
    return partial(open_view, page, tmp_path)


@pytest.fixture
def show_later(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """The same in a page of its own, whose clock only the test moves."""
    watched = Watched(browser.new_page(viewport=SIZE))
    watched.page.clock.install()
    yield partial(open_view, watched.page, tmp_path)
    watched.page.close()
    assert watched.said == []


def open_view(page: Any, folder: Path, view: str, data: dict[str, Any], title: str = "A view") -> Any:
    file = folder / f"{view}.html"
    file.write_text(html(view, data, title), encoding="utf-8")
    page.goto(file.as_uri())
    return page
