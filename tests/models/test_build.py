"""One model for each task and architecture, the same for the same seed."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.config import AnyConfig
from clearhead.errors import ConfigError
from clearhead.models import build
from clearhead.models.build import Model, TransformerDecoder, initialise, without_initialisation
from clearhead.models.classifier import Classifier, Embedder, Tagger
from clearhead.models.config import ModelConfig
from clearhead.models.lm import LanguageModel, MaskedLanguageModel
from clearhead.models.rnn import RnnCaptioner, RnnLanguageModel, RnnSeq2Seq
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.vision import CrossCaptioner, SequenceCaptioner, VisionTransformer
from clearhead.models.word2vec import SkipGram
from clearhead.nn import (
    FEED_FORWARDS,
    NORMS,
    PLACEMENTS,
    POSITIONS,
    SCORES,
    Fused,
    Recurrent,
    WindowCache,
    padding_mask,
)
from clearhead.run import Sizes
from clearhead.tasks import TASKS, default_config, override_config
from clearhead.tasks.base.network import build_network

from .setting import DIM, MODELS, PAD, RNN, SIZES, VARIATIONS, B, System, T, V, sentences

DATA = Sizes(vocabulary=97, classes=7, channels=3, height=16, width=24, pad=0)
CASES: list[tuple[str, list[str], type[nn.Module]]] = [
    ("translate", [], Seq2Seq),
    ("translate", ["model.architecture=rnn"], RnnSeq2Seq),
    ("lm", [], LanguageModel),
    ("lm", ["model.objective=masked"], MaskedLanguageModel),
    ("masked_lm", [], MaskedLanguageModel),
    ("lm", ["model.architecture=rnn"], RnnLanguageModel),
    ("classify", [], Classifier),
    ("tag", [], Tagger),
    ("vision", [], VisionTransformer),
    ("caption", [], CrossCaptioner),
    ("caption", ["model.architecture=sequence"], SequenceCaptioner),
    ("caption", ["model.architecture=rnn"], RnnCaptioner),
    ("words", [], SkipGram),
    ("embed", [], Embedder),
]
every_case = pytest.mark.parametrize(("task", "settings", "kind"), CASES, ids=lambda case: str(case))


def configured(task: str, settings: list[str], size: str = "tiny") -> AnyConfig:
    return override_config(default_config(task, size), settings)


@every_case
def test_the_right_model(task: str, settings: list[str], kind: type[nn.Module]) -> None:
    assert type(build_network(configured(task, settings), DATA)) is kind


def test_every_task_is_here() -> None:
    assert {task for task, _, _ in CASES} == set(TASKS.builtin())


@every_case
def test_the_same_seed_gives_the_same_weights(task: str, settings: list[str], kind: type[nn.Module]) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build_network(configured(task, settings), DATA).state_dict()

    one, same, other = weights(5), weights(5), weights(6)
    assert all(one[name].equal(same[name]) for name in one)
    assert any(not one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
@every_case
def test_every_size_can_be_built(task: str, settings: list[str], kind: type[nn.Module], size: str) -> None:
    with torch.device("meta"):
        assert type(build_network(configured(task, settings, size), DATA)) is kind


def test_a_recurrent_network_cannot_fill_in_masked_tokens() -> None:
    config = configured("lm", ["model.architecture=rnn", "model.objective=masked"])
    with pytest.raises(ConfigError, match=r"choose the task lm or model\.architecture=transformer"):
        build_network(config, DATA)


@pytest.mark.parametrize("task", ["vision", "caption"])
def test_patches_that_do_not_cover_the_images_are_refused(task: str) -> None:
    with pytest.raises(ConfigError, match=r"patch=5 does not divide images of 16 × 24; choose another model\.patch"):
        build_network(configured(task, ["model.patch=5"]), DATA)


# --- what models say about themselves ---


STACKS = [
    (System("translate"), ["encoder", "decoder"], False, True),
    (System("translate", RNN), ["encoder", "decoder"], False, False),
    (System("lm"), ["decoder"], True, True),
    (System("lm", RNN), ["decoder"], True, False),
    (System("masked_lm"), ["encoder"], False, False),
    (System("classify"), ["encoder"], False, False),
    (System("tag"), ["encoder"], False, False),
    (System("vision"), ["encoder"], False, False),
    (System("caption", {"architecture": "cross"}), ["encoder", "decoder"], False, True),
    (System("caption", {"architecture": "sequence"}), ["decoder"], False, False),
    (System("caption", RNN), ["encoder", "decoder"], False, False),
]


@pytest.mark.parametrize(("system", "stacks", "causal_lm", "decodes"), STACKS, ids=str)
def test_a_model_says_what_it_is(system: System, stacks: list[str], causal_lm: bool, decodes: bool) -> None:
    model = system.build()
    assert isinstance(model, Model)
    assert list(model.stacks()) == stacks
    parts: set[nn.Module] = set(model.modules())
    assert set(model.stacks().values()) <= parts
    assert model.is_causal_lm == causal_lm
    assert isinstance(model, TransformerDecoder) == decodes
    if isinstance(model, TransformerDecoder):
        assert model.decoder_stack is model.stacks()["decoder"]
        assert model.decoder_input in parts


# --- every name a configuration may use gives a model that runs, learns, and decodes as it was trained ---


BASE = {"dim": 24, "heads": 4, "layers": 2, "dropout": 0.0, "max_length": 32, "placement": "before"}
PART_NAMES: list[dict[str, Any]] = [
    *({"score": name} for name in SCORES.builtin()),
    *({"positions": name} for name in POSITIONS.builtin()),
    *({"norm": name, "placement": place} for name in NORMS.builtin() for place in PLACEMENTS.builtin()),
    *({"feed_forward": name} for name in FEED_FORWARDS.builtin()),
    {"hard": True},
    {"window": 3},
    {"kv_heads": 2, "positions": "rotary"},
    {"key_dim": 6, "value_dim": 10, "positions": "rotary"},
    {"positions": "sinusoidal", "position_concat": True},
    {"positions": "learned", "position_concat": True},
    {"bias": False, "feed_forward": "swiglu", "norm": "rms"},
]


def name_of(variation: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in variation.items())


def config_with(variation: dict[str, Any]) -> ModelConfig:
    return ModelConfig(**{**BASE, **variation})


@pytest.mark.parametrize("variation", PART_NAMES, ids=name_of)
def test_every_parameter_of_an_encoder_decoder_learns(variation: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config = config_with(variation)
    source, target = torch.randint(1, 11, (3, 7)), torch.randint(1, 11, (3, 5))
    read, write = build.TokenInput(config, 11), build.TokenInput(config, 11)
    encoder, decoder = build.encoder(config), build.decoder(config)
    memory = encoder(read(source), mask=build.self_mask(config, causal=False))
    out = decoder(write(target), memory, mask=build.self_mask(config, causal=True))
    assert out.shape == (3, 5, 24)
    (out * torch.randn(3, 5, 24)).sum().backward()
    parts = torch.nn.ModuleList([read, write, encoder, decoder])
    still = [name for name, p in parts.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert still == []


@pytest.mark.parametrize("variation", [v for v in PART_NAMES if v.get("norm") != "batch"], ids=name_of)
def test_a_decoder_only_model_reads_step_by_step_what_it_reads_at_once(variation: dict[str, Any]) -> None:
    torch.manual_seed(2)
    config = config_with(variation)
    ids = torch.randint(1, 11, (2, 9))
    tokens = build.TokenInput(config, 11).double().eval()
    stack = build.encoder(config, causal=True).double().eval()
    mask = build.self_mask(config, causal=True)
    cache = stack.make_cache(lambda: build.make_cache(config))
    whole = stack(tokens(ids), mask=mask)
    steps = [stack(tokens(ids[:, i : i + 1], start=i), mask=mask, cache=cache) for i in range(9)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_the_default_takes_the_fused_kernel_and_a_window_its_own_cache() -> None:
    assert isinstance(build.multi_head(config_with({})).kernel, Fused)
    assert isinstance(build.make_cache(config_with({"window": 5})), WindowCache)


def test_a_stack_of_t5_positions_shares_one_table() -> None:
    names = [name for name, _ in build.encoder(config_with({"positions": "t5"})).named_parameters()]
    assert sum("relative.table" in name for name in names) == 1


def test_padding_changes_nothing_for_the_rest() -> None:
    torch.manual_seed(3)
    config = config_with({"positions": "sinusoidal"})
    tokens, stack = build.TokenInput(config, 11, pad=0).double().eval(), build.encoder(config).double().eval()
    ids = torch.randint(1, 11, (2, 5))
    padded = torch.cat((ids, torch.zeros(2, 3, dtype=torch.long)), dim=1)
    mask = build.self_mask(config, causal=False) & padding_mask(padded)
    torch.testing.assert_close(stack(tokens(padded), mask=mask)[:, :5], stack(tokens(ids)))


# --- the weights before training: of one size at any width and depth, and never those that start themselves ---


ROTARY = {"positions": "rotary", "heads": 11}


@pytest.mark.parametrize("system", [System("translate"), System("lm"), System("caption"), System("lm", RNN)], ids=str)
def test_what_starts_itself_is_left_alone(system: System) -> None:
    model = system.build()
    before = copy.deepcopy(model)
    initialise(model)
    for part, was in zip(model.modules(), before.modules(), strict=True):
        if isinstance(part, nn.Embedding | nn.LayerNorm):
            assert part.weight.equal(was.weight)
        elif isinstance(part, nn.Linear) and part is not model.output.linear:
            assert not part.weight.equal(was.weight)


@pytest.mark.parametrize(
    "system",
    [System("translate", ROTARY), System("lm", ROTARY), *(each for each in MODELS if "cell" in each.settings)],
    ids=str,
)
def test_an_untrained_model_guesses(system: System) -> None:
    """Where no positions are added to the tokens, nothing makes one answer likelier than another."""
    logits, anything = system.build()(*system.sources(), sentences(B, T)), sentences(B, T)
    assert F.cross_entropy(logits.flatten(0, 1), anything.flatten()).item() == pytest.approx(math.log(V), abs=0.5)


@pytest.mark.parametrize(
    ("settings", "small"),
    [(ROTARY, True), ({"positions": "none"}, True), ({"positions": "sinusoidal"}, False), (RNN, False)],
    ids=str,
)
def test_token_vectors_are_small_where_nothing_is_added_to_them(settings: dict[str, str], small: bool) -> None:
    torch.manual_seed(0)
    config = TASKS["lm"].config_type().model_validate({"model": {"dim": 66, "layers": 1, "heads": 2, **settings}})
    model = build_network(config, Sizes(vocabulary=997))
    assert model.tokens.tokens.table.weight.std().item() == pytest.approx(0.02 if small else 66**-0.5, rel=0.02)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_the_row_of_padding_starts_at_zero(positions: str) -> None:
    model = System("translate", {"positions": positions, "heads": 11}).build()
    assert model.source.tokens.table.weight[PAD].eq(0).all()


def test_linear_maps_keep_the_size_of_their_input() -> None:
    torch.manual_seed(0)
    linear = initialise(nn.Linear(300, 500))
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / 800), rel=0.01)
    assert linear.bias.eq(0).all()


@pytest.mark.parametrize(("stack", "sums"), [(build.encoder, 2), (build.decoder, 3)], ids=["encoder", "decoder"])
@pytest.mark.parametrize("feed_forward", ["relu", "swiglu"])
def test_ends_of_residuals_shrink_with_the_depth(stack, sums: int, feed_forward: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(dim=64, heads=2, layers=7, feed_forward=feed_forward)
    model = initialise(stack(config))
    shrunk = 1 / math.sqrt(sums * 7)
    for block in model.blocks:
        ends = [(block.self_attention.output, 64), (block.feed_forward.outer, 4 * 64)]
        ends += [(block.cross_attention.output, 64)] if sums == 3 else []
        for end, inputs in ends:
            assert end.weight.std().item() == pytest.approx(shrunk * math.sqrt(2 / (inputs + 64)), rel=0.05)
        assert block.self_attention.value.weight.std().item() == pytest.approx(math.sqrt(1 / 64), rel=0.05)


@pytest.mark.parametrize(("cell", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_matrices_are_orthogonal(cell: str, gates: int) -> None:
    network = initialise(Recurrent(cell, 13, DIM, layers=2, both_ways=True)).network
    for name, weight in network.named_parameters():
        if name.startswith("weight_hh"):
            assert weight.shape == (gates * DIM, DIM)
            for gate in weight.chunk(gates):
                assert_close(gate @ gate.T, torch.eye(DIM), rtol=0, atol=1e-5)


def test_an_lstm_begins_by_remembering() -> None:
    network = initialise(Recurrent("lstm", 13, DIM)).network
    forget = torch.cat((torch.zeros(DIM), torch.ones(DIM), torch.zeros(2 * DIM)))  # torch: input, forget, cell, output
    assert (network.bias_ih_l0 + network.bias_hh_l0).equal(forget)


# --- models whose weights are loaded ---

ALL = [*MODELS, *VARIATIONS, System("masked_lm"), System("classify"), System("tag"), System("vision")]


@pytest.mark.parametrize("system", ALL, ids=str)
def test_a_model_whose_weights_are_loaded_draws_none(system: System) -> None:
    trained = system.build(seed=1).eval()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    with without_initialisation():
        loaded = build_network(system.config(), SIZES).eval()
    assert torch.get_rng_state().equal(before)
    for name, buffer in loaded.named_buffers():
        if name not in loaded.state_dict():  # sines, slopes: computed, not loaded
            assert buffer.equal(dict(trained.named_buffers())[name])
    assert loaded.load_state_dict(trained.state_dict()).missing_keys == []
    assert [name for name, _ in loaded.named_modules()] == [name for name, _ in trained.named_modules()]
    for name, tensor in trained.state_dict().items():
        assert loaded.state_dict()[name].equal(tensor)


def test_word_vectors_whose_weights_are_loaded_draw_none() -> None:
    before = torch.get_rng_state()
    with without_initialisation():
        build_network(TASKS["words"].config_type().model_validate({"model": {"dim": 5}}), Sizes(vocabulary=V))
    assert torch.get_rng_state().equal(before)


def test_afterwards_weights_are_drawn_again() -> None:
    with pytest.raises(ZeroDivisionError), without_initialisation():
        raise ZeroDivisionError
    system = System("translate")
    assert system.build(seed=3).output.linear.weight.equal(system.build(seed=3).output.linear.weight)
    assert not system.build(seed=3).output.linear.weight.equal(system.build(seed=4).output.linear.weight)


def test_another_thread_draws_weights_meanwhile() -> None:
    torch.manual_seed(5)
    expected = nn.Linear(3, 7).weight
    torch.manual_seed(5)
    with without_initialisation(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(nn.Linear, 3, 7).result().weight.equal(expected)
