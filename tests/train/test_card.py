"""The card says what a model is, where its data comes from, how good it is, and how to make it again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import clearhead
from clearhead.run import split_card
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import parameter_count
from clearhead.train.loop import Callbacks
from clearhead.train.start import resume, run_training

SETTINGS = ["model.dim=16", "model.heads=2", "model.layers=1", "train.max_steps=3", "tokenizer.size=300"]


class StoppedError(Exception):
    """Stands for a kill."""


def stop(*_: object) -> None:
    raise StoppedError


def test_a_card_credits_a_known_dataset_and_keeps_the_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnop")
    (tmp_path / "tatoeba").mkdir()
    (tmp_path / "tatoeba" / "en-es.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    config = override_config(default_config("translate"), ["data.path=tatoeba-en-es", *SETTINGS])
    with pytest.raises(StoppedError):
        run_training(config, tmp_path / "run", "clearhead train en-es.yaml", Callbacks(on_step=stop))
    resume(tmp_path / "run")
    card = (tmp_path / "run" / "card.md").read_text(encoding="utf-8")
    facts, text = split_card(card)
    assert (facts["library_name"], facts["model_name"], facts["task"]) == ("clearhead", "run", "translate")
    assert facts["datasets"] == ["tatoeba-en-es"]
    assert facts["licence"] == "tatoeba-en-es: CC BY 2.0 FR: name Tatoeba in the card of a model trained on it"
    assert facts["parameters"] == parameter_count(clearhead.load(tmp_path / "run").network)
    assert {"loss", "BLEU", "chrF2", "exact match"} == set(facts["metrics"])
    first, _, title, *_ = text.splitlines()
    assert first == "# run"
    assert title == ("A translator, trained on Tatoeba: over 100,000 short English-Spanish pairs, by manythings.org.")
    assert "| licence | tatoeba-en-es: CC BY 2.0 FR: name Tatoeba in the card of a model trained on it |" in card
    assert "| command | `clearhead train en-es.yaml` |" in card
    bleu = next(line for line in card.splitlines() if line.startswith("| BLEU |"))
    assert bleu.count("|") - bleu.count("\\|") == 4  # three cells, whatever the signature holds
    assert "tok:13a" in bleu
