"""`clearhead studio`: the models that it opens with, and its output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead import run as runs
from clearhead.cli.main import main

pytest.importorskip("fastapi", reason="needs the Studio: pip install 'clearhead[studio]'")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the Studio was opened with; it says that it is ready and ends."""
    seen: dict[str, Any] = {}

    def open_studio(service: Any, runs: Any, port: int, on_ready: Callable[[str], None]) -> None:
        seen.update(models=list(service.models), runs=runs.folder, port=port)
        on_ready("http://127.0.0.1:7/studio/")
        service.close()

    monkeypatch.setattr("clearhead.studio.app.open_studio", open_studio)
    monkeypatch.setattr("typer.launch", lambda address: seen.update(launched=address))
    return seen


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["studio", *words])
    return int(ended.value.code or 0)


def test_it_opens_the_browser_with_the_given_models(opened: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("words", "--port", "7", "--runs", "elsewhere") == 0
    assert opened == {
        "models": ["words"],
        "runs": Path("elsewhere"),
        "port": 7,
        "launched": "http://127.0.0.1:7/studio/",
    }
    assert capsys.readouterr().out == "the Studio is open at http://127.0.0.1:7/studio/ with words (Ctrl-C stops it)\n"


def test_json_and_no_browser(opened: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("words", "--no-browser", "--json") == 0
    assert "launched" not in opened
    assert json.loads(capsys.readouterr().out) == {"address": "http://127.0.0.1:7/studio/", "models": ["words"]}


def test_an_unknown_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nonesuch") == 2
    assert "no such run directory or model: nonesuch" in capsys.readouterr().err


def test_without_names_all_bundled_models_open_and_the_translator_comes_first(opened: dict[str, Any]) -> None:
    assert run("--no-browser") == 0
    assert opened["models"][0] == "en-es"
    assert sorted(opened["models"]) == runs.bundled_names()
