"""`clearhead look`: every view on the screen, as data, as a figure and as a page; one sentence for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli.main import _run
from clearhead.errors import ClearheadError
from clearhead.look import VIEWS
from clearhead.look.inputs import PreparedInput
from clearhead.look.views.history import log_attention
from clearhead.run import ModelMeta, Run, Sizes, find
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, load_network, save_weights
from clearhead.text import Tokenizer

Say = Callable[..., Any]

SENTENCE = "the red car"
LINES = "First, second.\nThird, first.\nSecond, third.\n"
SMALL = ["model.dim=12", "model.heads=2", "model.layers=2"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained model for each kind of view."""
    place = tmp_path_factory.mktemp("models")
    torch.manual_seed(7)
    write_translator(place / "translator")
    write_text_model(place / "reader", "lm", "char", [LINES])
    write_text_model(place / "vectors", "words", "word", ["king queen man woman child"])
    write_vision(place / "digits")
    return place


def write_translator(path: Path) -> None:
    run, vocabulary = write_text_model(path, "translate", "word", ["the red car el coche rojo"])
    ids = torch.tensor([[*vocabulary.encode(SENTENCE), vocabulary.stop]])
    words = [*SENTENCE.split(), "[STOP]"]
    network, _ = load_network(run, run_config(run))
    for step in (100, 200):
        log_attention(
            path / "attention", step, network, PreparedInput((ids,), tuple(ids[0].tolist()), words, words, words)
        )


def write_text_model(path: Path, task: Any, scheme: Any, texts: list[str]) -> tuple[Run, Tokenizer]:
    settings = ["model.dim=3"] if task == "words" else [*SMALL, "model.inner=17", f"tokenizer.kind={scheme}"]
    run = Run.create(path, override_config(default_config(task), settings))
    vocabulary = Tokenizer.train(scheme, texts)
    vocabulary.save(path / "tokenizer.json")
    sizes = Sizes(vocabulary=len(vocabulary))
    save_weights(run, run_config(run), build_network(run_config(run), sizes).state_dict(), ModelMeta(sizes))
    return run, vocabulary


def write_vision(path: Path) -> None:
    from PIL import Image

    settings = [*SMALL, "model.inner=17", "model.patch=2"]
    run = Run.create(path, override_config(default_config("vision"), settings))
    sizes = Sizes(classes=3, channels=1, height=6, width=6)
    save_weights(
        run,
        run_config(run),
        build_network(run_config(run), sizes).state_dict(),
        ModelMeta(sizes, labels=("zero", "one", "two")),
    )
    Image.fromarray(np.arange(36, dtype=np.uint8).reshape(6, 6) * 7).save(path / "image.png")


def arguments(models: Path, view: str) -> list[str]:
    """A command that shows a view."""
    name, *text = {
        "cells": ["reader", LINES],
        "induction": ["reader"],
        "flow": ["translator", SENTENCE],
        "positions": ["translator"],
        "history": ["translator"],
        "importance": ["translator", "--data", "builtin"],
        "scaling": ["translator"],
        "patches": ["digits"],
        "words": ["vectors", "king man"],
    }.get(view, ["translator", SENTENCE])
    return ["look", str(models / name), *text, "--view", view]


# The others read data, need SciPy, or a captioner.
SHORT = [view for view in VIEWS.builtin() if view not in ("importance", "flow", "overlay")]


@pytest.mark.parametrize("view", SHORT)
def test_every_view_is_shown_as_text_as_data_and_as_a_figure(view: str, models: Path, tmp_path: Path, say: Say) -> None:
    command = arguments(models, view)
    assert len(say(*command).splitlines()) >= 2
    figure, data = tmp_path / "figure.svg", tmp_path / "data.json"
    assert say(*command, "--width", "column", "--out", str(figure)).startswith(f"{view} of ")
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    say(*command, "--out", str(data))
    assert json.loads(data.read_text(encoding="utf-8"))["format"].startswith("clearhead-")


