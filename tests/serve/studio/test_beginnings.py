from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.run import describe, find
from clearhead.serve.studio.beginnings import LETTERS, OF_TASKS, PASSAGE, beginnings, passage

INVENTED = describe(find("invented"))


@pytest.mark.parametrize("name", ["en-es", "shakespeare", "shakespeare-lstm", "invented"])
def test_models_of_the_package_know_the_letters_of_their_texts(name: str) -> None:
    import clearhead

    tokenizer = clearhead.load(name).tokenizer
    for text in beginnings(describe(find(name))):
        assert tokenizer.unknown not in tokenizer.encode(text)


def test_a_model_of_the_users_own_begins_with_what_it_wrote_or_read() -> None:
    own = replace(INVENTED, name="mine")
    [text] = beginnings(own)
    assert own.sample.startswith(text + " ")
    assert len(text) <= LETTERS
    assert beginnings(replace(own, sample="x" * 99)) == ["x" * LETTERS]
    assert beginnings(replace(own, task="translate", sample="Wirklich? → Really?")) == ["Wirklich?"]


def test_a_passage_is_of_the_kind_that_the_model_has_read() -> None:
    assert passage(INVENTED) == INVENTED.sample
    assert passage(replace(INVENTED, name="shakespeare-lstm")) == PASSAGE


def test_without_a_sample_there_is_what_is_usual_for_the_task() -> None:
    for task in ("translate", "classify", "tag"):
        assert beginnings(replace(INVENTED, name="mine", task=task, sample="")) == list(OF_TASKS[task])
    for task in ("lm", "vision", "words"):
        assert beginnings(replace(INVENTED, name="mine", task=task, sample="")) == []
