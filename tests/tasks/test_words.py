"""Word vectors: the pairs and the noise are word2vec's, words used alike become neighbours, a stopped run goes on."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import clearhead
from clearhead.config import AnyConfig
from clearhead.errors import ConfigError, DataError, RunError, TextError
from clearhead.files import read_tensors
from clearhead.models.word2vec import SkipGram
from clearhead.tasks import default_config, override_config
from clearhead.tasks import words as task
from clearhead.tasks.base.task import Batch, Workspace
from clearhead.tasks.words import Words, blocks, drawn, kept_shares, noise_shares, numbered_words
from clearhead.train.loop import Callbacks
from clearhead.train.start import resume, run_training

ANIMALS, FOODS = ("cat", "dog", "fox", "hen"), ("bread", "cheese", "soup", "rice")


def sentences(count: int, seed: int = 3) -> str:
    """Animals run and sleep, foods are cooked and eaten; the words around do not say which animal or food."""
    choose = random.Random(seed)
    lines = []
    for _ in range(count):
        animal, food = choose.choice(ANIMALS), choose.choice(FOODS)
        lines.append(choose.choice([f"The {animal} runs and sleeps outside.", f"We cook and eat {food} today!"]))
    return "\n".join(lines) + "\n"


def made(folder: Path, *more: str, text: str | None = None) -> AnyConfig:
    (folder / "text.txt").write_text(sentences(1500) if text is None else text, encoding="utf-8")
    settings = [f"data.path={folder / 'text.txt'}", "model.dim=16", "model.window=2", "model.subsample=0", *more]
    return override_config(default_config("words", "tiny"), settings)


def words_of(config: AnyConfig, folder: Path) -> Words:
    (folder / "kept").mkdir(exist_ok=True)
    return Words(config, Workspace(folder / "kept"))


# --- pairs and noise ---


def slow_pairs(words: list[int], rows: list[int], reach: list[int]) -> list[tuple[int, int]]:
    """The two loops of word2vec.c."""
    found = []
    for place, center in enumerate(words):
        for other in range(max(0, place - reach[place]), min(len(words), place + reach[place] + 1)):
            if other != place and rows[other] == rows[place]:
                found.append((center, words[other]))
    return found


def pairs_of(
    centers: NDArray[np.int64], contexts: NDArray[np.int64], pairs: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    block, center, other = np.nonzero(pairs)
    return list(zip(centers[block, center].tolist(), contexts[block, other].tolist(), strict=True))


def pairs_in(batch: Batch) -> list[tuple[int, int]]:
    """The pairs of a batch, places turned back into ids."""
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    return pairs_of(arrays["distinct"][arrays["centers"]], arrays["around"][arrays["contexts"]], arrays["pairs"])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 61])
@pytest.mark.parametrize("window", [1, 3, 11])
def test_the_pairs_are_those_of_two_plain_loops(count: int, window: int) -> None:
    numbers = np.random.default_rng(count)
    words, rows = numbers.integers(6, 30, count), np.sort(numbers.integers(0, 3, count))
    reach = numbers.integers(1, window + 1, count)
    found = pairs_of(*blocks(words, rows, reach, window, size=8))
    assert found == slow_pairs(words.tolist(), rows.tolist(), reach.tolist())


def test_a_batch_pairs_every_known_word_of_its_rows_and_leaves_out_marks_and_rare_words(tmp_path: Path) -> None:
    config = made(
        tmp_path, "model.window=1", text="one two, three rare. " * 4 + "one two, three other. " * 2 + "one two\n" * 9
    )
    words = words_of(override_config(config, ["model.min_count=6", "data.validation=0.3"]), tmp_path)
    vocabulary = words.tokenizer
    assert sorted(vocabulary.pieces(words.known)) == ["one", "three", "two"]
    rows = np.array([vocabulary.encode("one two, three rare. one"), vocabulary.encode("two two one, rare. two")])
    batch = words.batch(rows)
    found = pairs_in(batch)
    readable = [tuple(vocabulary.pieces(pair)) for pair in found]
    # the marks and the rare words are gone before the window is laid: three stands beside one
    first = [("one", "two"), ("two", "one"), ("two", "three"), ("three", "two"), ("three", "one"), ("one", "three")]
    second = [("two", "two"), ("two", "two"), ("two", "one"), ("one", "two"), ("one", "two"), ("two", "one")]
    assert readable == first + second


def test_a_batch_follows_from_the_seed_and_the_tokens(tmp_path: Path) -> None:
    words = words_of(made(tmp_path, "model.window=5", "model.subsample=0.01"), tmp_path)
    rows = next(iter(words.cursor()))
    first, again, other = words.batch(rows), words.batch(rows.copy()), words.batch(rows[:, ::-1].copy())
    assert all(torch.equal(first[name], again[name]) for name in first)
    noise = [each["around"][each["noise"]] for each in (first, other)]
    assert not torch.equal(*noise)


def test_distinct_words_are_numbered_over_all_uses() -> None:
    distinct, (first, second) = numbered_words(np.array([[7, 3], [7, 11]]), np.array([11, 5, 3]))
    assert distinct.tolist() == [3, 5, 7, 11]
    assert first.tolist() == [[2, 0], [2, 3]]
    assert second.tolist() == [3, 1, 0]


def test_each_distinct_centre_counts_as_often_as_it_has_pairs(tmp_path: Path) -> None:
    batch = words_of(made(tmp_path), tmp_path).batch(np.array([[9, 10, 9, 11, 9, 12]]))
    centers = [center for center, _ in pairs_in(batch)]
    assert batch["times"].tolist() == [centers.count(word) for word in batch["distinct"].tolist()]


def test_reaches_are_uniform(tmp_path: Path) -> None:
    words = words_of(made(tmp_path, "model.window=4"), tmp_path)
    batch = words.batch(next(iter(words.cursor())))
    widest = batch["pairs"][1:-1].sum(-1).flatten()  # twice the reach, away from the borders of the rows
    share = torch.bincount(widest // 2, minlength=5).float() / len(widest)
    torch.testing.assert_close(share[1:], torch.full((4,), 0.25), atol=0.04, rtol=0)


def test_noise_is_drawn_from_frequency_to_the_power_of_three_quarters() -> None:
    counts = np.array([0, 0, 1000, 100, 0, 10, 1, 0])
    found = (
        np.bincount(drawn(np.cumsum(noise_shares(counts)), 200_000, np.random.default_rng(1)), minlength=8) / 200_000
    )
    expected = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(found, expected, atol=0.003)
    assert (found[counts == 0] == 0).all()


def test_frequent_words_are_thinned_out_as_word2vec_does_it() -> None:
    counts = np.array([0, 9000, 990, 10])
    np.testing.assert_allclose(kept_shares(counts, 1e-2), [0, (1 / 90) ** 0.5 + 1 / 90, (10 / 99) ** 0.5 + 10 / 99, 1])
    np.testing.assert_array_equal(kept_shares(counts, 0), [0, 1, 1, 1])


# --- the loss ---


@pytest.mark.parametrize("negatives", [0, 3])
def test_the_loss_is_the_equation_on_every_pair(
    negatives: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "NOISE", 3)  # as many as each pair has: then sharing them changes nothing
    words = words_of(made(tmp_path, f"model.negatives={negatives}", "tokenizer.size=200"), tmp_path)
    model = SkipGram(len(words.tokenizer), 16)
    torch.nn.init.normal_(model.context.weight)
    torch.nn.init.normal_(model.center.weight)
    batch = words.batch(next(iter(words.cursor()))[:2])
    center, context = torch.tensor(pairs_in(batch)).T
    total, count = words.loss(model, batch)
    assert int(count) == len(center)
    if negatives:
        expected = model.negative_sampling_loss(
            center, context, batch["around"][batch["noise"]].expand(len(center), -1)
        )
    else:
        expected = model.full_softmax_loss(center, context)
    torch.testing.assert_close(total / count, expected)


def test_a_batch_without_a_pair_has_no_loss(tmp_path: Path) -> None:
    words = words_of(made(tmp_path), tmp_path)
    unknown = np.full((2, 9), words.tokenizer.unknown)
    total, count = words.loss(SkipGram(len(words.tokenizer), 16), words.batch(unknown))
    assert (total.item(), count.item()) == (0, 1)


# --- whole runs ---


@pytest.mark.parametrize("negatives", [0, 5])
def test_words_used_alike_become_neighbours(negatives: int, tmp_path: Path) -> None:
    settings = [f"model.negatives={negatives}", "tokenizer.size=200", "train.max_steps=150", "train.learning_rate=0.02"]
    settings += ["data.batch_tokens=1000"]
    found = run_training(made(tmp_path, *settings), tmp_path / "run", "test")
    model = clearhead.load(tmp_path / "run")
    assert {word for word, _ in model.neighbours("cat", count=3)} == set(ANIMALS) - {"cat"}
    assert {word for word, _ in model.neighbours("Soup", count=3)} == set(FOODS) - {"soup"}  # capitals are folded
    assert model.analogy("cat", "dog", "bread", count=1)[0][0] in FOODS
    assert "the: " in found.sample or "and: " in found.sample
    assert not {"[PAD]", "[UNK]", ".", "!"} & {word for word, _ in model.neighbours("cat", count=100)}
    with pytest.raises(TextError, match="'bred' is not among the 15 words of this model; did you mean bread"):
        model.neighbours("bred")
    refused = r"^run: cannot translate: it is a table of word vectors \(clearhead words .*run neighbours WORD\)$"
    with pytest.raises(RunError, match=refused):
        model.translate("cat")


class StoppedError(Exception):
    """Stands for a kill in the middle of a run."""


def stopping_at(step: int) -> Callbacks:
    def stop(found: object, _progress: object) -> None:
        if found.step == step:  # type: ignore[attr-defined]
            raise StoppedError

    return Callbacks(on_step=stop)


def test_a_stopped_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    settings = ["model.subsample=0.05", "data.batch_tokens=500", "train.max_steps=23", "train.checkpoint_every=5"]
    config = made(tmp_path, *settings)
    run_training(config, tmp_path / "whole", "test")
    with pytest.raises(StoppedError):
        run_training(config, tmp_path / "stopped", "test", stopping_at(13))
    resume(tmp_path / "stopped")
    whole, stopped = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert whole[1] == stopped[1]
    assert all(torch.equal(whole[0][name], stopped[0][name]) for name in whole[0])
    metrics = [(tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8") for name in ("whole", "stopped")]
    assert metrics[0] == metrics[1]


def test_what_people_think_is_measured_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "word2vec"
    folder.mkdir()
    (folder / "wordsim353.tsv").write_text("cat\tdog\t9\ncat\tsoup\t1\nking\tqueen\t8\n", encoding="utf-8")
    (folder / "questions-words.txt").write_text(": none\nking man queen woman\n", encoding="utf-8")
    vectors, names = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), ["cat", "dog", "soup"]
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    assert task.human_scores(vectors, names) == ()
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    (score,) = task.human_scores(vectors, names)  # no analogy of words it knows: no score
    assert (score.name, score.signature) == ("WordSim-353", "spearman|used:2|skipped:1")
    assert score.value == pytest.approx(1)


# --- mistakes ---


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "tokenizer.kind=bpe",
            "tokenizer.kind=bpe does not cut text into words; word vectors need tokenizer.kind=word",
        ),
        ("model.negatives=0", "model.negatives=0 compares each word with all 8000 others, .* set tokenizer.size=5000"),
    ],
)
def test_settings_that_give_no_word_vectors_are_refused(setting: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        words_of(made(tmp_path, setting), tmp_path)


def test_many_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="word vectors are trained by one process; start it without torchrun"):
        words_of(made(tmp_path), tmp_path)


def test_text_that_gives_no_word_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no two words that occur 5000 times; lower model.min_count or add text"):
        words_of(made(tmp_path, "model.min_count=5000"), tmp_path)
    with pytest.raises(DataError, match=r"leaves no text for validation; raise data.validation"):
        words_of(made(tmp_path, "data.validation=0"), tmp_path)
