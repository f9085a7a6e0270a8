"""The TorchScript engine equals the network to the last digits, whatever its parts, through every change of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small import (
    PARTS,
    POSITIONS,
    assert_same_steps,
    assert_same_texts,
    assert_same_through_a_window,
    make,
    sources,
)

from clearhead.decode import Prompts, Settings, generate
from clearhead.decode.stepper import rank
from clearhead.engines import torchscript
from clearhead.engines.engine import Engines
from clearhead.engines.torchscript import CAPACITY, TorchScriptEngine


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("task", ["translate", "lm"])
@pytest.mark.parametrize("script", [False, True], ids=["python", "script"])
def test_steps_equal_those_of_the_network(
    task: str, positions: str, parts: Sequence[str], script: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchscript, "SCRIPT_MIN_STEPS", 1 if script else 1000)
    monkeypatch.setattr(torchscript, "worth_joining", lambda *_: False)
    network = make(task, f"model.positions={positions}", *parts).double()
    fast = TorchScriptEngine(network)  # type: ignore[arg-type]
    assert_same_steps(network, fast, task, near=1e-10)
    assert isinstance(fast.one_token, torch.jit.ScriptModule) == script
    assert isinstance(fast.rank, torch.jit.ScriptFunction) == script


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("script", [False, True], ids=["python", "script"])
def test_joined_keys_and_values_equal_the_network(
    parts: Sequence[str], script: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchscript, "SCRIPT_MIN_STEPS", 1 if script else 1000)
    monkeypatch.setattr(torchscript, "worth_joining", lambda *_: True)
    network = make("translate", *parts).double()
    assert_same_steps(network, TorchScriptEngine(network), "translate", near=1e-10)  # type: ignore[arg-type]


def test_only_short_sources_are_joined() -> None:
    assert torchscript.worth_joining(layers=4, sentences=16, length=20, heads=4, dim=128)
    assert not torchscript.worth_joining(layers=4, sentences=1, length=50, heads=4, dim=128)
    assert not torchscript.worth_joining(layers=6, sentences=16, length=20, heads=8, dim=512)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    positions=st.sampled_from(POSITIONS),
    parts=st.sampled_from(PARTS),
    beams=st.sampled_from([1, 2, 5]),
    rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_the_same_texts_are_found(positions: str, parts: Sequence[str], beams: int, rows: int, seed: int) -> None:
    network = make("translate", f"model.positions={positions}", *parts, seed=seed).double()
    assert_same_texts(network, TorchScriptEngine(network), beams, rows, near=1e-9)  # type: ignore[arg-type]


@torch.inference_mode()
def test_beams_of_a_source_share_its_keys() -> None:
    fast = TorchScriptEngine(make("translate"))  # type: ignore[arg-type]
    state = fast.start(sources(3))
    shared = fast.reorder(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert shared.source.keys[0] is state.source.keys[0]
    left = fast.reorder(shared, torch.tensor([4, 5, 1, 0]))  # the second sentence leaves, the others change places
    assert torch.equal(left.source.keys[0], state.source.keys[0][[2, 0]])
    assert left.sentence == [0, 0, 1, 1]
    uneven = fast.reorder(left, torch.tensor([0, 2, 3]))
    assert torch.equal(uneven.source.keys[0], state.source.keys[0][[2, 0, 0]])


@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
def test_a_window_bounds_the_memory_and_changes_nothing_else(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchscript, "SCRIPT_MIN_STEPS", 30)  # half of the steps are TorchScript
    network = make("lm", f"model.positions={positions}").double()
    state = assert_same_through_a_window(network, TorchScriptEngine(network), near=1e-10)  # type: ignore[arg-type]
    assert state.keys[0].size(2) <= CAPACITY


def test_an_unsupported_network_runs_as_it_is() -> None:
    usual, own = make("translate"), make("translate", "model.score=additive")
    assert TorchScriptEngine.unsupported_features(usual) == []
    assert TorchScriptEngine.unsupported_features(own) == ["a custom attention score or normalisation"] * 4
    assert isinstance(Engines(usual, "torch").stepper(), TorchScriptEngine)
    assert Engines(own, "torch").stepper() is own
    assert Engines(usual, "torch").stepper(settings=Settings(beam_width=2, coverage_penalty=0.1)) is usual


def test_without_torchscript_it_is_the_same_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_part: object) -> None:
        raise RuntimeError("TorchScript is not there")

    monkeypatch.setattr(torch.jit, "script", refuse)
    monkeypatch.setattr(torchscript, "SCRIPT_MIN_STEPS", 1)
    network = make("translate").double()
    fast = TorchScriptEngine(network)  # type: ignore[arg-type]
    assert_same_steps(network, fast, "translate", near=1e-10)
    assert fast.one_token is fast.inlined
    assert fast.rank is rank


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    task=st.sampled_from(["translate", "lm"]),
    positions=st.sampled_from(["none", "sinusoidal", "learned"]),
    parts=st.sampled_from(PARTS[:4]),
    stop=st.sampled_from([None, 2, 7]),
    seed=st.integers(0, 9),
    dim=st.sampled_from([12, 30]),  # the larger one joins keys and values
)
def test_greedy_search_in_torchscript_equals_the_token_loop(
    data: st.DataObject, task: str, positions: str, parts: Sequence[str], stop: int | None, seed: int, dim: int
) -> None:
    network = make(task, f"model.dim={dim}", f"model.positions={positions}", *parts, seed=seed).double()
    fast, rows = TorchScriptEngine(network, many=True), data.draw(st.integers(1, 5))  # type: ignore[arg-type]
    limits = data.draw(st.lists(st.integers(1, 23), min_size=rows, max_size=rows))
    length = data.draw(st.integers(1, 4))
    prompts = Prompts([[(3 * row + 5 * place) % 37 for place in range(length)] for row in range(rows)], stop, limits)
    given = [sources(rows)] if task == "translate" else []
    state = fast.start(*given)
    assert fast.can_search(state, prompts, Settings())
    found = fast.search(state, prompts, Settings())
    assert found == generate(network, network.start(*given), prompts, Settings())  # type: ignore[operator, arg-type]


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("model.positions=rotary", {}),
        ("model.positions=alibi", {}),
        ("model.window=3", {}),
        ("model.bias=true", {"beam_width": 2}),
        ("model.bias=true", {"return_logprobs": True}),
        ("model.bias=true", {"temperature": 1.0, "seed": 1}),
        ("model.bias=true", {"banned_tokens": (5,)}),
    ],
)
def test_other_settings_than_greedy_use_the_token_loop(part: str, asked: dict[str, Any]) -> None:
    network = make("translate", part).double()
    fast, prompts = TorchScriptEngine(network, many=True), Prompts([[1], [1]], 2, [9, 9])  # type: ignore[arg-type]
    chosen = Settings(**asked)
    assert not fast.can_search(fast.start(sources(2)), prompts, chosen)
    found, expected = (generate(each, each.start(sources(2)), prompts, chosen) for each in (fast, network))  # type: ignore[operator, arg-type]
    assert [row[0].ids for row in found] == [row[0].ids for row in expected]


def test_shared_sources_and_unequal_prompts_use_the_token_loop() -> None:
    fast = TorchScriptEngine(make("translate").double(), many=True)  # type: ignore[arg-type]
    both = fast.reorder(fast.start(sources(2)), torch.tensor([1, 1]))
    assert not fast.can_search(both, Prompts([[1], [1]]), Settings())
    assert not fast.can_search(fast.start(sources(2)), Prompts([[1], [1, 3]]), Settings())
    assert not fast.can_search(fast.start(sources(2)), Prompts([[1], [1]], max_tokens=[0, 3]), Settings())
    too_long = Prompts([[1]], max_tokens=[100])
    learned = TorchScriptEngine(make("translate", "model.positions=learned"), many=True)  # type: ignore[arg-type]
    assert not learned.can_search(learned.start(sources(1)), too_long, Settings())
