"""The classifier that reads words with their features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead.models.classifier import WordEncoder
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.task import Workspace
from clearhead.tasks.classify import Classifier, encode_texts
from clearhead.text.word_features import FEATURES, word_features

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
