"""Train: start, watch, pause, resume, stop and compare; a killed server loses nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clearhead.serve.registry import Service
from clearhead.studio.runs import Runs

from .conftest import PATIENCE, SIZE, StudioPage, opened, until

HERE = Path(__file__).parent
LONG = 100_000  # steps: longer than any test

Open = Callable[[str], Any]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path / "runs", (sys.executable, str(HERE / "trainer.py")))
    yield runs
    end(runs)


def end(runs: Runs) -> None:
    """Leave nothing running."""
    for name in runs.names():
        if runs.state(name) in ("running", "paused"):
            runs.stop(name)
    for child in runs._children.values():
        child.wait()


@pytest.fixture
def visit(browser: Any, runs: Runs) -> Iterator[Open]:
    """A page of a Studio whose trainings are quick."""
    with opened(Service.load(["words"]), runs) as home:
        watched = StudioPage(browser.new_page(viewport=SIZE), home)

        def visit(link: str) -> Any:
            watched.page.goto(f"{home}/studio/#{link}")
            return watched.page

        yield visit
        watched.page.close()
    assert watched.said == []


def state(page: Any, wanted: str) -> None:
    until(page, f"document.querySelector('.st-state')?.innerText === '{wanted}'")


def test_start_pause_resume_and_stop(visit: Open) -> None:
    page = visit(f"train?task=lm&steps={LONG}")
    page.get_by_role("button", name="Start").click()
    state(page, "running")
    until(page, "document.querySelectorAll('.st-samples li').length > 1")
    assert re.match(r"step \d+\s+said at \d+ <b>", page.locator(".st-samples li").first.inner_text())
    assert page.locator(".ch-plot path").count() == 2
    page.get_by_role("button", name="pause").click()
    state(page, "paused")
    page.reload()
    state(page, "paused")
    page.get_by_role("button", name="resume").click()
    state(page, "running")
    page.get_by_role("button", name="stop").click()
    state(page, "stopped")
    page.get_by_role("button", name="resume").click()
    state(page, "running")


def test_upload_a_file_and_compare_two_runs(visit: Open, tmp_path: Path) -> None:
    file = tmp_path / "<img src=x onerror=alert(1)>.txt"
    file.write_text("once upon a time\n" * 5, encoding="utf-8")
    page = visit("train?task=lm&steps=30")
    page.locator("input[type=file]").set_input_files(file)
    until(page, "document.querySelector('.st-news')?.innerText.includes('is uploaded')")
    assert page.locator("img").count() == 0
    for _ in range(2):
        page.get_by_role("button", name="Start").click()
        state(page, "finished")
    assert "img-src-x-onerror-alert-1-.txt" in page.locator(".st-runs li").first.inner_text()
    page.locator(".st-runs input").nth(1).check()
    until(page, "document.querySelectorAll('.ch-plot path').length === 4")
    page.reload()
    until(page, "document.querySelectorAll('.ch-plot path').length === 4")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """A Studio that can be killed."""
    servers: list[subprocess.Popen[bytes]] = []

    def serve(port: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(HERE / "served.py"), str(port), str(tmp_path / "runs"), str(HERE / "trainer.py")]
        servers.append(subprocess.Popen(words))
        deadline = time.monotonic() + 3 * PATIENCE
        while not answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return servers[-1]

    yield serve
    for server in servers:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_killed_server_loses_nothing_and_the_page_reconnects(
    browser: Any, runs: Runs, serve: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    port = free_port()
    server = serve(port)
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(f"http://127.0.0.1:{port}/studio/?token={runs.token()}#train?task=lm&steps={LONG}")
    page.get_by_role("button", name="Start").click()
    until(page, "document.querySelectorAll('.st-samples li').length > 0")
    [name] = runs.names()
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    before = runs.checkpoint(name) or 0
    until(page, "document.querySelector('.st-error')?.innerText.includes('runs continue without it')")
    assert re.search(rf"{name} was at step \d+, its checkpoint at \d+", page.get_by_role("alert").inner_text())
    serve(port)
    until(page, "document.querySelector('.st-news')?.innerText.includes('The server is back')")
    assert f"{name} is running" in page.locator(".st-news").inner_text()
    assert page.get_by_role("alert").count() == 0
    assert (runs.checkpoint(name) or 0) >= before > 0
    assert runs.state(name) == "running"
    page.close()


@pytest.mark.slow
def test_a_real_training_learns_and_its_model_can_be_used(browser: Any, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sees a dog and the dog sees a cat.\n" * 200, encoding="utf-8")
    with opened(Service.load(["words"]), Runs(tmp_path / "runs")) as home:
        watched = StudioPage(browser.new_page(viewport=SIZE), home)
        page = watched.page
        page.goto(f"{home}/studio/#train?task=lm&steps=40")
        page.locator("input[type=file]").set_input_files(book)
        until(page, "document.querySelector('.st-news')?.innerText.includes('is uploaded')")
        page.get_by_role("button", name="Start").click()
        page.wait_for_selector(".st-is-finished", timeout=300_000)
        until(page, "document.querySelectorAll('.ch-heads .ch-grid button').length > 0")
        page.get_by_role("button", name="use").click()
        page.wait_for_selector(".st-token")
        assert page.locator("h1").inner_text() == "Play"
        page.close()
    assert watched.said == []
