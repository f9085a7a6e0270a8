"""The tagger that reads words with their features."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.models.classifier import WordEncoder
from clearhead.tasks.base.labels import Words, word_tensor
from clearhead.tasks.tag import Tagger
from clearhead.text.word_features import FEATURES, word_features

SENTENCES = [
    (("he", "walked", "home"), ("P", "V", "N")),
    (("she", "talked", "there"), ("P", "V", "A")),
    (("they", "looked", "up"), ("P", "V", "A")),
    (("we", "played", "games"), ("P", "V", "N")),
] * 8


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    file = tmp_path_factory.mktemp("tag") / "words.conll"
    blocks = ("\n".join(f"{word}\t{tag}" for word, tag in zip(*each, strict=True)) for each in SENTENCES)
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    settings = {"train.max_steps": 60, "model.dropout": 0.0, "model.dim": 28, "model.heads": 7, "model.layers": 1}
    model = clearhead.train("tag", data=str(file), out=file.parent / "run", **settings)
    assert isinstance(model, Tagger)
    return model


def test_it_reads_the_ending_of_a_word_that_it_never_saw(tagger: Tagger) -> None:
    assert isinstance(tagger.network.encoder, WordEncoder)
    assert tagger.tag("he trekked home") == [("he", "P"), ("trekked", "V"), ("home", "N")]


def test_texts_are_tagged_together_as_alone(tagger: Tagger) -> None:
    texts = ["he walked home", "", "we played", "she talked there and then she looked up at the games"]
    assert tagger.tag(texts) == [tagger.tag(text) for text in texts]


def test_it_is_looked_into_and_has_vectors(tagger: Tagger) -> None:
    seen = tagger.look("he trekked home")
    assert list(seen.tokens["encoder"]) == ["he", "trekked", "home"]
    assert seen.weights["encoder.self"][0].shape == (7, 3, 3)
    assert tagger.embed(["he walked home", "we played"]).shape == (2, 28)


def test_a_saved_model_gives_the_same_tags(tagger: Tagger) -> None:
    again = clearhead.load(tagger.run.path)
    assert isinstance(again, Tagger)
    assert again.tag("they jumped up") == tagger.tag("they jumped up")


def test_words_and_features_are_padded() -> None:
    rows = [Words([5, 6], [0, 1], word_features(["a", "b"], 97)), Words([7], [0], word_features(["c"], 97))]
    found = word_tensor(rows, 3)
    assert found.shape == (2, 2, 1 + FEATURES)
    assert found[1, 1].tolist() == [3, *[0] * FEATURES]
    assert torch.equal(found[0, :, 1:], torch.from_numpy(rows[0].features))


def test_the_first_words_have_the_first_features() -> None:
    words = Words([5, 6, 7], [0, 1, 2], word_features(["a", "b", "c"], 97))
    assert (len(words.first(2)), words.first(2).ends) == (2, [0, 1])
    assert words.first(2).features.tolist() == words.features[:2].tolist()
