"""`clearhead models` and `clearhead pack`: what they print, and models by name in every verb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead import run as runs
from clearhead.cli.main import _run
from clearhead.tasks import default_config, override_config
from clearhead.train.start import run_training

Say = Callable[..., Any]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package that comes with no model yet, away from where we work."""
    monkeypatch.setattr(runs, "BUNDLED", tmp_path / "package")
    (tmp_path / "package").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "package"


def trained(out: Path) -> Path:
    Path("pairs.tsv").write_text(
        "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop"), encoding="utf-8"
    )
    words = ["data.path=pairs.tsv", "data.validation=0.1", "data.batch_tokens=300", "tokenizer.kind=char"]
    sizes = ["model.dim=16", "model.heads=2", "model.layers=1", "train.max_steps=4"]
    run_training(override_config(default_config("translate", "tiny"), [*words, *sizes]), out, "test")
    return out


@pytest.mark.usefixtures("package")
def test_a_package_without_models_says_so(say: Say) -> None:
    assert say("models") == ("No model comes with this package; train one: clearhead train translate --data builtin\n")
    assert say("models", "--json") == []


def test_a_packed_run_in_the_package_is_a_model_for_every_verb(package: Path, say: Say) -> None:
    run = trained(Path("runs/mine"))
    packed = say("pack", "runs/mine", "--out", str(package / "swap"), "--half", "--json")
    assert packed["after"] == sum(file.stat().st_size for file in (package / "swap").rglob("*") if file.is_file())
    assert {part["name"] for part in packed["parts"] if part["after"] is None} == {"checkpoints", "times.jsonl"}
    (model,) = say("models", "--json")
    assert (model["name"], model["task"], model["size"]) == ("swap", "translate", packed["after"])
    assert list(model["scores"]) == ["BLEU", "chrF2", "exact match"]
    assert say("translate", "swap", "a i") == say("translate", str(run), "a i")
    assert say("eval", "swap", "--json")["loss"] == pytest.approx(say("eval", str(run), "--json")["loss"], abs=1e-2)
    assert [each["run"] for each in say("compare", "swap", str(run), "--json")] == ["swap", "mine"]
    table = say("models")
    assert all(word in table for word in ("swap", "translate", "BLEU", f"{model['parameters']:,}"))


def test_a_card_is_shown(package: Path, say: Say) -> None:
    run = trained(package / "swap")
    assert say("models", "swap") == (run / "card.md").read_text(encoding="utf-8")
    shown = say("models", "swap", "--json")
    assert (shown["name"], shown["card"]) == ("swap", (run / "card.md").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("package")
def test_pack_prints_the_size_of_each_part_before_and_after(say: Say) -> None:
    trained(Path("run"))
    said = say("pack", "run", "--out", "small")
    lines = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.strip()}
    assert lines["checkpoints"][1] == "–"
    assert lines["config.yaml"][0] == lines["config.yaml"][1]
    assert said.endswith("The packed model is in small.\n")


MISTAKES = {
    "an unknown name": (["models", "swp"], "no such run directory or model: swp; did you mean swap? `clear"),
    "an unknown run": (["pack", "swp", "--out", "x"], "no such run directory or model: swp; did you mean swap?"),
    "a place that is taken": (["pack", "swap", "--out", "pairs.tsv"], "pairs.tsv is there already; choose another"),
    "no place": (["pack", "swap"], "missing option '--out'"),
    "no run": (["pack", ".", "--out", "x"], ". is not a run directory: it has no config.yaml"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(name: str, package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, sentence = MISTAKES[name]
    trained(package / "swap")
    before = sorted(Path().rglob("*"))
    assert _run(words, debug=False) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"clearhead: {sentence}")
    assert said.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
