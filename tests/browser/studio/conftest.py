"""The Studio with bundled models, and a page that must not log errors or load anything external."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clearhead.serve.registry import Service
from clearhead.serve.server import Address
from clearhead.studio.app import make_studio
from clearhead.studio.runs import Runs

from ..conftest import Watched

SIZE: Any = {"width": 1280, "height": 720}
PATIENCE = 60  # seconds: the machine may be busy
MODELS = ["en-es", "digits", "shakespeare", "words"]

Go = Callable[..., Any]


@pytest.fixture(scope="session")
def service() -> Service:
    """Closed by the server that it is given to."""
    return Service.load(MODELS)


@pytest.fixture(scope="session")
def home(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Studio."""
    with opened(service, Runs(tmp_path_factory.mktemp("runs"))) as address:
        yield address


@contextmanager
def opened(service: Service, runs: Runs) -> Iterator[str]:
    place = Address(port=0)
    server, listening = make_studio(service, runs, place), place.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield place.url(listening)
    server.should_exit = True
    thread.join()


class StudioPage(Watched):
    """A page that sends requests to the Studio only."""

    def __init__(self, page: Any, home: str):
        self.home = home
        self.ignored = ""  # the console message of a request that a test lets fail
        super().__init__(page)
        page.set_default_timeout(1000 * PATIENCE)

    @property
    def unexpected(self) -> list[str]:
        """Console messages that the test does not ignore."""
        return [said for said in self.said if not self.ignored or self.ignored not in said]

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.said.append(f"asked for {request.url}")


@pytest.fixture(scope="session")
def studio_page(browser: Any, home: str) -> Iterator[StudioPage]:
    watched = StudioPage(browser.new_page(viewport=SIZE, color_scheme="light"), home)
    yield watched
    watched.page.close()


@pytest.fixture
def go(studio_page: StudioPage) -> Iterator[Go]:
    """Open a link of the Studio; after the test the page must have been silent."""
    studio_page.said.clear()
    studio_page.ignored = ""

    def go(link: str, **size: int) -> Any:
        studio_page.page.set_viewport_size({**SIZE, **size})
        studio_page.page.goto(f"{studio_page.home}/studio/#learn")  # so that every link is a change
        studio_page.page.goto(f"{studio_page.home}/studio/#{link}")
        return studio_page.page

    yield go
    studio_page.page.emulate_media(color_scheme="light")
    assert studio_page.unexpected == []


def until(page: Any, condition: str) -> None:
    """Wait for a condition, checked from outside: the policy of the page forbids eval."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"this never came true: {condition}"
        page.wait_for_timeout(20)


def settled(page: Any) -> None:
    """Wait until nothing is on its way any more."""
    page.wait_for_selector("main .st-view > *")
    until(page, "!document.querySelector('[aria-busy]')")


def draw_seven(page: Any) -> None:
    """A seven on the pad, as a hand would draw it."""
    box = page.locator(".st-pad").bounding_box()
    corners = [(0.28, 0.2), (0.72, 0.2), (0.55, 0.55), (0.43, 0.85)]
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=5)
    page.mouse.up()
