"""Fine-tuning: a training that starts from a foreign model has its shape, its weights and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.optional import optional
from torch.testing import assert_close

import clearhead
from clearhead.interop.importing import import_model

from .originals import ORIGINALS

optional("transformers", reason="the originals are built by transformers")
ROWS = [("the dog sees a cat", "animals"), ("we are eating bread", "food"), ("a small dog", "animals")] * 8
THINGS = ("dog", "cat", "bread", "street", "animal", "film", "house", "river", "song", "teacher", "train", "stone")
PAIRS = [(f"the small {thing}", f"a {thing} is here") for thing in THINGS]


def test_a_classifier_begins_with_the_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    ORIGINALS["albert"].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    start = clearhead.load(tmp_path / "ours")
    settings = {"train.start_from": str(tmp_path / "theirs"), "train.max_steps": 0}
    trained = clearhead.train("classify", ROWS, tmp_path / "run", progress=False, **settings)
    assert trained.tokenizer.prefix == start.tokenizer.prefix
    weights = start.network.encoder.state_dict()
    for name, tensor in trained.network.encoder.state_dict().items():
        first = 1 if name == "tokens.tokens.table.weight" else 0  # the row of the padding is cleared
        assert_close(tensor[first:], weights[name][first:], msg=name)
    assert (trained.config.train.optimizer, trained.config.train.learning_rate) == ("adamw", 1e-4)


@pytest.mark.parametrize("name", ["llama 3", "gemma 3"])
def test_a_language_model_goes_on(tmp_path: Path, name: str) -> None:
    ORIGINALS[name].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    start = clearhead.load(tmp_path / "ours")
    (tmp_path / "text.txt").write_text("the dog sees a small cat and we are eating bread\n" * 60)
    settings = {"train.start_from": str(tmp_path / "ours"), "train.max_steps": 2, "model.length": 19}
    trained = clearhead.train("lm", str(tmp_path / "text.txt"), tmp_path / "run", progress=False, **settings)
    there, here = start.config.model.model_dump(), trained.config.model.model_dump()
    assert {key: value for key, value in here.items() if key != "length"} == {
        key: value for key, value in there.items() if key != "length"
    }
    first, last = (each.network.stack.blocks[0].feed_forward.inner.weight for each in (start, trained))
    assert not torch.equal(first, last)
    assert trained.generate("the dog", max_tokens=3, temperature=0.0).startswith("the dog")


def test_an_embedder_learns_which_texts_belong_together(tmp_path: Path) -> None:
    ORIGINALS["bert"].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    settings = {"train.start_from": str(tmp_path / "ours"), "train.max_steps": 60, "train.learning_rate": 3e-3}
    trained = clearhead.train("embed", PAIRS, tmp_path / "run", progress=False, **settings)
    a, b = (trained.embed(list(side)) for side in zip(*PAIRS, strict=True))
    assert sum((a @ b.T).argmax(1) == range(len(PAIRS))) >= 10
    assert trained.look("the dog").tokens["encoder"][0] == "<s>"
