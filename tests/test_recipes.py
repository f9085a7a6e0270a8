"""Recipes can be read, name data that anyone can get, and differ in what they say they differ in."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.config import describe
from clearhead.data.catalogue import CATALOGUE
from clearhead.run import bundled_names, find
from clearhead.tasks import load_config

FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = sorted(FOLDER.rglob("*.yaml"))
LAST = {"en-es": "en-es-treaties"}  # models that were trained in several parts: the recipe of the last one
CONTRASTS = {
    "no-positions": {"model.positions"},
    "no-scale": {"model.score"},
    "norm-after": {"model.placement"},
    "rnn-with-attention": {"model.architecture", "model.score", "model.dim", "model.layers"},
}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_names_data_that_anyone_can_get(path: Path) -> None:
    for name in load_config(path).data.path.split("+"):
        assert name in CATALOGUE


@pytest.mark.parametrize("name", bundled_names())
def test_a_model_that_comes_with_the_package_is_made_by_its_recipe(name: str) -> None:
    recipe, made = load_config(FOLDER / f"{LAST.get(name, name)}.yaml"), load_config(find(name) / "config.yaml")
    assert made == recipe


def different(one: Path, other: Path) -> set[str]:
    first, second = ({name: value for name, value, _ in describe(load_config(path))} for path in (one, other))
    return {name for name in first if first[name] != second[name]}


@pytest.mark.parametrize("name", CONTRASTS)
def test_a_contrast_changes_one_thing(name: str) -> None:
    folder = FOLDER / "contrasts"
    assert different(folder / "transformer.yaml", folder / f"{name}.yaml") == CONTRASTS[name]


def test_the_recurrent_networks_differ_in_what_the_decoder_sees() -> None:
    folder = FOLDER / "contrasts"
    assert different(folder / "rnn-with-attention.yaml", folder / "rnn-without-attention.yaml") == {"model.context"}


def test_the_pre_trained_classifier_differs_in_where_it_begins() -> None:
    assert different(FOLDER / "sst2.yaml", FOLDER / "sst2-pretrained.yaml") == {"train.start_from"}
