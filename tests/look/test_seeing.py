"""Heads that are seen while a text is generated: what torch's probes see, and the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make, native_of, sources
from tests.serve.setting import CHARACTERS
from tests.serve.setting import make as make_run
from torch.testing import assert_close

import clearhead
from clearhead.decode import Row, Settings, TokenLoop
from clearhead.engines.native.engine import SeenHead
from clearhead.engines.native.library import load_library
from clearhead.errors import ConfigError, ProbeError
from clearhead.look import capture
from clearhead.look.seeing import SeenRow, generate_seeing, heads_to_see, read_seeing
from clearhead.nn.quantised import can_quantise, quantise

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

NAMES = ("decoder.1.self.weights", "decoder.0.self.scores")


@torch.inference_mode()
def expected_of(network: Any, ids: list[int], names: tuple[str, ...], heads: Any = None, window: Any = None) -> Any:
    """By torch: what the network computes for a text, (H, T, T); scores only where a token sees another."""
    with capture(network, *names, "decoder.0.self.visible", heads=heads) as seen:
        network.step(torch.tensor([ids]), network.start() if window is None else network.start(window=window))
    visible = seen.pop("decoder.0.self.visible")[0]
    return {name: seen[name][0].masked_fill(~visible, 0.0) for name in names}


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
def test_weights_and_scores_are_those_of_torch(positions: str, parts: tuple[str, ...]) -> None:
    network: Any = make("lm", f"model.positions={positions}", *parts)
    engine = native_of(network)
    wanted = heads_to_see(network, engine, NAMES, heads=[2, 0])
    assert wanted == {
        "decoder.0.self.scores": [SeenHead(0, 2, tensor="scores"), SeenHead(0, 0, tensor="scores")],
        "decoder.1.self.weights": [SeenHead(1, 2), SeenHead(1, 0)],
    }
    row = SeenRow(wanted)
    ids = generate_seeing(
        engine, engine.start(), [7, 5, 11], None, Settings(max_tokens=13, temperature=1.0, seed=3), row
    )
    assert len(ids) == 16
    found = row.tensors()
    for name, tensor in expected_of(network, ids, NAMES, heads=[2, 0]).items():
        assert found[name].shape == (2, 16, 16)
        assert_close(found[name], tensor, atol=2e-5, rtol=1e-4)


@torch.inference_mode()
def test_cross_attention_is_seen() -> None:
    """Sentences of unequal length: what is padding in one has no weight."""
    network: Any = make("translate")
    engine, given = native_of(network), sources(3)
    ids = torch.randint(5, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(2))
    heads = [SeenHead(1, 2, cross=True), SeenHead(0, 1, cross=True, tensor="scores"), SeenHead(0, 2)]
    _, (weights, scores, own), _ = engine.step_seeing(ids, engine.start(given), heads)
    with capture(network, "decoder.1.cross.weights", "decoder.0.cross.*", "decoder.0.self.weights") as seen:
        network.step(ids, network.start(given))
    assert_close(weights, seen["decoder.1.cross.weights"][:, 2], atol=2e-5, rtol=1e-4)
    visible = seen["decoder.0.cross.visible"]
    assert_close(scores, seen["decoder.0.cross.scores"][:, 1] * visible, atol=2e-5, rtol=1e-4)
    assert_close(own, seen["decoder.0.self.weights"][:, 2], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("window", [None, 5])
def test_rows_that_come_and_go_see_what_they_see_alone(window: int | None) -> None:
    """Some rows see, one head or two, others do not; slots move, and the texts are those without seeing."""
    network: Any = make("lm", "model.positions=rotary")
    engine = native_of(network)
    texts = [([5, 6, 7], NAMES[:1]), ([9] * 19, ()), ([3], NAMES), ([8, 2], ()), ([11, 12, 4, 1], NAMES[:1])]
    rows, seen, loop = list[Row](), list[SeenRow | None](), TokenLoop(engine)
    for number, (prompt, names) in enumerate(texts):
        wanted = heads_to_see(network, engine, names, heads=1) if names else None
        seen.append(None if wanted is None else SeenRow(wanted))
        row = Row(prompt, Settings(max_tokens=11 + 3 * number, temperature=1.0, seed=number))
        if seen[-1] is not None:
            row.heads, row.on_seen = seen[-1].heads, seen[-1].add
            row.on_end = lambda ended: ended.see_rest()  # type: ignore[misc]
        rows.append(row)
        loop.add([row], engine.start(window=window))
        loop.step()
        loop.step()
    while loop.active:
        loop.step()
    for number, (row, own, (prompt, names)) in enumerate(zip(rows, seen, texts, strict=True)):
        settings = Settings(max_tokens=11 + 3 * number, temperature=1.0, seed=number)
        assert row.ids == generate_seeing(engine, engine.start(window=window), prompt, None, settings, None)
        if own is not None:
            for name, tensor in expected_of(network, row.ids, names, heads=1, window=window).items():
                assert_close(own.tensors()[name], tensor, atol=2e-5, rtol=1e-4)


def test_a_text_that_is_read_again_is_seen_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.look.seeing.PART", 4)
    network: Any = make("lm", "model.positions=alibi")
    engine, ids = native_of(network), [7, 5, 11, 3, 3, 8, 1, 0, 9, 2, 6]
    row = SeenRow(heads_to_see(network, engine, NAMES) or {})
    assert len(list(read_seeing(engine, engine.start(), ids, row))) == 3
    for name, tensor in expected_of(network, ids, NAMES).items():
        assert_close(row.tensors()[name], tensor, atol=2e-5, rtol=1e-4)


def test_a_head_may_be_named_twice() -> None:
    network: Any = make("lm", "model.positions=rotary")
    engine = native_of(network)
    row = SeenRow(heads_to_see(network, engine, NAMES[:1], heads=[1, 1, 0]) or {})
    ids = generate_seeing(engine, engine.start(), [7, 5], None, Settings(max_tokens=5), row)
    [found] = row.tensors().values()
    assert_close(found, expected_of(network, ids, NAMES[:1], heads=[1, 1, 0])[NAMES[0]], atol=2e-5, rtol=1e-4)


def test_a_text_that_repeats_itself_is_guessed_and_seen() -> None:
    """Tokens that were read ahead and not chosen are not seen."""
    network: Any = make("lm", "model.positions=rotary")
    engine, steps, row = native_of(network), list[int](), SeenRow({NAMES[0]: [SeenHead(1, 2)]})
    step = engine.step_seeing
    engine.step_seeing = lambda ids, *more, **how: (steps.append(ids.size(1)), step(ids, *more, **how))[1]  # type: ignore[method-assign, func-returns-value]
    prompt = [7, 5, 11, 3] * 5
    ids = generate_seeing(engine, engine.start(), prompt, None, Settings(max_tokens=31, temperature=0.3, seed=2), row)
    assert max(steps[1:]) > 1
    expected = expected_of(network, ids, NAMES[:1], heads=2)[NAMES[0]]
    assert_close(row.tensors()[NAMES[0]], expected, atol=2e-5, rtol=1e-4)


def test_what_no_engine_hands_out_is_left_to_torch() -> None:
    network: Any = make("lm")
    engine = native_of(network)
    assert heads_to_see(network, engine, ["decoder.0.self.weights", "decoder.0.hidden"]) is None
    assert heads_to_see(network, network, ["decoder.0.self.weights"]) is None
    with pytest.raises(ProbeError, match=r"decoder\.0\.self has no head 3; choose from 0 to 2"):
        heads_to_see(network, engine, ["decoder.0.self.weights"], heads=[3])
    with pytest.raises(ConfigError, match="there is no layer 2 with a head 0; both count from 0"):
        engine.step_seeing(torch.tensor([[1]]), engine.start(), [SeenHead(2, 0)])


# --- models ---


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "writer"
    make_run(folder, "lm", "char", CHARACTERS, "model.dim=96", "model.inner=64", "model.positions=rotary")
    return folder


@pytest.mark.parametrize("how", [{}, {"quantise": "q8", "engine": "exact"}, {"engine": "torch"}], ids=str)
def test_a_model_is_seen_while_it_generates(writer: Path, how: dict[str, Any]) -> None:
    model = clearhead.load(writer, **how)
    settings = {"max_tokens": 17, "temperature": 1.0, "seed": 4}
    seen = model.see("we are", "decoder.1.self.weights", heads=2, **settings)
    assert seen.text == model.generate("we are", **settings)
    assert len(seen.tokens) == 23
    network: Any = model.network
    if "quantise" in how:
        rounded = {
            name: quantise(each, "Q8_0").dequantise() if can_quantise(each) else each
            for name, each in network.state_dict().items()
        }
        network.load_state_dict(rounded)
    ids = [*model.tokenizer.encode("we are"), *model.tokenizer.encode(seen.text[6:])]
    expected = expected_of(network, ids, ("decoder.1.self.weights",), heads=2)["decoder.1.self.weights"]
    assert_close(seen.probes["decoder.1.self.weights"], expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("how", [{}, {"quantise": "q8"}, {"engine": "torch"}], ids=str)
def test_a_prompt_alone_is_seen(writer: Path, how: dict[str, Any]) -> None:
    model = clearhead.load(writer, **how)
    seen = model.see("we are", "decoder.*.self.weights", max_tokens=0)
    longer = model.see("we are", "decoder.*.self.weights", max_tokens=3, temperature=0.0)
    assert (seen.text, len(seen.tokens)) == ("we are", 6)
    for name, weights in seen.probes.items():
        assert_close(weights, longer.probes[name][:, :6, :6], atol=1e-6, rtol=1e-4)


def test_any_probe_can_be_asked_for(writer: Path) -> None:
    model = clearhead.load(writer)
    seen = model.see("we", "decoder.0.hidden", max_tokens=3, temperature=0.0)
    assert seen.probes["decoder.0.hidden"].shape == (5, 96)
    with pytest.raises(ConfigError, match="beam_width=2 is decided at the end; only beam_width=1 can be seen"):
        model.see("we", "decoder.0.self.weights", temperature=0.0, beam_width=2)


def test_a_quantised_model_is_not_expanded(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network itself never runs."""
    model = clearhead.load(writer, quantise="q4")
    model.engines.stepper()
    monkeypatch.setattr(type(model.outline), "step", lambda *_: pytest.fail("the network was called"))
    seen = model.see("we", "decoder.*.self.weights", max_tokens=5, seed=1)
    assert {name: tuple(tensor.shape) for name, tensor in seen.probes.items()} == {
        f"decoder.{layer}.self.weights": (3, len(seen.tokens), len(seen.tokens)) for layer in range(2)
    }
