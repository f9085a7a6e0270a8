"""Settings are chosen for the data and the time; what the user chose stays, with all that belongs to it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearhead.data import Labelled, Pair, Tagged
from clearhead.data.examples import Dataset
from clearhead.errors import DataError
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base import recipe
from clearhead.tasks.base.recipe import Budget, DataFacts, choose, core_speed
from clearhead.tasks.base.task import Workspace
from clearhead.train.loop import Callbacks
from clearhead.train.presets import preset_settings
from clearhead.train.start import data_notes, plan_training, run_training

AMOUNTS = [10, 997, 19_997, 1_000_003]


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "cores", lambda: 1)
    monkeypatch.setattr(recipe, "core_speed", lambda: 1.0)


@pytest.mark.parametrize("task", TASKS.builtin())
@pytest.mark.parametrize("minutes", [0.5, 4.0, 61.0])
def test_every_recipe_is_a_configuration(task: str, minutes: float) -> None:
    for amount in AMOUNTS:
        for side in (0, 1, 28, 32, 37, 64, 640):
            facts = DataFacts(amount, "examples", length=31.0, word=5.0, image_size=side)
            config = override_config(default_config(task), [f"train.max_minutes={minutes}"])
            chosen, note = choose(config, facts, ["train.max_minutes"], None)
            assert chosen.train.max_minutes == minutes
            assert note.startswith(f"chosen for {amount:,} examples and {minutes:g} minutes on one core: ")
            if hasattr(chosen.model, "patch"):
                assert (chosen.data.image_size or side) % chosen.model.patch == 0


def test_the_user_decides() -> None:
    facts = DataFacts(20_000, "pairs", 60.0)
    given = ["model.dim=100", "train.optimizer=adamw", "train.max_steps=7", "data.batch_tokens=77"]
    config = override_config(default_config("translate"), given)
    chosen, note = choose(config, facts, [each.partition("=")[0] for each in given], None)
    assert (chosen.model.dim, chosen.model.heads, chosen.model.inner) == (100, 4, None)
    assert (chosen.train.optimizer, chosen.train.learning_rate) == ("adamw", 1e-3)
    assert (chosen.train.max_steps, chosen.train.max_minutes, chosen.data.batch_tokens) == (7, None, 77)
    assert chosen.train.schedule == "linear"
    assert "model.dim" not in note


def test_a_size_fixes_the_model() -> None:
    chosen, _ = choose(default_config("translate", "base"), DataFacts(100, "pairs"), [], "base")
    assert (chosen.model.dim, chosen.model.layers, chosen.model.inner) == (512, 6, None)
    assert chosen.train.optimizer == "muon"


def test_more_time_and_more_cores_make_a_larger_model() -> None:
    facts = DataFacts(100_000, "pairs", 60.0)
    small, large = (TASKS["translate"].recipe(facts, Budget(minutes, 2)) for minutes in (2, 60))
    assert small["model.dim"] < large["model.dim"]
    assert TASKS["translate"].recipe(facts, Budget(20, 1)) == TASKS["translate"].recipe(facts, Budget(10, 2))
    assert (str(Budget(1, 1)), str(Budget(2.5, 2))) == ("1 minute on one core", "2.5 minutes on 2 cores")


def test_few_pairs_make_a_small_model_that_forgets_more() -> None:
    few, many = (TASKS["translate"].recipe(DataFacts(count, "pairs", 60.0), Budget(2, 1)) for count in (1000, 20_000))
    assert few["model.dim"] < many["model.dim"]
    assert few["model.dropout"] > many.get("model.dropout", 0.1)


def dropout(pairs: int, characters: float, budget: Budget) -> float:
    found: float = TASKS["translate"].recipe(DataFacts(pairs, "pairs", characters), budget)["model.dropout"]
    return found


def test_the_more_often_pairs_are_read_the_more_dropout_they_have() -> None:
    assert dropout(20_000, 60.0, Budget(1.5, 1)) == 0.0
    assert 0.0 < dropout(20_000, 60.0, Budget(3, 1)) < 0.1
    assert dropout(20_000, 60.0, Budget(8, 1)) == pytest.approx(dropout(20_000, 60.0, Budget(4, 1)) + 0.1)
    assert dropout(20_000, 15.0, Budget(1.5, 1)) == dropout(20_000, 60.0, Budget(6, 1))  # short ones are less to learn
    assert dropout(20_000, 60.0, Budget(2, 1, speed=1.5)) == dropout(20_000, 60.0, Budget(3, 1))
    assert dropout(1000, 60.0, Budget(60, 1)) == 0.3
    larger, smaller = (dropout(20_000, 60.0, Budget(minutes, 1)) for minutes in (10.1, 9.9))
    assert larger < smaller  # a larger model reads less in the same time


def test_a_fast_machine_reads_more(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, given = DataFacts(20_000, "pairs", 60.0), ["train.max_minutes"]
    config = override_config(default_config("translate"), ["train.max_minutes=2"])
    chosen = []
    for speed in (0.5, 3.0):
        monkeypatch.setattr(recipe, "core_speed", lambda speed=speed: speed)
        chosen.append(choose(config, facts, given, None)[0].model.dropout)
    assert chosen == [0.0, dropout(20_000, 60.0, Budget(6, 1))]
    steps = choose(config, facts, [*given, "train.max_steps"], None)[0]  # does not depend on the machine
    assert steps.model.dropout == dropout(20_000, 60.0, Budget(2, 1))


def test_a_core_that_takes_twice_as_long_is_half_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for seconds in (0.01, 0.02):
        ticks = count(0.0, seconds)
        monkeypatch.setattr(recipe.time, "perf_counter", lambda ticks=ticks: next(ticks))
        found.append(core_speed())
    assert found[0] == pytest.approx(2 * found[1])
    monkeypatch.setenv("WORLD_SIZE", "2")  # both processes must choose the same
    assert core_speed() == 1.0


def test_a_model_that_starts_from_another_has_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a small text of words\n" * 100, encoding="utf-8")
    Path("texts.csv").write_text("text,label\n" + "".join(f"a text {i},{i % 2}\n" for i in range(40)), encoding="utf-8")
    words = [
        "data.path=text.txt",
        "model.dim=24",
        "model.heads=3",
        "model.layers=1",
        "model.length=8",
        "train.max_steps=1",
    ]
    run_training(override_config(default_config("masked_lm"), words), Path("base"), "test")
    given = ["data.path=texts.csv", "train.start_from=base"]
    plan = plan_training(override_config(default_config("classify"), given), [each.partition("=")[0] for each in given])
    assert (plan.config.model.dim, plan.config.model.heads, plan.config.model.layers) == (24, 3, 1)
    assert plan.config.model.positions == "rotary"


# --- what training says of the data ---


def notes_of(task: str, path: Path) -> list[str]:
    notes: list[str] = []
    config = override_config(default_config(task), [f"data.path={path}"])
    plan = plan_training(config, ["data.path"], None, Callbacks(on_note=notes.append))
    made = TASKS[task](plan.config, Workspace(path.parent, dataset=plan.dataset))
    return [*notes, *made.notes]


def test_training_names_the_columns_and_what_looks_wrong(tmp_path: Path) -> None:
    rows = "".join(f"{i},title {i},the long body of text {i},{'ab'[i % 2]}\n" for i in range(30))
    path = tmp_path / "t.csv"
    path.write_text("id,title,body,label\n" + rows + "99,x,a body without a label,\n" * 2, encoding="utf-8")
    notes = notes_of("classify", path)
    assert notes[0] == f"{path}: the text is column body, the label column label (not read: id, title)"
    assert any(note.startswith("worth a look: 2 × no label (line 32, line 33)") for note in notes)
    assert "worth a look: 1 × repeated texts" in notes
    assert "2 examples without a text or without a label are left out" in notes


def test_long_texts_are_said_to_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "text,label\n" + "".join(f"{'word ' * (400 * (i == 3))}{i},{i % 2}\n" for i in range(40)), encoding="utf-8"
    )
    assert "1 texts of 256 tokens or more are cut to their beginning (data.max_length)" in notes_of("classify", path)


def test_one_class_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"text {i},x\n" for i in range(40)), encoding="utf-8")
    with pytest.raises(DataError, match="has the one label x; there must be at least two to choose from"):
        notes_of("classify", path)


def test_photographs_of_all_sizes_are_scaled(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    for number in range(24):
        folder = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        shape = (480, 640, 3) if number % 3 else (320, 240, 3)
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(folder / f"{number}.jpg")
    notes = notes_of("vision", tmp_path / "photos")
    assert "images of 2 sizes are cut to their centre and scaled to 64 × 64 (data.image_size)" in notes


def test_faults_are_listed_up_to_a_limit() -> None:
    pairs = [
        Pair("same", "same", 1),
        Pair("a" * 90, "b", 2),
        Pair("Ã©t", "ok", 3),
        Pair("\x00", "x", 4),
        Pair(" ", "y", 5),
    ]
    dataset: Dataset[Pair] = Dataset("pairs", pairs, [], "p.tsv")
    found = list(data_notes(dataset))
    assert len(found) == 5
    assert found[-1] == "and 1 more: clearhead data check p.tsv"
    tagged: Dataset[Tagged] = Dataset("tagged", [Tagged(("a",), ("X",))] * 2, [], "t")
    assert [note.split(" × ")[1] for note in data_notes(tagged)] == ["only one class (X)", "repeated sentences"]
    assert not list(data_notes(Dataset("labelled", [Labelled("a", "x"), Labelled("b", "y")] * 1, [], "t")))[2:]


def test_few_texts_are_read_with_features_of_their_words() -> None:
    made, budget = TASKS["classify"].recipe, Budget(1, 1)
    few = made(DataFacts(5003, "texts", 53.0, word=5.1), budget)
    assert (few["model.features"], few["model.ngrams"], few["model.wide"]) == (16384, 3, 262_144)
    rows = [made(DataFacts(5003, "texts", 53.0, word=5.1, labels=each), budget)["model.wide"] for each in (21, 101)]
    assert rows == [65_536, 0]
    assert made(DataFacts(500_003, "texts", 53.0, word=5.1, labels=2), budget)["model.wide"] == 0
    assert "model.features" not in made(DataFacts(20_011, "texts", 53.0, word=5.1), budget)
    assert "model.features" not in made(DataFacts(5003, "texts", 53.0, word=17.0), budget)  # without spaces


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_preset_of_other_programs_has_no_features(task: str) -> None:
    given = preset_settings("bert", task)
    names = [each.partition("=")[0] for each in given]
    config = override_config(default_config(task), given)
    chosen, note = choose(config, DataFacts(503, "texts", 53.0, word=5.1), names, None)
    assert (chosen.model.features, chosen.model.ngrams) == (0, 1)
    assert "model.features" not in note


def test_short_texts_without_spaces_are_read_as_pieces() -> None:
    """A Chinese text of nine characters would be one word, which no other text has."""
    words = [Labelled(f"这部电影很好看{number}", "ab"[number % 2]) for number in range(40)]
    facts = TASKS["classify"].facts(Dataset("labelled", words, words[:3], "test"))
    assert "tokenizer.kind" not in TASKS["classify"].recipe(facts, Budget(1, 1))
