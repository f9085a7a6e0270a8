"""Changes of single numbers: what is set is what the probes see, the rest follows, and nothing stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.decode import Prompts, Settings, generate
from clearhead.errors import ProbeError
from clearhead.look.build import run_probes
from clearhead.look.changes import (
    AnyChange,
    BlockChange,
    HeadChange,
    MaskChange,
    PatchChange,
    PlaceChange,
    PositionsChange,
    SeenChange,
    Uncached,
    WeightChange,
    changed,
    pair_seen,
    token_moved,
    token_patched,
    weight_set,
)
from clearhead.look.graph import model_graph

from .networks import small_network
from .test_graph import made
from .views.test_xray import small_look

S, T, V, HEADS, DIM = 7, 5, 13, 3, 12
POSITIONS = ["sinusoidal", "learned", "rotary", "alibi", "t5"]


def inputs(seed: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randint(1, V, (1, S)), torch.randint(1, V, (1, T))


def seen(model: nn.Module, name: str) -> Tensor:
    return run_probes(model, inputs(), name)[name][0]


# --- one weight ---


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("weight", [0.0, 0.37, 1.0])
def test_a_weight_is_what_was_set_and_its_row_keeps_its_proportions(positions: str, weight: float) -> None:
    model = small_network(positions=positions)
    before = seen(model, "decoder.1.cross.weights")
    with weight_set(model, "decoder.1.cross", 2, 3, 1, weight):
        after = seen(model, "decoder.1.cross.weights")
        mixed, value = seen(model, "decoder.1.cross.mixed"), seen(model, "decoder.1.cross.value")
        logits = model(*inputs())
    expected = before.clone()
    expected[2, 3] *= (1 - weight) / (1 - before[2, 3, 1])
    expected[2, 3, 1] = weight
    assert_close(after, expected, rtol=1e-5, atol=1e-6)
    assert_close(mixed, after @ value, rtol=1e-5, atol=1e-6)  # the output follows
    assert not torch.allclose(logits, model(*inputs()))
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_weights_set_one_after_the_other_keep_the_proportions_of_the_row_before() -> None:
    model = small_network()
    with weight_set(model, "encoder.0.self", 0, 4, 2, 0.5):
        once = seen(model, "encoder.0.self.weights")[0, 4]
        with weight_set(model, "encoder.0.self", 0, 4, 5, 0.25):
            twice = seen(model, "encoder.0.self.weights")[0, 4]
    expected = once * (1 - 0.25) / (1 - once[5])
    expected[5] = 0.25
    assert_close(twice, expected, rtol=1e-5, atol=1e-6)


def test_a_weight_that_cannot_be_set_is_one_sentence() -> None:
    model = small_network()
    cases = {
        (2, 1, 3, 0.5): r"token 1 of decoder\.1\.self cannot see key 3: the mask hides it",
        (2, 0, 0, 0.5): r"token 0 of decoder\.1\.self sees one key alone, and the weights of a row sum to 1",
    }
    for (head, query, key, weight), sentence in cases.items():
        with pytest.raises(ProbeError, match=sentence), weight_set(model, "decoder.1.self", head, query, key, weight):
            model(*inputs())
    with pytest.raises(ProbeError, match=r"decoder\.1\.self has no head 3; choose from 0 to 2"):
        weight_set(model, "decoder.1.self", 3, 0, 0, 1.0)
    with pytest.raises(
        ProbeError, match=r"'decoder\.\*\.self' is not an attention layer of this model; it has encoder"
    ):
        HeadChange(layer="decoder.*.self", head=0, factor=0).open(model, {})
    hard = small_network(hard=True)
    with pytest.raises(ProbeError, match="are not those of a softmax"):
        weight_set(hard, "decoder.1.self", 0, 2, 1, 0.5)


def test_in_a_text_that_ends_before_the_query_nothing_changes() -> None:
    model, (source, target) = small_network(), inputs()
    before = model(source, target[:, :3])
    set_weight = weight_set(model, "decoder.0.self", 1, 4, 2, 0.9)
    with set_weight, pair_seen(model, "decoder.0.self", 4, 2, False), pair_seen(model, "decoder.0.self", 1, 3, True):
        assert_close(model(source, target[:, :3]), before, rtol=0, atol=0)


# --- mask, place, vector ---


def test_one_pair_of_the_mask_is_hidden_or_shown() -> None:
    model = small_network()
    plain = seen(model, "decoder.0.self.visible")
    for query, key, shown in ((3, 1, False), (1, 3, True)):
        with pair_seen(model, "decoder.0.self", query, key, shown):
            found = seen(model, "decoder.0.self.visible")
            weights = seen(model, "decoder.0.self.weights")
        expected = plain.clone()
        expected[query, key] = shown
        assert torch.equal(found, expected)
        assert bool((weights[:, query, key] > 0).all()) is shown


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_token_at_the_place_of_another_has_its_position(positions: str) -> None:
    """Two equal tokens: the one that is moved to the place of the other gets the same vectors."""
    model, (source, target) = small_network(positions=positions), inputs()
    source[0, 5] = source[0, 2]
    names = ["encoder.0.self.query", "encoder.0.self.scores", "decoder.embedded"]
    before = run_probes(model, (source, target), *names)
    with token_moved(model, "encoder", 5, 2):
        after = run_probes(model, (source, target), *names)
    assert_close(after["encoder.0.self.query"][0, :, 5], after["encoder.0.self.query"][0, :, 2], rtol=0, atol=0)
    assert_close(after["encoder.0.self.scores"][0, :, 5], after["encoder.0.self.scores"][0, :, 2], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(after["encoder.0.self.scores"], before["encoder.0.self.scores"])
    assert_close(after["decoder.embedded"], before["decoder.embedded"], rtol=0, atol=0)  # the other stack stays
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_a_vector_of_one_token_is_replaced() -> None:
    model, vector = small_network(), torch.arange(DIM, dtype=torch.float)
    with token_patched(model, "encoder.0.hidden", 3, vector):
        found = seen(model, "encoder.0.hidden")
    expected = seen(model, "encoder.0.hidden")
    expected[3] = vector
    assert_close(found, expected, rtol=0, atol=0)
    with pytest.raises(ProbeError, match=r"'encoder\.0\.self\.query' is not the input or output of a block"):
        token_patched(model, "encoder.0.self.query", 3, vector)
    short = token_patched(model, "encoder.0.hidden", 3, vector[:5])
    with pytest.raises(ProbeError, match="a vector of 5 numbers does not fit a state of 12"), short:
        model(*inputs())


# --- all of them in the graph ---

EVERY: dict[str, Any] = {
    "weight": WeightChange(layer="decoder.1.cross", head=2, query=2, key=1, weight=0.8),
    "head": HeadChange(layer="encoder.1.self", head=1, factor=0.5),
    "block": BlockChange(block="encoder.0"),
    "hidden": SeenChange(layer="decoder.0.self", query=2, key=1, seen=False),
    "mask": MaskChange(layer="decoder.1.self"),
    "positions": PositionsChange(),
    "place": PlaceChange(stack="encoder", token=2, place=0),
    "patch": PatchChange(state="decoder.0.hidden", token=1, donor="", taken=0),
    "patched embedding": PatchChange(state="encoder.embedded", token=1, donor="", taken=0),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("settings", [{"positions": "rotary"}, {"placement": "after"}, {"parallel": True}], ids=str)
def test_every_number_of_a_changed_model_follows_from_its_inputs_and_the_change(
    name: str, settings: dict[str, Any]
) -> None:
    change = EVERY[name]
    vectors = {change: torch.linspace(-1, 1, DIM)}
    original = small_look(**settings)
    with changed(original.require_network(), [change], vectors):
        look = small_look(network=original.network, **settings)
        graph = model_graph(look, changed=True)
    differs = False
    for id, part in graph.parts.items():
        assert torch.equal(part.value.isnan(), torch.zeros_like(part.value, dtype=torch.bool)), id
        if (expected := made(graph, part)) is not None:
            expected = expected.float() + part.details.get("changed", 0)
            assert_close(part.value, expected, rtol=1e-3, atol=1e-4, msg=lambda text, id=id: f"{id}: {text}")
    assert look.logits is not None
    assert original.logits is not None
    differs = not torch.allclose(look.logits, original.logits, atol=1e-6)
    assert differs
    assert_close(small_look(network=original.network, **settings).logits, original.logits, rtol=0, atol=0)


def test_changes_are_lines_of_a_link() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(list[AnyChange])
    assert adapter.validate_json(adapter.dump_json(list(EVERY.values()))) == list(EVERY.values())


# --- generation by whole passes ---


@pytest.mark.parametrize("beam_width", [1, 3])
def test_whole_passes_write_what_the_cache_writes(beam_width: int) -> None:
    model: Any = small_network()
    source, settings = inputs()[0], Settings(max_tokens=6, beam_width=beam_width, return_logprobs=True)
    with torch.inference_mode():
        [[expected, *_]] = generate(model, model.start(source), Prompts([[2]], 3), settings)
    stepper = Uncached(model, (source,))
    [[found, *_]] = generate(stepper, stepper.start(), Prompts([[2]], 3), settings)
    assert found.ids == expected.ids
    assert found.score == pytest.approx(expected.score, rel=1e-5)
