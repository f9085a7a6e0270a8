from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.bench import words
from clearhead.bench.words import SETTINGS, Learned, check_questions, our_trainer, results, word_lists
from clearhead.errors import DataError

LINE = "The king and the queen, the cat and the dog.\n"


def small(folder: Path) -> list[str]:
    (folder / "text.txt").write_text("Rare! " + LINE * 60, encoding="utf-8")
    return [*SETTINGS, f"data.path={folder / 'text.txt'}", "data.validation=0.1", "model.dim=3", "data.batch_tokens=50"]


def test_the_lists_are_the_words_that_our_task_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROW", 7)
    lists = word_lists(our_trainer(tmp_path, 1, small(tmp_path)).task)
    assert lists[0] == ["the", "king", "and", "the", "queen", "the", "cat"]
    assert lists[1][:3] == ["and", "the", "dog"]
    assert {len(each) for each in lists[:-1]} == {7}
    assert sum(map(len, lists)) == 53 * 10  # the whole lines of nine tenths, without marks and the rare word


def test_our_steps_make_the_epochs(tmp_path: Path) -> None:
    trainer = our_trainer(tmp_path, 1, small(tmp_path))
    assert trainer.progress.max_steps == 5 * len(trainer.cursor)


def test_both_are_trained_on_the_same_words(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    trainer = our_trainer(tmp_path, 1, small(tmp_path))
    lists = word_lists(trainer.task)
    ours, theirs = words.train_ours(trainer, lists), words.train_gensim(lists, trainer.task.config)
    assert ours.words_per_second > 0
    assert theirs.words_per_second > 0


def test_results_compare_medians() -> None:
    ours = [Learned(300, {"WordSim-353": 30, "analogies": 7}), Learned(100, {"WordSim-353": 10, "analogies": 5})]
    theirs = [Learned(1000, {"WordSim-353": 22, "analogies": 9}), Learned(600, {"WordSim-353": 22, "analogies": 7})]
    found = {result.what: result for result in results(ours, theirs)}
    speed = found["training speed, clearhead / gensim"]
    assert (speed.value, speed.bound, speed.holds) == (0.25, "at least", True)
    assert found["WordSim-353, clearhead - gensim"].value == -2
    assert found["WordSim-353, clearhead - gensim"].holds is True
    assert found["analogies, clearhead - gensim"].value == -2
    assert found["gensim: analogies"].value == 8
    assert [result.what for result in results(ours, [])] == [
        "clearhead: training speed",
        "clearhead: WordSim-353",
        "clearhead: analogies",
    ]


@pytest.mark.parametrize("peers", [False, True])
def test_every_round_has_its_seed_and_both_learn_from_the_same_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: bool
) -> None:
    settings, seeds, given = small(tmp_path), [], []

    def theirs(lists: list[list[str]], _config: object) -> Learned:
        given.append(lists)
        return Learned(50.0, {})

    def ours(trainer: Any, lists: list[list[str]]) -> Learned:
        seeds.append(trainer.config.seed)
        given.append(lists)
        return Learned(100.0, {})

    real = words.our_trainer
    monkeypatch.setattr(words, "check_questions", lambda: None)
    monkeypatch.setattr(words, "our_trainer", lambda folder, seed: real(folder, seed, settings))
    monkeypatch.setattr(words, "train_ours", ours)
    monkeypatch.setattr(words, "train_gensim", theirs)
    found = {each.what: each.value for each in words.run(peers)}
    assert seeds == list(range(1, words.ROUNDS + 1))
    assert found["clearhead: training speed"] == 100
    assert found.get("training speed, clearhead / gensim") == (2 if peers else None)
    assert len({str(lists) for lists in given}) == 1


def test_without_human_ratings_nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"needs wordsim353.tsv and questions-words.txt in a folder word2vec below"):
        check_questions()
