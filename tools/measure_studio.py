"""Measure the X-ray of the Studio in a headless Chromium: how fast it opens, how it moves, and what memory it takes.

    python tools/measure_studio.py --seconds 60 --tour 600 --deep MODEL.gguf > measured.json

    open_seconds       from the request for the page until the picture of the model has its numbers
    median_fps         frames a second while it zooms and plays, the median over seconds
    slow_frames        share of the frames that took longer than 20 ms from one to the next
    longest_frame_ms   of a deep model that is opened block by block: the longest time that the page did not respond
    heap_megabytes     of JavaScript after a collection, at equal steps of a tour through every level

The Studio runs in a process of its own, as it does for a user.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--js-flags=--expose-gc")
SIZE: Any = {"width": 1280, "height": 720}
PATIENCE = 120  # seconds
SERVE = """
import sys
from pathlib import Path
from clearhead.serve.registry import Service
from clearhead.studio.app import open_studio
from clearhead.studio.runs import Runs
open_studio(Service.load(sys.argv[2:]), Runs(Path(sys.argv[1])), 0, lambda link: print(link, flush=True))
"""
DRAWN = """() => {
  const canvas = document.querySelector(".ch-stage canvas");
  return Boolean(canvas?.drawn?.());
}"""
WATCH = """() => {
  window.watched = { frames: [], stop: false };
  let last = performance.now();
  const frame = (now) => {
    window.watched.frames.push(now - last);
    last = now;
    if (!window.watched.stop) requestAnimationFrame(frame);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(frame); });
}"""
STOP = "() => { window.watched.stop = true; return window.watched.frames; }"
HEAP = "() => { window.gc?.(); return performance.memory.usedJSHeapSize; }"
LEVELS = ("Decoder", "Block 0", "Self-attention", "Head 0", "weight")


@contextmanager
def studio(models: list[str]) -> Iterator[str]:
    """A Studio with some models -> the link to it."""
    with TemporaryDirectory() as runs:
        command = [sys.executable, "-c", SERVE, runs, *models]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.terminate()


@contextmanager
def browser_page() -> Iterator[Page]:
    """A page of the usual size in the system's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser.new_page(viewport=SIZE)
        browser.close()


def until_drawn(page: Page) -> None:
    """Wait until everything in sight has its numbers; asked from outside, because the page forbids eval."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(DRAWN):
        if time.monotonic() > deadline:
            raise SystemExit("the X-ray was never drawn")
        time.sleep(0.005)


def open_seconds(page: Page, link: str) -> float:
    """From the request until the whole model is drawn."""
    started = time.monotonic()
    page.goto(link)
    page.wait_for_selector(".ch-stage canvas")
    until_drawn(page)
    return round(time.monotonic() - started, 3)


def frames_while(page: Page, seconds: float) -> list[float]:
    """Milliseconds between frames while the page zooms in and out, moves and plays."""
    box: Any = page.locator(".ch-stage canvas").bounding_box()
    centre = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.6
    page.evaluate(WATCH)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        page.mouse.move(*centre)
        for delta in (-120, -120, -120, -120, 120, 120, 120, 120):
            page.mouse.wheel(0, delta)
            page.wait_for_timeout(60)
        page.get_by_role("button", name="Let the data flow").click()
        page.wait_for_timeout(1500)
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Show everything").click()
        fly(page, LEVELS)
        page.get_by_role("button", name="The whole model").click()
        page.wait_for_timeout(600)
    return list(page.evaluate(STOP))


def fly(page: Page, names: tuple[str, ...]) -> None:
    """Zoom in level by level, as far as the model has them."""
    for name in names:
        chip = page.locator(".ch-links .ch-chip").get_by_text(name, exact=True).first
        if chip.count():
            chip.click()
            page.wait_for_timeout(600)


def per_second(frames: list[float]) -> list[int]:
    """Frames in each whole second."""
    counts, passed = [0], 0.0
    for frame in frames:
        passed += frame
        while passed >= 1000:
            passed -= 1000
            counts.append(0)
        counts[-1] += 1
    return counts[1:-1] or counts


def motion(page: Page, seconds: float) -> dict[str, Any]:
    """How evenly the picture moves."""
    frames = frames_while(page, seconds)
    return {
        "median_fps": statistics.median(per_second(frames)),
        "worst_second_fps": min(per_second(frames)),
        "slow_frames": round(sum(frame > 20 for frame in frames) / len(frames), 4),
        "longest_frame_ms": round(max(frames), 1),
    }


def deep(page: Page, link: str) -> dict[str, Any]:
    """A deep model: opened, then block by block."""
    found: dict[str, Any] = {"open_seconds": open_seconds(page, link)}
    page.evaluate(WATCH)
    page.locator(".ch-links .ch-chip").get_by_text("Decoder", exact=True).first.click()
    page.wait_for_timeout(800)
    for block in ("Block 0", "Block 7", "Block 15"):
        fly(page, (block, "Self-attention", "Head 0", "weight"))
        until_drawn(page)
        for _ in range(4):
            page.locator(".ch-stage canvas").press("Escape")
            page.wait_for_timeout(600)
    page.get_by_role("button", name="Let the data flow").click()
    page.wait_for_timeout(3000)
    frames = list(page.evaluate(STOP))
    found["longest_frame_ms"] = round(max(frames), 1)
    found["median_fps"] = statistics.median(per_second(frames))
    return found


def heap(page: Page, seconds: float, steps: int = 10) -> list[float]:
    """Megabytes of JavaScript at equal steps of a tour through the levels of a model."""
    found = []
    for _ in range(steps):
        end = time.monotonic() + seconds / steps
        while time.monotonic() < end:
            fly(page, LEVELS)
            page.get_by_role("button", name="The whole model").click()
            page.wait_for_timeout(600)
        found.append(round(page.evaluate(HEAP) / 1e6, 1))
    return found


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-es", help="a bundled name or a path")
    parser.add_argument("--seconds", type=float, default=60, help="of zoom and play")
    parser.add_argument("--tour", type=float, default=60, help="seconds of the tour for the memory")
    parser.add_argument("--deep", help="a model with many layers")
    given = parser.parse_args()
    models = [given.model, *([f"deep={Path(given.deep)}"] if given.deep else [])]
    with studio(models) as link, browser_page() as page:
        page.goto(link)  # the token becomes a cookie
        page.goto("about:blank")
        home = link.split("?")[0]
        view = f"{home}#xray?model={given.model}"
        measured: dict[str, Any] = {"model": given.model, "open_seconds": open_seconds(page, view)}
        measured |= motion(page, given.seconds)
        measured["heap_megabytes"] = heap(page, given.tour)
        if given.deep:
            page.goto("about:blank")
            measured["deep"] = {"model": given.deep, **deep(page, f"{home}#xray?model=deep")}
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
