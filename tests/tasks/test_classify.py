"""The classifier that reads words with their features."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead.models.classifier import WideClassifier, WordEncoder
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.task import Workspace
from clearhead.tasks.classify import Classifier, encode_texts
from clearhead.text.word_features import FEATURES, word_features
from clearhead.train.start import resume

PAST = ("walked", "talked", "looked", "played", "jumped", "cooked")
NOW = ("walking", "talking", "looking", "playing", "jumping", "cooking")
TEXTS = [(f"{who} {word} {where}", tag) for words, tag in ((PAST, "past"), (NOW, "now")) for word in words
         for who in ("he", "she", "we") for where in ("home", "there")]  # fmt: skip
SHAPE = {"model.dropout": 0.0, "model.dim": 28, "model.heads": 7}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = tmp_path_factory.mktemp("classify")
    model = clearhead.train(
        "classify", data=TEXTS, out=folder / "run", **{"train.max_steps": 40, "model.features": 16384, **SHAPE}
    )
    assert isinstance(model, Classifier)
    return model


def test_it_reads_the_ending_of_a_word_that_it_never_saw(classifier: Classifier) -> None:
    assert isinstance(classifier.network.encoder, WordEncoder)
    assert [each.label for each in classifier.classify(["she trekked home", "we trekking there"])] == ["past", "now"]


def test_texts_are_classified_together_as_alone(classifier: Classifier) -> None:
    texts = ["he walked", "", "we are talking and cooking there at home"]
    for one, text in zip(classifier.classify(texts), texts, strict=True):
        assert list(one.probabilities.values()) == pytest.approx(list(classifier.classify(text).probabilities.values()))


def test_it_is_looked_into_has_vectors_and_is_loaded_again(classifier: Classifier) -> None:
    seen = classifier.look("he trekked home")
    assert list(seen.tokens["encoder"]) == ["[CLASS]", "he", "[UNK]", "home"]
    assert seen.weights["encoder.self"][0].shape == (7, 4, 4)
    assert classifier.embed(["he walked home", "we played"]).shape == (2, 28)
    again = clearhead.load(classifier.run.path)
    assert isinstance(again, Classifier)
    assert again.classify("he trekked") == classifier.classify("he trekked")


def test_features_are_those_of_the_words_and_the_class_token_has_none(classifier: Classifier) -> None:
    rows = classifier.config.model.features
    [words] = encode_texts(classifier.tokenizer, ["He trekked home!"], classifier.config)
    assert words.features is not None
    assert words.features[0].tolist() == [0] * FEATURES
    assert words.features[1:].tolist() == word_features(["He", "trekked", "home", "!"], rows).tolist()
    short = override_config(classifier.config, ["data.max_length=3"])
    [cut] = encode_texts(classifier.tokenizer, ["He trekked home!"], short)
    assert (len(cut.ids), cut.features.tolist()) == (3, words.features[:3].tolist())


def test_a_hidden_word_keeps_its_features(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text("label\ttext\n" + "".join(f"{tag}\t{text}\n" for text, tag in TEXTS), encoding="utf-8")
    settings = [f"data.path={file}", "tokenizer.kind=word", "model.features=97", "data.augment=0.5"]
    task = TASKS["classify"](override_config(default_config("classify", "tiny"), settings), Workspace(tmp_path))
    examples = np.arange(17)
    before, after = task.tensors(task.ids, task.labels, examples.tolist())["ids"], task.batch(examples)["ids"]
    assert torch.equal(before[..., 1:], after[..., 1:])
    hidden = before[..., 0] != after[..., 0]
    assert hidden.any()
    assert (after[..., 0][hidden] == task.tokenizer.unknown).all()


def test_a_linear_model_is_solved_for_beside_the_network(tmp_path: Path) -> None:
    settings = {"train.max_steps": 7, "model.wide": 1009, **SHAPE}
    model = clearhead.train("classify", data=TEXTS, out=tmp_path / "run", **settings)
    assert isinstance(model, Classifier)
    assert isinstance(model.network, WideClassifier)
    assert model.network.output.table.abs().max() > 0.1
    assert [each.label for each in model.classify(["he walked home", "we are talking"])] == ["past", "now"]
    seen = model.look("he walked home")
    assert seen.logits is not None
    assert seen.logits.softmax(-1).tolist() == pytest.approx(
        list(model.classify("he walked home").probabilities.values()), abs=1e-5
    )
    assert clearhead.load(tmp_path / "run").classify("he walked") == model.classify("he walked")
    # A second training solves for its own table, while its network goes on from the first.
    again = clearhead.train(
        "classify", data=TEXTS[::2], out=tmp_path / "again", **settings, **{"train.start_from": str(tmp_path / "run")}
    )
    assert isinstance(again.network, WideClassifier)
    assert not torch.equal(again.network.output.table, model.network.output.table)


def test_a_resumed_run_solves_for_the_same_linear_model(tmp_path: Path) -> None:
    settings = {"train.max_steps": 8, "train.checkpoint_every": 4, "train.deterministic": True, "model.wide": 1009}
    clearhead.train("classify", data=TEXTS, out=tmp_path / "whole", **settings)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").unlink()
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000008")
    resume(tmp_path / "cut")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]
