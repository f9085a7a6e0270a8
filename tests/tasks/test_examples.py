"""The inputs that a model suggests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import clearhead
from clearhead.run import describe, find
from clearhead.tasks.lm import SAMPLE_CHARACTERS, LanguageModel
from clearhead.tasks.translate import Translator


def with_sample(name: str, sample: str) -> Any:
    """A bundled model whose card has no examples, and whose last evaluation had this sample."""
    model = clearhead.load(name)
    model.__dict__["about"] = replace(describe(find(name)), sample=sample, examples=(), passage="")
    return model


@pytest.mark.parametrize("name", ["en-es", "shakespeare", "shakespeare-lstm", "invented"])
def test_bundled_models_know_the_characters_of_their_examples(name: str) -> None:
    model = clearhead.load(name)
    assert model.examples()
    for text in model.examples():
        assert model.tokenizer.unknown not in model.tokenizer.encode(text)


def test_a_model_without_examples_starts_with_its_own_sample() -> None:
    sample = describe(find("invented")).sample
    [text] = with_sample("invented", sample).examples()
    assert sample.startswith(text + " ")
    assert len(text) <= SAMPLE_CHARACTERS
    assert with_sample("invented", "x" * 99).examples() == ["x" * SAMPLE_CHARACTERS]
    assert with_sample("en-es", "Wirklich? → Really?").examples() == ["Wirklich?"]


def test_without_a_sample_the_examples_are_those_of_the_task() -> None:
    assert with_sample("en-es", "").examples() == list(Translator.example_inputs)
    assert with_sample("invented", "").examples() == list(LanguageModel.example_inputs) == []
    assert with_sample("digits", "").examples() == []


def test_a_passage_is_of_the_kind_that_the_model_was_trained_on() -> None:
    assert clearhead.load("invented").passage() == describe(find("invented")).sample
    assert clearhead.load("shakespeare-lstm").passage().startswith("MENENIUS:")
