from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from clearhead.decode import Settings, SpecialTokens
from clearhead.engines import engine
from clearhead.engines.engine import Engines
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library
from clearhead.errors import ConfigError, EngineError
from clearhead.look.interventions import heads_off, positions_off, scale_off
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network

needs_library = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")
SPECIAL = SpecialTokens(pad=0, start=1, stop=2)


def make(*parts: str) -> nn.Module:
    torch.manual_seed(3)
    small = ("model.dim=12", "model.heads=3", "model.layers=1", *parts)
    return build_network(override_config(default_config("translate"), small), Sizes(vocabulary=23)).eval()


@needs_library
def test_native_code_is_chosen_for_any_number_of_texts() -> None:
    engines = Engines(make())
    assert isinstance(engines.stepper(), NativeEngine)
    assert engines.stepper() is engines.stepper(Settings(beam_width=3))


def test_without_the_library_torch_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make()
    expected = Engines(network, "torch").generate_batch([[5, 7, 9]], SPECIAL, Settings(max_tokens=5))
    monkeypatch.setattr(engine, "load_library", lambda: None)
    monkeypatch.setattr(engine, "library_problem", lambda: "there is no native library; build it")
    assert Engines(network).stepper() is network
    assert Engines(network).generate_batch([[5, 7, 9]], SPECIAL, Settings(max_tokens=5)) == expected
    for wanted in (Engines(network, "compiled"), Engines(network, int8=True)):
        with pytest.raises(EngineError, match=r"^there is no native library; build it, or use the engine torch$"):
            wanted.stepper()


def test_torch_runs_what_native_code_does_not_support() -> None:
    network = make()
    assert Engines(network, "torch").stepper() is network
    assert Engines(network).stepper(Settings(beam_width=2, coverage_penalty=0.5)) is network
    rnn = make("model.architecture=rnn")
    assert Engines(rnn).stepper() is rnn
    with pytest.raises(EngineError, match="cannot run this model: it is not a Transformer that generates tokens; use"):
        Engines(rnn, "compiled").stepper()


def test_unknown_engines_and_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown engine compile; did you mean compiled\\?"):
        Engines(make(), "compile")
    with pytest.raises(ConfigError, match="int8 weights need the engine compiled or ct2"):
        Engines(make(), "torch", int8=True)


@needs_library
def test_the_int8_loss_is_reported_once_for_few_and_once_for_many_texts() -> None:
    said: list[str] = []
    engines = Engines(make(), int8=True, on_note=said.append)
    asked = [[5 + row % 13, 7, 9 + row % 11] for row in range(40)]
    for texts in (asked[:1], asked[:1], asked, asked):
        found = engines.generate_batch(texts, SPECIAL, Settings(max_tokens=5))
        assert len(found) == len(texts)
    assert len(said) == 2
    assert said[0].startswith("int8 weights: ")
    assert " of 1 texts are the same as with float32" in said[0]
    assert " of 32 texts" in said[1]


def test_no_folder_is_made_without_ct2(tmp_path: Path) -> None:
    engines = Engines(make(), folder=tmp_path / "ct2")
    assert engines.generate_batch([], SPECIAL, Settings()) == []
    assert not (tmp_path / "ct2").exists()


@needs_library
def test_a_changed_network_runs_without_an_engine() -> None:
    network = make()
    engines = Engines(network)
    fast = engines.stepper()
    assert fast is not network
    with positions_off(network):
        assert engines.stepper() is network
    with scale_off(network):
        assert engines.stepper() is network
    with heads_off(network, "decoder.0.cross", [1]):
        assert engines.stepper() is network
    assert engines.stepper() is fast
    with torch.no_grad():
        next(network.parameters()).add_(1.0)  # it learned something
    assert engines.stepper() is network
