"""In-context learning: prompts of examples, and labels chosen by their likelihood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.serve.setting import CHARACTERS, make
from torch.testing import assert_close

from clearhead.cli.main import _run
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.base.in_context import Shots, continuation_logprobs, draw_shots, read_shots
from clearhead.tasks.base.predictor import load
from clearhead.train.evaluate import evaluate_in_context

REVIEWS = [("we are eating bread", "good"), ("the old house", "bad"), ("a small red door", "good"), ("water", "odd")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    make(path / "writer", "lm", "char", CHARACTERS, "model.positions=rotary", "data.max_length=512")
    make(path / "learned", "lm", "char", CHARACTERS, "model.positions=learned", "model.max_length=23")
    make(path / "recurrent", "lm", "char", CHARACTERS, "model.architecture=rnn")
    rows = [*REVIEWS, *((f"number {index} of many", ("good", "bad")[index % 2]) for index in range(9))]
    lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]
    (path / "reviews.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def alone(model: Any, prompt: str, continuation: str) -> float:
    """log p(continuation | prompt) of one text, in one pass over all of it."""
    before, ids = len(model.prompt_ids(prompt)), model.prompt_ids(prompt + continuation)
    with torch.no_grad():
        logprobs = model.network(torch.tensor([ids]))[0].log_softmax(-1)
    return float(sum(logprobs[place - 1, ids[place]] for place in range(before, len(ids))))


def test_a_prompt_is_the_examples_and_a_question() -> None:
    shots = Shots(REVIEWS[:2])
    assert shots.prompt("a {output} film") == (
        "Input: we are eating bread\nOutput: good\n\n"
        "Input: the old house\nOutput: bad\n\n"
        "Input: a {output} film\nOutput:"
    )
    assert (shots.continuation("good"), shots.stop) == (" good", "\n")
    tight = Shots([("2+3", "5")], "{input}={output};")
    assert (tight.prompt("1+1"), tight.continuation("2"), tight.stop) == ("2+3=5;1+1=", "2", ";")


@pytest.mark.parametrize("form", ["{input}", "{output} {input}", "{input} {input} {output}", ""])
def test_a_format_needs_both_fields(form: str) -> None:
    with pytest.raises(ConfigError, match=r"must have {input} once, and after it {output} once"):
        Shots([], form)


def test_shots_are_drawn_by_the_seed_and_more_begin_with_fewer() -> None:
    examples = [(str(number), "x") for number in range(31)]
    few, others = draw_shots(examples, 3, seed=5)
    many, _ = draw_shots(examples, 11, seed=5)
    assert many[:3] == few
    assert sorted([*few, *others]) == list(range(31))
    assert draw_shots(examples, 11, seed=6)[0] != many
    with pytest.raises(ConfigError, match="31 shots of 31 examples leave none to be scored"):
        draw_shots(examples, 31, seed=0)


@pytest.mark.parametrize("name", ["writer", "recurrent"])
@pytest.mark.parametrize("count", [0, 3])
def test_the_shared_prefix_changes_nothing(folder: Path, name: str, count: int) -> None:
    """Texts of unequal length, labels of unequal length, more texts than fit a batch."""
    model = load(folder / name)
    shots = Shots(REVIEWS[:count])
    prompts = [shots.prompt("we " * (number % 5) + "door") for number in range(19)]
    labels = [" good", " bad", " o", " very good"]
    found = continuation_logprobs(model, prompts, labels)
    expected = torch.tensor([[alone(model, prompt, label) for label in labels] for prompt in prompts])
    assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_transformers_gives_the_same_log_probabilities(tmp_path: Path) -> None:
    """Of byte-level BPE, where the tokens of prompt and label together may differ from those of each."""
    pytest.importorskip("transformers")
    from tests.interop.originals import ORIGINALS

    from clearhead.interop.importing import import_model

    theirs = ORIGINALS["llama"].save(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    shots = Shots([("a dog", "yes"), ("a cat", "no")], "{input}:{output}\n")
    prompts, labels = [shots.prompt(text) for text in ("the dog", "we see", "it was tired")], ["yes", "no", "perhaps"]
    found = continuation_logprobs(model, prompts, labels)
    for prompt, row in zip(prompts, found, strict=True):
        for label, value in zip(labels, row, strict=True):
            ids = torch.tensor([model.prompt_ids(prompt + label)])
            with torch.no_grad():
                logprobs = theirs(ids).logits[0].log_softmax(-1)
            start = len(model.prompt_ids(prompt))
            assert ids[0, :start].tolist() == model.prompt_ids(prompt)
            expected = sum(logprobs[place - 1, ids[0, place]] for place in range(start, ids.size(1)))
            assert_close(value, expected, atol=1e-4, rtol=1e-4)


def test_a_model_is_scored_on_all_but_the_examples(folder: Path) -> None:
    settings: Any = {"seed": 3, "words": {"odd": "strange"}}
    [found] = evaluate_in_context(folder / "writer", str(folder / "reviews.tsv"), [2], **settings)
    assert found.confusion is not None
    assert found.confusion.labels == ("bad", "good", "odd")
    assert sum(map(sum, found.confusion.counts)) == len(found.predicted) == 11
    assert [found] == evaluate_in_context(folder / "writer", str(folder / "reviews.tsv"), [2], **settings)
    several = evaluate_in_context(folder / "writer", str(folder / "reviews.tsv"), [0, 2], **settings)
    assert [each.shots for each in several] == [0, 2]
    assert several[1] == found
    model = load(folder / "writer")
    prompt = found.sample[: found.sample.rindex(" ")]
    values = {word: alone(model, prompt, f" {word}") for word in ("bad", "good", "strange")}
    assert found.sample == f"{prompt} {max(values, key=values.get)}"  # type: ignore[arg-type]


def test_too_many_shots_for_the_context_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"a prompt has [0-9]+ tokens and learned reads 23; use fewer shots"):
        evaluate_in_context(folder / "learned", str(folder / "reviews.tsv"), [2])


def test_an_unknown_label_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has no label great; it has bad, good, odd"):
        evaluate_in_context(folder / "writer", str(folder / "reviews.tsv"), [0], words={"great": "x"})


def test_examples_are_labelled_texts_or_pairs(folder: Path, tmp_path: Path) -> None:
    assert read_shots(str(folder / "reviews.tsv"))[:4] == REVIEWS
    (tmp_path / "book.txt").write_text("once upon a time there was a house\n" * 9, encoding="utf-8")
    with pytest.raises(DataError, match="has text; examples are labelled texts or pairs of texts"):
        read_shots(str(tmp_path / "book.txt"))


def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, reviews = str(folder / "writer"), str(folder / "reviews.tsv")
    words = ["eval", path, "--data", reviews, "--shots", "1", "--label", "odd=strange", "--json"]
    assert _run(words, debug=False) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["shots"], len(document["predicted"])) == (1, 12)
    figure = folder / "curve.svg"
    words = ["eval", path, "--data", reviews, "--shots", "0,3", "--json", "--figure", str(figure)]
    assert _run(words, debug=False) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(each["shots"], len(each["predicted"])) for each in document["shots"]] == [(0, 10), (3, 10)]
    assert "examples in the prompt" in figure.read_text(encoding="utf-8")
    words = ["generate", path, "--shots", reviews, "--format", "{input}: {output}\\n", "water", "--json"]
    assert _run([*words, "--max-tokens", "3"], debug=False) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["prompt"].endswith("number 8 of many: good\nwater:")
    model = load(folder / "writer")
    expected = model.generate(document["prompt"], max_tokens=3, temperature=0.0)[len(document["prompt"]) :]
    assert document["text"] == expected.partition("\n")[0].strip()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--shots", "1"], "--shots needs labelled texts: --data labelled.tsv"),
        (["--shots", "1", "--data", "x.tsv", "--label", "odd"], "--label=odd must be a label and the word for it"),
        (["--label", "odd=strange"], "--label, --format and --figure are for a model that reads examples"),
        (["--shots", "few", "--data", "x.tsv"], "--shots=few must be numbers of examples, such as 4 or 0,1,2,4"),
        (["--shots", "1", "--data", "x.tsv", "--figure", "x.txt"], "x.txt"),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["eval", str(folder / "writer"), *words], debug=False) == 2
    assert sentence in capsys.readouterr().err
