"""A view from one file outside the package is listed, shown, drawn and saved like every other."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

import clearhead
from clearhead.cli.main import _run
from clearhead.look import VIEWS, View, show
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs

PLUGIN = Path(__file__).with_name("view_plugin.py")
SENTENCE = "She has a red car."


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(PLUGIN))


def test_it_is_listed_after_the_views_of_the_package() -> None:
    assert VIEWS.names()[-1] == "entropy"
    assert "entropy" not in VIEWS.builtin()
    assert issubclass(VIEWS["entropy"], View)


def test_in_python_it_is_the_entropy_of_the_weights(tmp_path: Path) -> None:
    model = clearhead.load("en-es")
    view = show(model, "entropy", item=SENTENCE, kind="encoder.self")
    look = model.look(SENTENCE)
    weights = look.weights["encoder.self"][1][2]  # (T, S)
    expected = float(-(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean())
    assert view.to_json()["bits"][1][2] == pytest.approx(expected, rel=1e-5)
    assert 0 < expected <= math.log2(weights.size(-1))
    assert look.view("entropy", kind="encoder.self").to_json() == view.to_json()
    assert view.save(tmp_path / "entropy.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert view._repr_svg_().startswith("<?xml")


def test_on_the_command_line_it_is_a_view_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["look", "en-es", SENTENCE, "--view", "entropy"]
    assert _run(command, debug=False) == 0
    assert capsys.readouterr().out.startswith("entropy of decoder.cross in bits\n")
    assert _run([*command, "--json"], debug=False) == 0
    bits = torch.tensor(json.loads(capsys.readouterr().out)["bits"])
    assert bits.shape == (3, 6)
    assert _run([*command, "--out", str(tmp_path / "entropy.svg")], debug=False) == 0
    assert ">layer 2<" in (tmp_path / "entropy.svg").read_text(encoding="utf-8")
    assert _run([*command, "--out", str(tmp_path / "entropy.html")], debug=False) == 2
    assert "this view has no page" in capsys.readouterr().err


def test_in_a_new_process_only_the_variable_brings_it(tmp_path: Path, commands_folder: Path) -> None:
    command = [commands_folder / "clearhead", "look", "en-es", SENTENCE, "--view", "entropy", "--json"]
    named = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(named.stdout)["format"] == "entropy-1"
    unnamed = {key: value for key, value in os.environ.items() if key != "CLEARHEAD_PLUGINS"}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=unnamed, cwd=tmp_path)
    assert refused.returncode == 2
    assert "unknown view entropy" in refused.stderr


def test_a_page_of_ones_own_is_one_javascript_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "entropy.js"
    script.write_text(
        'import { frame, handle, title, widget } from "./frame.js";\n\n'
        'export const FORMAT = "entropy-1";\n\n'
        "export function mount(element, data, options = {}) {\n"
        '  const view = frame(element, { name: "entropy", label: "Entropy", draw, json: () => data }, options);\n'
        "  function draw() {\n    title(view.heading, [data.kind], `${data.bits.length} layers`);\n  }\n"
        "  return handle(view, (next) => { data = next; });\n}\n\n"
        "export default widget(mount);\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(VIEWS["entropy"], "page", str(script))
    view = show(clearhead.load("en-es"), "entropy", item=SENTENCE)
    page = view.save(tmp_path / "entropy.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "entropy_js.mount(" in page
    assert "const frame_js = " in page
    assert '"format": "entropy-1"' in page


def test_the_studio_lists_and_shows_it(tmp_path: Path) -> None:
    service = Service.load(["en-es"])
    with TestClient(make_app(service, Runs(tmp_path), Access()), base_url="http://127.0.0.1") as client:
        views = {view["name"]: view for view in client.get("/studio/api/views").json()}
        assert set(VIEWS.builtin()) < set(views)
        assert views["entropy"]["help"] == "How spread out the attention of each head is, in bits."
        body = {"model": "en-es", "view": "entropy", "text": SENTENCE, "kind": "encoder.self"}
        found = client.post("/studio/api/view", json=body).json()
        assert found["data"] == show(clearhead.load("en-es"), "entropy", item=SENTENCE, kind="encoder.self").to_json()
        assert found["svg"].startswith("<?xml")
        wrong = client.post("/studio/api/view", json={**body, "view": "entropi"})
        assert (wrong.status_code, wrong.json()["error"]["message"]) == (
            400,
            "unknown view entropi; did you mean entropy?",
        )
