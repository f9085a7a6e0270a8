"""The inputs that the page suggests."""

from __future__ import annotations

from dataclasses import replace

import pytest

import clearhead
from clearhead import bundled
from clearhead.api import Model
from clearhead.serve.capabilities import EXAMPLES, SAMPLE_CHARACTERS, TASKS, Predictor, predictor_of
from clearhead.studio.examples import PASSAGE, examples, passage


@pytest.fixture(scope="module")
def invented() -> Model:
    return clearhead.load("invented")


@pytest.fixture
def make(invented: Model) -> object:
    """A predictor with another name, task or sample."""

    def make(name: str = "mine", task: str = "lm", sample: str | None = None) -> Predictor:
        predictor = predictor_of(invented)
        predictor.name, predictor.task, predictor.info = name, task, TASKS[task]
        description = bundled.describe(bundled.find("invented"))
        own = description.sample if sample is None else sample
        predictor.__dict__["_description"] = replace(description, sample=own)
        return predictor

    return make


@pytest.mark.parametrize("name", ["en-es", "shakespeare", "shakespeare-lstm", "invented"])
def test_bundled_models_know_the_characters_of_their_examples(name: str) -> None:
    model = clearhead.load(name)
    for text in examples(predictor_of(model)):
        assert model.tokenizer.unknown not in model.tokenizer.encode(text)


def test_a_users_model_starts_with_its_own_sample(make) -> None:  # type: ignore[no-untyped-def]
    sample = bundled.describe(bundled.find("invented")).sample
    [text] = examples(make())
    assert sample.startswith(text + " ")
    assert len(text) <= SAMPLE_CHARACTERS
    assert examples(make(sample="x" * 99)) == ["x" * SAMPLE_CHARACTERS]
    assert examples(make(task="translate", sample="Wirklich? → Really?")) == ["Wirklich?"]


def test_a_passage_is_of_the_kind_that_the_model_was_trained_on(make) -> None:  # type: ignore[no-untyped-def]
    assert passage(make(name="invented")) == bundled.describe(bundled.find("invented")).sample
    assert passage(make(name="shakespeare-lstm")) == PASSAGE


def test_without_a_sample_the_examples_are_those_of_the_task(make) -> None:  # type: ignore[no-untyped-def]
    for task in ("translate", "classify", "tag"):
        assert examples(make(task=task, sample="")) == list(EXAMPLES[task])
    for task in ("lm", "vision", "words"):
        assert examples(make(task=task, sample="")) == []
