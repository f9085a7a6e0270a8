"""The models of the Studio: their cards, and opening another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

from clearhead import Predictor

from .conftest import Ask


def test_a_model_has_its_card_and_its_size(studio: TestClient, model: Callable[[str], Predictor]) -> None:
    found = studio.get("/studio/api/models/translator/card").json()
    folder = Path(found["folder"])
    assert folder == Path(model("translator").run.path)
    assert found["bytes"] == (folder / "model.safetensors").stat().st_size
    assert not found["card"].startswith("---")


def test_only_models_with_a_template_chat(studio: TestClient) -> None:
    assert not any(each["chats"] for each in studio.get("/studio/api/models").json())


def test_a_model_is_opened_from_its_path(
    studio: TestClient, ask: Ask, model: Callable[[str], Predictor], tmp_path: Path
) -> None:
    (tmp_path / "second").symlink_to(Path(model("translator").run.path).resolve())
    try:
        found = ask("models/open", path=str(tmp_path / "second"))
        assert (found["name"], found["verb"]) == ("second", "translate")
        assert ask("look", model="second", text="the old house")["model"] == "second"
    finally:
        studio.app.state.service.models.pop("second", None)  # type: ignore[attr-defined]
    status, sentence = ask("models/open", path=str(tmp_path / "nothing"))
    assert status == 400
    assert "no such run directory or model" in sentence
