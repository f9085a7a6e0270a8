"""Encoders as native code give what the network gives, for texts of unequal length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY
from torch import Tensor

from clearhead.engines.engine import Engines
from clearhead.engines.native import library as native
from clearhead.engines.native.encoder import MANY, NativeEncoder
from clearhead.run import Sizes
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import build_network

pytestmark = pytest.mark.skipif(native.load_library() is None, reason=str(native.library_problem()))

LENGTHS = (11, 1, 7, 2, 5)


def padded(*lengths: int) -> Tensor:
    """Texts (B, T) without the token 0, which is padding."""
    draw, longest = torch.Generator().manual_seed(sum(lengths)), max(lengths)
    rows = [torch.randint(1, VOCABULARY, (length,), generator=draw) for length in lengths]
    return torch.stack([torch.nn.functional.pad(row, (0, longest - len(row))) for row in rows])


def labelled(task: str, *parts: str) -> Any:
    """A network with five labels, or one vector."""
    torch.manual_seed(3)
    small = ("model.dim=12", "model.heads=3", "model.layers=2", "model.inner=29")
    sizes = Sizes(vocabulary=VOCABULARY, classes=5)
    network = build_network(override_config(default_config(task), [*small, *parts]), sizes).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return network


@torch.inference_mode()
def assert_equal(network: Any, ids: Tensor, near: float = 1e-5) -> None:
    engines = Engines(network)
    found, expected = engines.apply(ids), network(ids)
    assert engines._encoder is not None
    real, states = network.encoder.real(ids), network.encoder(ids)
    if found.dim() == 3:  # labels of padding are never read
        found, expected = found[real], expected[real]
    assert torch.allclose(found, expected, atol=near * float(expected.abs().max()))
    assert torch.allclose(engines.encode(ids)[real], states[real], atol=near * float(states.abs().max()))


@pytest.mark.parametrize("parts", [each for each in PARTS if "model.window=3" not in each], ids=" ".join)
@pytest.mark.parametrize("task", ["classify", "embed", "tag"])
def test_every_shape_is_that_of_the_network(task: str, parts: tuple[str, ...]) -> None:
    parts = tuple(each for each in parts if "tied" not in each)
    assert_equal(labelled(task, *parts), padded(*LENGTHS))


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_position_scheme(positions: str) -> None:
    assert_equal(labelled("classify", f"model.positions={positions}"), padded(*LENGTHS))


@pytest.mark.parametrize(
    "parts",
    [
        ("model.causal=true", "model.pool=last"),
        ("model.pool=mean", "model.ngrams=3"),
        ("model.pool_transform=tanh",),
        ("model.embedding_norm=true", "model.segments=2", "model.embedding_scale=1"),
    ],
    ids=" ".join,
)
def test_what_classifiers_add(parts: tuple[str, ...]) -> None:
    assert_equal(labelled("classify", *parts), padded(*LENGTHS))


def test_words_with_features() -> None:
    network, ids = labelled("classify", "model.features=13"), padded(*LENGTHS)
    features = torch.randint(0, 13, (*ids.shape, 4), generator=torch.Generator().manual_seed(1))
    assert_equal(network, torch.cat((ids.unsqueeze(-1), features), dim=-1))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 29), min_size=1, max_size=40), st.sampled_from([1, 2]))
def test_any_lengths_and_threads(lengths: list[int], threads: int) -> None:
    network, ids = labelled("embed"), padded(*lengths)
    library: Any = native.load_library()
    encoder = NativeEncoder(network.encoder, library)
    encoder.threads.choices = [threads]
    real, (found, expected) = ids != 0, (each(ids) for each in (encoder, network.encoder))
    assert torch.allclose(found[real], expected[real], atol=1e-5 * float(expected.detach().abs().max()))
    assert not found[~real].any()


def test_more_tokens_than_are_computed_together() -> None:
    lengths = [29] * (2 * 512 // 29 + 1)
    assert_equal(labelled("embed", "model.positions=rotary"), padded(*lengths))
    assert_equal(labelled("embed", "model.positions=rotary"), padded(519, 3))


@pytest.mark.parametrize("positions", ["rotary", "t5"])
@torch.inference_mode()
def test_a_text_has_the_same_vectors_in_every_part_and_thread(positions: str) -> None:
    network = labelled("embed", f"model.positions={positions}")
    library: Any = native.load_library()
    encoder, lengths = NativeEncoder(network.encoder, library), [1 + 7 * i % 31 for i in range(173)]
    batches = [padded(*lengths[first : first + 59]) for first in range(0, len(lengths), 59)]
    assert sum(lengths) >= MANY
    found = {}
    for threads in (1, 2, 3):
        encoder.threads.choices = [threads]
        found[threads] = encoder.encode_all(batches)
    for ids, *states in zip(batches, *found.values(), strict=True):
        for each in states:
            assert torch.equal(each, states[0])
        assert torch.equal(encoder(ids[:1]), states[0][:1])
        expected = network.encoder(ids)[ids != 0]
        assert torch.allclose(states[0][ids != 0], expected, atol=1e-5 * float(expected.abs().max()))


@torch.inference_mode()
def test_batches_are_applied_one_after_the_other_or_together(monkeypatch: pytest.MonkeyPatch) -> None:
    network = labelled("classify")
    batches = [padded(*lengths) for lengths in ((3, 11), (2,), (7, 5, 1), (13, 13))]
    engines = Engines(network)
    for most in (1, 20, 8192):
        monkeypatch.setattr("clearhead.engines.engine.MOST_TOKENS", most)
        for found, ids in zip(engines.apply_all(iter(batches)), batches, strict=True):
            assert torch.equal(found, engines.apply(ids))
    assert list(engines.apply_all([])) == []
    by_torch = Engines(network, "torch").apply_all(batches)
    assert all(torch.equal(found, network(ids)) for found, ids in zip(by_torch, batches, strict=True))


@torch.inference_mode()
def test_padding_between_tokens_and_empty_texts_are_left_to_torch() -> None:
    network = labelled("embed")
    for ids in (torch.tensor([[5, 0, 7, 9]]), torch.tensor([[5, 6], [0, 0]])):
        assert torch.equal(Engines(network).apply(ids), network(ids))


@torch.inference_mode()
def test_a_changed_network_runs_by_itself() -> None:
    network, ids = labelled("classify"), padded(*LENGTHS)
    engines = Engines(network)
    before = engines.apply(ids)
    block = network.encoder.stack.blocks[0]
    with block.register_forward_hook(lambda _module, _inputs, output: torch.zeros_like(output)):
        assert torch.equal(engines.apply(ids), network(ids))
    assert torch.equal(engines.apply(ids), before)
    assert Engines(network, "torch")._text_encoder(network) is None


@torch.inference_mode()
def test_bytes_are_near() -> None:
    network, ids = labelled("embed", "model.placement=before"), padded(*LENGTHS)
    found, expected = Engines(network, int8=True).apply(ids), network(ids)
    assert not torch.equal(found, expected)
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.98


def test_a_window_and_custom_scores_are_left_to_torch() -> None:
    assert NativeEncoder.unsupported_features(labelled("classify", "model.window=3").encoder) == ["a window"]
    assert "a custom attention score or normalisation" in NativeEncoder.unsupported_features(
        labelled("classify", "model.score=additive").encoder
    )
