"""`Model.look` and `Model.beam_tree` of every task: a run directory goes in, words and tensors come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.errors import ProbeError
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.text import Tokenizer

TEXTS = ["the red car is here", "el coche rojo está aquí", "we are eating bread"]
SMALL = ["model.dim=12", "model.heads=3", "model.layers=2"]
LABELS = ("bad", "fine", "good")
PIXELS = np.random.default_rng(1).integers(0, 255, (6, 6, 3), dtype=np.uint8)


def load(folder: Path, task: Any, *settings: str) -> Any:
    """A model of random weights, through its run directory."""
    size = [] if task == "words" else SMALL if task not in ("vision", "caption") else [*SMALL, "model.patch=3"]
    config = override_config(default_config(task, "tiny"), [*size, *settings])
    run = Run.create(folder / f"my-{task}", config)
    vocabulary = Tokenizer.train("word", TEXTS)
    if task != "vision":
        vocabulary.save(run.path / "tokenizer.json")
    torch.manual_seed(5)
    sizes = Sizes(vocabulary=len(vocabulary), classes=len(LABELS), channels=3, height=6, width=6, pad=vocabulary.pad)
    save_weights(run, run_config(run), build_network(config, sizes).state_dict(), ModelMeta(sizes, LABELS))
    return clearhead.load(run.path)


def test_a_translator_with_what_it_writes(tmp_path: Path) -> None:
    model = load(tmp_path, "translate")
    look = model.look("the red car")
    assert (look.model, look.task, look.text) == ("my-translate", "translate", "the red car")
    assert look.output == model.translate("the red car")
    assert look.tokens["encoder"] == ["the", "red", "car", "[STOP]"]
    cross = look.attention["decoder.cross"]
    assert cross.rows == [*look.tokens["decoder"][1:], "[STOP]"]
    assert cross.columns == look.tokens["encoder"]
    assert cross.weights[1].shape == (3, len(cross.rows), 4)
    assert look.choices[model.tokenizer.id("red")] == "red"


def test_a_translator_with_a_target(tmp_path: Path) -> None:
    model = load(tmp_path, "translate")
    look = model.look("the red car", target="el coche")
    assert look.output == "el coche"
    assert look.tokens["decoder"] == ["[START]", "el", "coche"]
    assert look.attention["decoder.cross"].rows == ["el", "coche", "[STOP]"]
    source, target = look.inputs
    assert source.tolist() == [[*model.tokenizer.encode("the red car"), model.tokenizer.stop]]
    torch.testing.assert_close(look.logits, model.network(source, target)[0])


def test_settings_of_writing_reach_the_search(tmp_path: Path) -> None:
    model = load(tmp_path, "translate")
    assert len(model.look("the red car", max_tokens=2, beam_width=3).tokens["decoder"]) <= 3
    seen = model.look("the red car", generate=True, max_tokens=5, beam_width=2)
    again = model.look("the red car", max_tokens=5, beam_width=2)
    assert seen.output == again.output
    torch.testing.assert_close(seen.weights["encoder.self"][1], again.weights["encoder.self"][1])


def test_a_language_model_reads_and_goes_on(tmp_path: Path) -> None:
    model = load(tmp_path, "lm")
    look = model.look("the red car")
    assert look.tokens == {"decoder": ["the", "red", "car"]}
    assert list(look.attention) == ["decoder.self"]
    best = int(look.logits[-1].argmax())
    assert look.output == model.tokenizer.decode([best])
    written = model.look("the red car", generate=True, max_tokens=4)
    assert written.tokens["decoder"][:3] == ["the", "red", "car"]
    assert len(written.tokens["decoder"]) == 6
    assert model.look("").tokens == {"decoder": ["[START]"]}


def test_a_masked_language_model_fills_in(tmp_path: Path) -> None:
    model = load(tmp_path, "lm", "model.objective=masked")
    look = model.look("the red car")
    assert list(look.attention) == ["encoder.self"]
    assert look.output == model.tokenizer.decode(look.logits.argmax(-1).tolist())
    with pytest.raises(ProbeError, match="my-lm does not generate text: it takes no target and no generation settings"):
        model.look("the red car", generate=True)


def test_a_classifier(tmp_path: Path) -> None:
    model = load(tmp_path, "classify")
    look = model.look("the bread is here")
    assert look.tokens["encoder"] == ["[CLASS]", "the", "bread", "is", "here"]
    assert look.output == model.classify("the bread is here").label
    assert look.class_token
    assert look.to_json()["probabilities"][0][0][0] == look.output


def test_a_tagger(tmp_path: Path) -> None:
    model = load(tmp_path, "tag")
    look = model.look("the  zebra is")
    assert look.tokens == {"encoder": ["the", "zebra", "is"]}
    assert look.output.split() == [tag for _, tag in model.tag("the zebra is")]
    with pytest.raises(ProbeError, match="there is nothing to look at: the text has no words"):
        model.look("  ")


def test_an_image(tmp_path: Path) -> None:
    model = load(tmp_path, "vision")
    look = model.look(PIXELS)
    assert look.tokens["encoder"] == ["class", "1,1", "1,2", "2,1", "2,2"]
    assert look.output == model.classify(PIXELS).label
    assert (look.text, look.grid, look.class_token) == ("image", (2, 2), True)
    np.testing.assert_array_equal(look.image.numpy(), PIXELS)


def test_an_image_from_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(PIXELS).save(tmp_path / "seven.png")
    model = load(tmp_path, "vision")
    look = model.look(str(tmp_path / "seven.png"))
    assert look.text == "seven.png"
    np.testing.assert_array_equal(look.image.numpy(), PIXELS)


@pytest.mark.parametrize("kind", ["cross", "sequence", "rnn"])
def test_a_captioner(kind: str, tmp_path: Path) -> None:
    model = load(tmp_path, "caption", f"model.architecture={kind}")
    look = model.look(PIXELS)
    assert look.output == model.caption(PIXELS)
    patches = ["1,1", "1,2", "2,1", "2,2"]
    given = model.look(PIXELS, target="the red car")
    words = ["[START]", "the", "red", "car"]
    if kind == "sequence":
        assert given.tokens == {"decoder": [*patches, *words]}
    else:
        assert given.tokens == {"encoder": ["class", *patches], "decoder": words}
    assert given.class_token is (kind != "sequence")
    kinds = {"cross": ["encoder.self", "decoder.self", "decoder.cross"], "sequence": ["decoder.self"]}
    assert list(given.attention) == kinds.get(kind, ["encoder.self"])


def test_what_cannot_be_looked_at_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="my-words has one vector for each word and no attention; ask it for neigh"):
        load(tmp_path, "words").look("red")
    classifier = load(tmp_path, "classify")
    refused = "^my-classify does not generate text: it takes no target and no generation settings$"
    with pytest.raises(ProbeError, match=refused):
        classifier.look("bread", target="good")
    refused = "^my-classify is a classifier of texts: it does not generate text, so it has no beams$"
    with pytest.raises(ProbeError, match=refused):
        classifier.beam_tree("bread")


@pytest.mark.parametrize("task", ["translate", "lm", "caption"])
def test_a_beam_tree_of_whatever_writes(task: str, tmp_path: Path) -> None:
    model = load(tmp_path, task)
    item = PIXELS if task == "caption" else "the red car"
    tree = model.beam_tree(item, beam_width=3, max_tokens=4)
    assert tree.nodes[0].parent is None
    assert {node.state for node in tree.nodes} >= {"kept", "dropped"}
    assert tree.source == ("image" if task == "caption" else "the red car")
    assert max(node.step for node in tree.nodes) <= 4
