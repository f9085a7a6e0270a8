"""The Studio in Firefox, driven by its own remote protocol: Playwright drives only a Firefox of its own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearhead.serve.registry import Service
from clearhead.studio.runs import Runs

from .conftest import opened

FIREFOX = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
PATIENCE = 60  # seconds
QUIET = {  # no request that is not ours
    "app.update.auto": False,
    "browser.newtabpage.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.enabled": False,
}
ERRORS = """return Services.console.getMessageArray()
  .filter((each) => each instanceof Ci.nsIScriptError && !(each.flags & Ci.nsIScriptError.warningFlag))
  .filter((each) => each.sourceName.includes("/studio/")).map((each) => each.errorMessage);"""


class Marionette:
    """A connection to Firefox: messages are `LENGTH:JSON`, an answer is [1, number, error, result]."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.number = 0
        self._read()  # its greeting
        self.ask("WebDriver:NewSession", capabilities={})

    def ask(self, command: str, **parameters: Any) -> Any:
        self.number += 1
        message = json.dumps([0, self.number, command, parameters])
        self.socket.sendall(f"{len(message)}:{message}".encode())
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def run(self, script: str) -> Any:
        return self.ask("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def until(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, f"this never came true: {condition}"
            time.sleep(0.05)

    def _read(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            length += self.socket.recv(1)
        content = b""
        while len(content) < int(length[:-1]):
            content += self.socket.recv(int(length[:-1]) - len(content))
        return json.loads(content)


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Marionette]:
    if FIREFOX is None:
        pytest.skip("needs Firefox: apt install firefox-esr")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {**QUIET, "marionette.port": port}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
    (tmp_path / "user.js").write_text("".join(lines), encoding="utf-8")
    command = [FIREFOX, "--headless", "--marionette", "--remote-allow-system-access", "--profile", str(tmp_path)]
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"HOME": str(tmp_path)}
    )
    try:
        connection = _connect(port, running)
        with connection.socket:
            yield connection
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _connect(port: int, running: subprocess.Popen[bytes]) -> Marionette:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Marionette(port)
        except ConnectionRefusedError:
            assert running.poll() is None, "Firefox has ended"
            assert time.monotonic() < deadline, "Firefox does not listen"
            time.sleep(0.1)


@pytest.mark.slow
def test_the_main_views_work_in_firefox(firefox: Marionette, tmp_path: Path) -> None:
    with opened(Service.load(["en-es"]), Runs(tmp_path / "runs")) as home:
        firefox.ask("WebDriver:Navigate", url=f"{home}/studio/?lang=en#play")
        firefox.until("document.querySelectorAll('.st-token').length > 4")
        assert firefox.run("return document.querySelector('.st-answer').innerText").startswith(
            "Ella tiene un coche rojo."
        )
        for view, shown in {
            "heads": ".ch-lines path",
            "steps": ".ch-bars rect",
            "what-if": ".st-column",
            "xray": ".ch-stage canvas",
            "learn": ".st-idea .ch-equation",
            "train": ".st-new-run select",
        }.items():
            firefox.run(f"location.hash = '#{view}'")
            firefox.until(f"document.querySelector('.st-{view} {shown}')")
            assert firefox.run("return document.querySelectorAll('.st-error:not([hidden])').length") == 0
        firefox.ask("WebDriver:Navigate", url=f"{home}/studio/?lang=de#learn")
        firefox.until("document.querySelector('h1')?.innerText === 'Lernen'")
        firefox.ask("Marionette:SetContext", value="chrome")
        assert firefox.run(ERRORS) == []
