"""A task in one file outside the package has all that the package's own tasks have."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

import clearhead
from clearhead.cli.main import _run
from clearhead.files import read_tensors
from clearhead.registry import PLUGINS
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs

PLUGIN = Path(__file__).parent / "task_plugin.py"
STEPS = 200


@pytest.fixture(scope="module")
def plugin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLUGINS, str(PLUGIN))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sort")
    numbers = random.Random(1)
    lines = ("".join(numbers.choices("0123456789", k=5)) for _ in range(4000))
    (path / "numbers.txt").write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(plugin: None, folder: Path) -> Path:
    words = ["train", "sort", "--data", str(folder / "numbers.txt"), "--size", "tiny", "--out", str(folder / "run")]
    settings = [f"train.max_steps={STEPS}", "train.checkpoint_every=50", "train.keep=9", "data.batch_tokens=640"]
    optimizer = ["train.optimizer=muon", "train.schedule=linear", "model.dim=32", "model.dropout=0"]
    assert _run([*words, *settings, *optimizer, "--json"], debug=True) == 0
    return folder / "run"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert _run(list(words), debug=True) == 0
    return capsys.readouterr().out


def test_it_is_trained_and_leaves_a_card(run: Path) -> None:
    card = (run / "card.md").read_text(encoding="utf-8")
    assert "A sorter of digits, trained on" in card
    assert list((run / "attention").glob("step-*.safetensors"))


def test_it_is_used_from_python_and_from_the_command_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = clearhead.load(run)
    digits = ["31415", "27182", "98765", "10203"]
    answers = [model.predict(each)["sorted"] for each in digits]
    assert sum(answer == "".join(sorted(each)) for answer, each in zip(answers, digits, strict=True)) >= 3
    assert printed(capsys, "predict", str(run), "31415") == f"{answers[0]}\n"
    assert printed(capsys, "sort", str(run), "31415") == f"{answers[0]}\n"
    assert json.loads(printed(capsys, "predict", str(run), "31415", "--json")) == {
        "input": "31415",
        "task": "sort",
        "sorted": answers[0],
    }
    assert model.embed is not None
    with pytest.raises(clearhead.errors.WrongTaskError, match=r"run: cannot translate: it is a sorter of digits"):
        model.translate("31415")


def test_it_is_evaluated(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "eval", str(run), "--json"))
    assert [score["name"] for score in found["scores"]] == ["exact match"]
    assert found["scores"][0]["value"] > 0.8


def test_it_is_resumed_bit_for_bit(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = folder / "again"
    shutil.copytree(run, again)
    (again / "model.safetensors").unlink()
    for checkpoint in sorted((again / "checkpoints").glob("step-*"))[-1:]:
        shutil.rmtree(checkpoint)
    printed(capsys, "resume", str(again), "--json")
    ours, theirs = (read_tensors(path / "model.safetensors")[0] for path in (run, again))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=0)


def test_it_is_looked_into(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = clearhead.load(run).look("31415")
    assert seen.tokens["encoder"] == list("31415")
    assert seen.weights["encoder.self"][0].shape == (2, 5, 5)
    assert "self-attention" in printed(capsys, "look", str(run), "31415")
    printed(capsys, "look", str(run), "31415", "--out", str(folder / "heads.svg"))
    assert (folder / "heads.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_it_is_served_and_shown_by_the_studio(run: Path, folder: Path) -> None:
    service = Service.load([f"sorter={run}"])
    with TestClient(make_app(service, Runs(folder / "runs"), Access()), base_url="http://127.0.0.1") as client:
        answer = clearhead.load(run).answer("31415")
        found = client.post("/predict", json={"model": "sorter", "input": "31415"}).json()
        assert found == {"model": "sorter", "task": "sort", "sorted": answer}
        [about] = client.get("/studio/api/models").json()
        assert (about["task"], about["reads"], about["generates"]) == ("sort", "text", False)
        assert about["examples"] == ["31415", "27182"]
        looked = client.post("/look", json={"model": "sorter", "text": "31415"}).json()
        assert looked["tokens"] == {"encoder": list("31415")}
        steps = {"model": "sorter", "text": "31415", "layer": 1, "head": 0, "query": 2}
        assert client.post("/studio/api/steps", json=steps).json()["format"] == "clearhead-steps-1"
        play = client.post("/studio/api/play", json={"model": "sorter", "text": "31415"}).text
        assert json.loads(play) == {"prediction": {"sorted": answer}}
        changed = client.post("/studio/api/what-if", json={"model": "sorter", "text": "31415", "positions": True})
        assert changed.json()["original"]["output"] == answer
        tasks = {task["name"]: task for task in client.get("/studio/api/tasks").json()}
        assert tasks["sort"]["title"] == "A sorter of digits"