@pytest.mark.parametrize(
    "view", ["heads", "steps", "beam", "rollout", "cells", "lens", "relevance", "history", "scaling"]
)
def test_some_views_are_pages(view: str, models: Path, tmp_path: Path, say: Say) -> None:
    say(*arguments(models, view), "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_screen_shows_the_weights_of_the_head_that_was_asked_for(models: Path, say: Say) -> None:
    name = str(models / "translator")
    shown = say("look", name, SENTENCE, "--layer", "0", "--head", "1", "--target", "el coche rojo")
    assert shown.startswith("cross-attention, layer 0, head 1\n")
    assert [line.split()[0] for line in shown.splitlines()[2:6]] == ["el", "coche", "rojo", "[STOP]"]
    assert "layer 1, mean of its heads" in say("look", name, SENTENCE, "--kind", "encoder.self")


def test_data_is_the_look_itself(models: Path, say: Say) -> None:
    name = str(models / "translator")
    found = say("look", name, SENTENCE, "--target", "el coche rojo", "--json")
    look = clearhead.load(name).look(SENTENCE, "el coche rojo")
    assert found == json.loads(json.dumps(look.to_json()))


def test_a_query_is_a_word_or_a_number(models: Path, say: Say) -> None:
    command = ["look", str(models / "translator"), SENTENCE, "--target", "el coche rojo", "--view", "steps", "--json"]
    assert say(*command, "--query", "coche")["query"] == 1
    assert say(*command, "--query", "2")["query"] == 2


def test_a_text_is_coloured_by_the_unit_or_the_direction_that_was_asked_for(models: Path, say: Say) -> None:
    command = ["look", str(models / "reader"), LINES, "--view", "cells", "--json"]
    found = say(*command, "--unit", "decoder.1.hidden:7")
    assert (found["layer"], found["unit"], "".join(found["tokens"])) == ("decoder.1.hidden", 7, LINES)
    best = say(*command, "--feature", "case")["ranking"]
    assert {each["feature"] for each in best} == {"case"}
    found = say(*command, "--feature", "case", "--method", "direction")
    assert found["format"] == "clearhead-direction-1"
    assert len(found["values"]) == len(found["tokens"]) == len(LINES)


def test_an_image_is_laid_under_its_rollout(models: Path, tmp_path: Path, say: Say) -> None:
    image = str(models / "digits" / "image.png")
    command = ["look", str(models / "digits"), image, "--view", "rollout"]
    shown = say(*command)
    assert [line.split()[0] for line in shown.splitlines()[2:5]] == ["1", "2", "3"]
    say(*command, "--out", str(tmp_path / "a.svg"))
    assert all(f">layer {layer}<" in (tmp_path / "a.svg").read_text(encoding="utf-8") for layer in range(2))
    for view in ("relevance", "gradients"):
        assert len(say("look", str(models / "digits"), image, "--view", view).splitlines()) == 6


def test_a_part_of_a_long_text_is_shown_and_a_long_one_warned_of(
    models: Path, tmp_path: Path, say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["look", str(models / "reader"), "First, " * 30, "--layer", "0", "--head", "0"]
    shown = say(*command, "--rows", "3:8", "--columns", ":11")
    assert len(shown.splitlines()) == 2 + 5 + 2
    capsys.readouterr()
    assert _run([*command, "--out", str(tmp_path / "a.png")], debug=False) == 0
    notes = capsys.readouterr().err
    assert notes.count("210 rows are more than can be told apart") == 1
    assert notes.startswith("clearhead: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["translator", SENTENCE, "--view", "head"], "unknown view head; did you mean heads?"),
        (["translator"], "give a text or an image to look at: clearhead look"),
        (["translator", SENTENCE, "--layer", "2"], "has no layer 2; choose from 0 to 1"),
        (["translator", SENTENCE, "--head", "5"], "has no head 5; choose from 0 to 1"),
        (["translator", SENTENCE, "--kind", "self"], "has no attention called self; it has"),
        (["translator", SENTENCE, "--view", "steps", "--query", "casa"], "no query is called casa; choose from: "),
        (["translator", SENTENCE, "--rows", "5"], "--rows 5 is not a range: write --rows 10:40"),
        (["translator", SENTENCE, "--rows", "900:910"], "there are no rows 900:910: there are "),
        (
            ["translator", SENTENCE, "--width", "wide"],
            "--width wide is not a width: choose slide, page, column, or inches",
        ),
        (["translator", SENTENCE, "--out", "a.gif"], "cannot write a.gif: choose a name that ends in .svg, .pdf, .png"),
        (["translator", SENTENCE, "--out", "no/a.svg"], "cannot write no/a.svg: there is no folder no"),
        (["vectors", "king man", "--view", "words", "--out", "a.html"], "this view has no page: choose another suffix"),
        (["vectors", "king"], "has one vector for each word and no attention"),
        (["translator", "--view", "patches"], "this model reads no images"),
        (["reader", "--view", "history"], "has no attention of any evaluation"),
        (["reader", "First", "--view", "cells", "--unit", "17"], "--unit 17 is not a unit: write LAYER:INDEX"),
        (["reader", "First", "--view", "cells", "--feature", "size"], "unknown feature size; choose from: quotes"),
        (["reader", "First", "--view", "cells", "--method", "unite"], "unknown method unite; did you mean unit?"),
        (["reader", "First", "--view", "cells", "--method", "direction"], "a direction needs a feature to follow"),
        (["translator", "--view", "importance", "--method", "guess"], "unknown method guess; "),
        (["digits", "nowhere.png"], "nowhere.png"),
        (["digits", "--view", "induction"], "induction heads belong to a causal language model"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    sentence: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(["look", str(models / words[0]), *words[1:]], debug=False) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.startswith("clearhead: ")
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_view_is_offered_and_says_what_it_shows(say: Say) -> None:
    names = [
        "beam", "cells", "flow", "gradients", "heads", "history", "importance", "induction", "lens", "lines",
        "overlay", "patches", "positions", "relevance", "rollout", "scaling", "steps", "words", "xray",
    ]  # fmt: skip
    assert VIEWS.builtin() == names
    help_text = " ".join(say("look", "--help").split())
    assert ", ".join(names) in help_text
    for name in names:
        assert VIEWS[name].__doc__
        assert name in VIEWS[name].__module__


def test_the_bundled_translator_crosses_noun_and_adjective() -> None:
    try:
        place = find("en-es")
    except ClearheadError:
        pytest.skip("the package comes without en-es")
    look = clearhead.load(place).look("She has a red car.", "Ella tiene un coche rojo.")
    seen = look.attention["decoder.cross"]
    strongest = seen.weights[-1].mean(0).argmax(-1)  # (T,)
    looked_at = {word: seen.columns[int(key)] for word, key in zip(seen.rows, strongest, strict=True)}
    assert (looked_at["coche"], looked_at["rojo"]) == ("car", "red")
