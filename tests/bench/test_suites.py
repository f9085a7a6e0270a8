from __future__ import annotations

from importlib import import_module

import pytest

from clearhead.bench import SUITES, Suite, find_suite
from clearhead.errors import ConfigError


def test_an_unknown_name_is_answered_with_all_names() -> None:
    with pytest.raises(ConfigError, match="unknown benchmark zebra; choose from: charlm, core, decode, defaults, "):
        find_suite("zebra", peers=False)
    with pytest.raises(ConfigError, match=r"unknown benchmark wrds; did you mean words\?"):
        find_suite("wrds", peers=False)


def test_a_missing_peer_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"transformers", "peft"}
    monkeypatch.setattr("clearhead.bench.find_spec", lambda module: object() if module in here else None)
    sentence = r"bench train --peers compares with x-transformers, not installed here; pip install 'clearhead\[peers\]'"
    with pytest.raises(ConfigError, match=sentence):
        find_suite("train", peers=True)
    assert find_suite("train", peers=False) is SUITES["train"]
    assert find_suite("charlm", peers=True) is SUITES["charlm"]
    here.clear()
    with pytest.raises(ConfigError, match="compares with transformers and x-transformers and peft, not installed"):
        find_suite("train", peers=True)


def test_a_peer_is_looked_for_by_the_name_it_is_imported_by(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("clearhead.bench.find_spec", asked.append)
    with pytest.raises(ConfigError):
        find_suite("train", peers=True)
    assert asked == ["transformers", "x_transformers", "peft"]


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_every_suite_can_be_run(suite: Suite) -> None:
    assert callable(import_module(suite.module).run)


def test_versions_are_those_of_the_peers() -> None:
    assert Suite("none", peers=("numpy",)).versions() == {"numpy": import_module("numpy").__version__}
