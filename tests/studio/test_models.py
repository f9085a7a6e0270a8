"""The models of the Studio: their cards, and opening another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.interop.originals import ORIGINALS

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


def test_a_model_of_the_same_name_gets_a_name_of_its_own(
    studio: TestClient, ask: Ask, model: Callable[[str], Predictor], tmp_path: Path
) -> None:
    loaded = studio.app.state.service.models  # type: ignore[attr-defined]
    (tmp_path / "translator").symlink_to(Path(model("critic").run.path).resolve())
    try:
        assert ask("models/open", path=str(tmp_path / "translator"))["name"] == "translator-2"
        assert ask("models/open", path=str(tmp_path / "translator"))["name"] == "translator-2"
        assert loaded["translator"].model.task == "translate"
    finally:
        loaded.pop("translator-2", None)


def test_an_imported_model_is_uploaded_in_parts_and_compared_with_its_original(
    studio: TestClient, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    ORIGINALS["gpt2"].save(tmp_path / "gpt")
    name = studio.post("/studio/api/models/uploads/my gpt").json()["name"]
    other = studio.post("/studio/api/models/uploads/my gpt").json()["name"]
    assert (name, other) == ("my-gpt", "my-gpt-2")
    for file in (tmp_path / "gpt").iterdir():
        content = file.read_bytes()
        for at in range(0, len(content), 50_000):
            part = studio.put(
                f"/studio/api/models/uploads/{name}/{file.name}?at={at}", content=content[at : at + 50_000]
            )
            assert part.json() == {"size": min(len(content), at + 50_000)}
    try:
        found = ask("models/open", path=name, upload=True)
        assert (found["name"], found["task"], found["origin"]) == ("my-gpt", "lm", "imported")
        report = ask("models/my-gpt/parity")["report"]
        assert re.match(r"\d+ tensors used .*, none left over", report[0])
        assert any("transformers" in sentence for sentence in report[1:])
    finally:
        studio.app.state.service.models.pop("my-gpt", None)  # type: ignore[attr-defined]
    status, sentence = ask("models/translator/parity")
    assert (status, sentence) == (400, "translator was not imported, so it has no original to compare with")


@pytest.mark.parametrize(
    ("path", "at", "sentence"),
    [
        ("half/model.bin", 0, "'model.bin' is no file of a model that can be uploaded"),
        ("half/..%2fx.json", 0, "nothing"),
        ("half/config.json", 7, "a part of config.json is missing: upload it again"),
        ("none/config.json", 0, "no upload called 'none' was begun"),
        ("half/model.gguf", 0, "the model is larger than 10 bytes: open it by its path instead"),
    ],
)
def test_an_upload_that_is_wrong_is_refused(
    studio: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, at: int, sentence: str
) -> None:
    monkeypatch.setattr("clearhead.studio.models.MOST_BYTES", 10)
    studio.post("/studio/api/models/uploads/half")
    answer = studio.put(f"/studio/api/models/uploads/{path}?at={at}", content=b"twelve bytes")
    assert answer.status_code in (400, 404, 405)
    assert sentence == "nothing" or sentence in answer.json()["error"]["message"]


def test_files_that_are_no_model_are_not_kept(studio: TestClient, ask: Ask) -> None:
    name = studio.post("/studio/api/models/uploads/broken").json()["name"]
    studio.put(f"/studio/api/models/uploads/{name}/config.json", content=b"{}")
    assert ask("models/open", path=name, upload=True)[0] == 400
    assert ask("models/open", path=name, upload=True) == (400, f"no model called {name!r} was uploaded")


def test_files_that_were_not_uploaded_are_not_opened(ask: Ask) -> None:
    for path in ("..", "nobody", "../../etc"):
        status, sentence = ask("models/open", path=path, upload=True)
        assert status == 400
        assert sentence == f"no model called {path!r} was uploaded"


def test_the_list_of_models_reads_no_weights(studio: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_self: Predictor) -> None:
        raise AssertionError("the weights were read")

    monkeypatch.setattr(Predictor, "network", property(read))
    assert len(studio.get("/studio/api/models").json()) > 3


def test_every_model_of_texts_has_something_to_try(studio: TestClient) -> None:
    found = {each["name"]: each for each in studio.get("/studio/api/models").json()}
    assert all(each["examples"] for each in found.values() if each["reads"] == "text")
    assert not found["eyes"]["examples"]
