"""`clearhead check`: sound models pass, and every planted fault is found and named with its layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library

import clearhead
from clearhead.cli.main import _run
from clearhead.interop.check import Result, check_model
from clearhead.interop.importing import import_model
from clearhead.look.interventions import mask_off
from clearhead.nn.cache import GrowingCache
from clearhead.tasks.base.predictor import Predictor, load

from .originals import ORIGINALS

Fault = Callable[[Any, pytest.MonkeyPatch], None]
RUNS = ["en-es", "shakespeare", "shakespeare-lstm", "digits", "words"]


def failures(results: list[Result]) -> dict[str, str]:
    return {each.name: each.where for each in results if not each.passed}


@pytest.mark.parametrize("name", RUNS)
def test_bundled_models_pass(name: str) -> None:
    results = check_model(clearhead.load(name))
    assert failures(results) == {}
    assert all(each.worst is None or each.worst < 1e-5 for each in results)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama and a BERT, theirs and ours."""
    pytest.importorskip("transformers", reason="the originals are built by transformers")
    made = tmp_path_factory.mktemp("check")
    for name in ("llama", "bert masked"):
        ORIGINALS[name].save(made / name / "theirs")
        import_model(made / name / "theirs", made / name / "ours")
    return made


@pytest.fixture
def model(folder: Path) -> Iterator[Predictor]:
    with ExitStack():
        yield load(folder / "llama" / "ours")


@pytest.mark.parametrize("name", ["llama", "bert masked"])
def test_a_sound_import_passes(folder: Path, name: str) -> None:
    results = check_model(load(folder / name / "ours"), folder / name / "theirs")
    assert failures(results) == {}
    assert {"original", "original tokenizer"} <= {each.name for each in results}


# --- faults that a model shows by itself ---


def test_a_mask_that_is_off(model: Predictor) -> None:
    with mask_off(model.network, "decoder.1.self"):
        assert failures(check_model(model))["causality"] == "decoder.1.hidden"


def test_positions_that_are_shifted_after_the_prompt(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.nn import Rotary

    layer = model.network.stack.blocks[2].self_attention
    own = Rotary(10)
    rotate = own.rotate
    monkeypatch.setattr(own, "rotate", lambda x, start: rotate(x, start + 1 if start else 0))
    layer.relative = own
    assert failures(check_model(model))["cache"] == "decoder.2.hidden"


def test_a_cache_that_forgets(model: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    extend = GrowingCache.extend

    def forget(self: GrowingCache, queries: int, project: Any) -> Any:
        keys, values = extend(self, queries, project)
        if self.start > 6:
            values[:, :, 0] = 0.0
        return keys, values

    monkeypatch.setattr(GrowingCache, "extend", forget)
    assert failures(check_model(model))["cache"] == "decoder.0.hidden"


def test_padding_that_is_seen(folder: Path) -> None:
    model = load(folder / "bert masked" / "ours")
    with mask_off(model.network, "encoder.1.self"):
        assert failures(check_model(model)) == {}  # it hides padding all the same
    model.network.pad = -1  # type: ignore[assignment]
    assert failures(check_model(model))["padding"] == "encoder.0.hidden"


# --- faults that only the original shows ---


def swapped_heads(network: Any) -> None:
    """Heads 0 and 1 of the queries of layer 1 change places."""
    weight = network.stack.blocks[1].self_attention.query.weight
    weight.copy_(torch.cat((weight[10:20], weight[:10], weight[20:])))


def wrong_eps(network: Any) -> None:
    network.stack.blocks[0].residual2.norm.eps = 0.1


def interleaved(network: Any) -> None:
    """Queries and keys of layer 2 in the order of pairs, as llama.cpp stores them."""
    layer = network.stack.blocks[2].self_attention
    for weight in (layer.query.weight, layer.key.weight):
        weight.copy_(weight.view(-1, 2, 5, weight.size(1)).transpose(1, 2).reshape(weight.shape))


@pytest.mark.parametrize(
    ("fault", "place"),
    [(swapped_heads, "decoder.1.hidden"), (wrong_eps, "decoder.0.hidden"), (interleaved, "decoder.2.hidden")],
)
@torch.no_grad()
def test_faults_of_the_weights(folder: Path, model: Predictor, fault: Callable[[Any], None], place: str) -> None:
    fault(model.network)
    assert failures(check_model(model)) == {}
    assert failures(check_model(model, folder / "llama" / "theirs")) == {"original": place}


def test_a_tokenizer_without_its_normaliser(folder: Path, model: Predictor) -> None:
    values = json.loads(model.tokenizer._library.to_str())
    values["normalizer"] = None
    model.tokenizer._library = Library.from_str(json.dumps(values))
    found = failures(check_model(model, folder / "llama" / "theirs"))
    assert found == {"original tokenizer": repr("e\u0301 vs é, n\u0303 vs ñ")}


# --- the command ---


def test_the_command_exits_with_1_and_names_the_layer(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (folder / "llama" / "ours").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    path = broken / "model.safetensors"
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(path)
    tensors["stack.blocks.1.feed_forward.outer.weight"] *= 1.01
    save_file(tensors, path, metadata)
    assert _run(["check", str(broken), "--json"], debug=False) == 0
    capsys.readouterr()
    theirs = str(folder / "llama" / "theirs")
    assert _run(["check", str(broken), "--against", theirs, "--json"], debug=False) == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["original"]["where"] == "decoder.1.hidden"
    assert _run(["check", str(broken), "--against", theirs], debug=False) == 1
    assert "FAILED" in capsys.readouterr().out
