"""Steps with quantised matrices equal those of the dequantised model: every format, shape and variant."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make
from tests.nn.test_quantised import random_rows
from torch import Tensor

from clearhead.decode import Prompts, Settings, generate
from clearhead.engines.engine import Engines
from clearhead.engines.native import library as native
from clearhead.engines.native.engine import CACHE_TYPES
from clearhead.engines.native.lm import REFUSALS, CMatrix, LmEngine, SeenHead
from clearhead.engines.native.memory import WeightMemory
from clearhead.errors import ConfigError, ShapeError, TextError
from clearhead.nn.quantised import FORMATS, Quantised, quantise

pytestmark = pytest.mark.skipif(native.load_library() is None, reason=str(native.library_problem()))

MORE_PARTS: tuple[tuple[str, ...], ...] = (
    ("model.head_norm=rms", "model.attention_bias=qkv"),
    ("model.parallel=true", "model.placement=before"),
    ("model.positions=rotary", "model.rotary_dim=2"),
    ("model.output_cap=5", "model.score_cap=3"),
    ("model.feed_forward=geglu_tanh", "model.layer_windows=2,5", "model.local_base=100", "model.positions=rotary"),
    ("model.feed_forward=quick_gelu", "model.dim=45", "model.key_dim=20", "model.value_dim=70"),
)


BLOCKS = (
    "model.dim=64",
    "model.heads=4",
    "model.kv_heads=2",
    "model.inner=96",
    "model.norm=rms",
    "model.placement=before",
)
LLAMA = (*BLOCKS, "model.feed_forward=swiglu", "model.positions=rotary", "model.bias=false")


def variants() -> list[str]:
    """Those that this processor can run."""
    code = native._code(native.FOLDER / f"libclearhead{native.SUFFIX}")
    if isinstance(code, str):
        return []
    best = native._text(code.clearhead_best_variant)
    return [name for name in native.VARIANTS if hasattr(code, f"clearhead_step_{name}")][
        : native.VARIANTS.index(best) + 1
    ]


@pytest.fixture(params=variants())
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CLEARHEAD_CPU", request.param)
    return native.load_library()


def engine_of(network: Any, library: Any, matrices: Mapping[str, Quantised], threads: int = 1, **how: Any) -> LmEngine:
    engine = LmEngine(network, library, matrices, **how)
    engine.threads.choices = [threads]
    return engine


def steps(model: Any, ids: Tensor, *lengths: int) -> Tensor:
    """The logits of all tokens, read in parts of these lengths."""
    state, parts = model.start(), []
    with torch.inference_mode():
        for part in ids.split(list(lengths), dim=1):
            logits, state = model.step(part, state)
            parts.append(logits)
    return torch.cat(parts, dim=1)


# --- one matrix ---


def packed(library: Any, blocks: Quantised) -> tuple[CMatrix, Tensor]:
    (outputs, inputs), code = blocks.shape, FORMATS[blocks.format].code
    kind = library.clearhead_lm_kind(code)
    library.clearhead_lm_panel_bytes.restype = ctypes.c_int64
    stride = library.clearhead_lm_panel_bytes(kind, inputs)
    panels = WeightMemory().zeros(-(-outputs // 16) * stride)
    library.clearhead_lm_pack(
        *(ctypes.c_void_p(blocks.rows.data_ptr()), ctypes.c_int64(blocks.rows.stride(0)), code, outputs, inputs),
        *(ctypes.c_void_p(panels.data_ptr()), 2),
    )
    return CMatrix(panels.data_ptr(), None, stride, inputs, outputs, kind), panels


def product(library: Any, matrix: CMatrix, x: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
    """The product, and the vectors that were multiplied: x itself, or what its bytes stand for."""
    y = torch.empty(len(x), matrix.outputs)
    room, scales = torch.zeros(x.shape, dtype=torch.int8), torch.zeros(len(x), x.size(1) // 32, 5)
    bytes_of = [None, None] if exact else [ctypes.c_void_p(each.data_ptr()) for each in (room, scales)]
    addresses = (ctypes.c_void_p(each.data_ptr()) for each in (x, y))
    library.clearhead_lm_product(ctypes.byref(matrix), next(addresses), *bytes_of, next(addresses), len(x))
    rounded = room.double().unflatten(1, (-1, 32)) * scales[..., :1].double()
    return y, x.double() if exact else rounded.flatten(1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_product_is_that_of_the_dequantised_matrix(format: str, library: Any) -> None:
    @settings(max_examples=6, deadline=None)
    @given(st.integers(1, 37), st.integers(1, 3), st.integers(1, 29), st.integers(0, 2**16))
    def check(outputs: int, blocks: int, count: int, seed: int) -> None:
        stored = Quantised(format, random_rows(format, outputs, blocks, seed))
        weight = stored.dequantise().double()
        matrix, _panels = packed(library, stored)
        x = torch.randn(count, stored.shape[1], generator=torch.Generator().manual_seed(seed))
        size = x.double().abs() @ weight.abs().T + 1e-30  # what rounding errors are measured by
        for exact in (True, False):
            y, multiplied = product(library, matrix, x, exact)
            assert ((y.double() - multiplied @ weight.T).abs() / size).max() < 2e-6
        # Bytes are off by half a unit at most, and a unit is the largest of 32 numbers / 127.
        unit = x.double().unflatten(1, (-1, 32)).abs().amax(-1).repeat_interleave(32, dim=1) / 127
        assert ((multiplied - x.double()).abs() <= 0.5001 * unit + 1e-12).all()

    check()


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_is_expanded_bit_for_bit(format: str, library: Any) -> None:
    stored = Quantised(format, random_rows(format, 19, 2))
    matrix, _panels = packed(library, stored)
    rows = torch.empty(stored.shape)
    for number, row in enumerate(rows):
        library.clearhead_lm_row(ctypes.byref(matrix), number, ctypes.c_void_p(row.data_ptr()))
    assert torch.equal(rows, stored.dequantise())


# --- whole models ---


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("parts", [*PARTS, *MORE_PARTS], ids=" ".join)
def test_every_shape_without_rounding(parts: tuple[str, ...], threads: int) -> None:
    network = make("lm", "model.positions=rotary", *parts)
    engine = engine_of(network, native.load_library(), {}, threads, exact=True)
    ids = torch.randint(0, VOCABULARY, (3, 23), generator=torch.Generator().manual_seed(1))
    expected = steps(network, ids, 17, 1, 1, 4)
    assert torch.allclose(steps(engine, ids, 17, 1, 1, 4), expected, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_position_scheme_in_every_variant(positions: str, library: Any) -> None:
    network = make("lm", f"model.positions={positions}", "model.kv_heads=1")
    ids = torch.randint(0, VOCABULARY, (2, 19), generator=torch.Generator().manual_seed(2))
    expected = steps(network, ids, 19)
    engine = engine_of(network, library, {}, exact=True)
    for lengths in ((19,), (1,) * 19, (7, 1, 11)):
        assert torch.allclose(steps(engine, ids, *lengths), expected, atol=2e-5 * float(expected.abs().max()))


def rounded_model(format: str) -> tuple[Any, dict[str, Quantised]]:
    """A small llama, and its matrices in blocks; the network has what they stand for."""
    network = make("lm", *LLAMA)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.15)
    matrices = {name: quantise(each, format) for name, each in network.state_dict().items() if each.dim() == 2}
    network.load_state_dict({name: each.dequantise() for name, each in matrices.items()}, strict=False)
    return network, matrices


@pytest.mark.parametrize("format", ["Q4_0", "Q8_0"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_quantised_model_is_the_dequantised_one(format: str, threads: int, library: Any) -> None:
    network, matrices = rounded_model(format)
    ids = torch.randint(0, VOCABULARY, (2, 21), generator=torch.Generator().manual_seed(3))
    reference = copy.deepcopy(network).double()
    with torch.inference_mode():
        expected = reference(ids)
    exact = steps(engine_of(network, library, matrices, threads, exact=True), ids, 13, 1, 7)
    largest = float(expected.abs().max())
    assert torch.allclose(exact.double(), expected, atol=1e-5 * largest)
    fast = steps(engine_of(network, library, matrices, threads), ids, 13, 1, 7)
    assert (fast.double() - expected).abs().max() < 0.05 * largest
    assert not torch.equal(fast, exact)


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
@pytest.mark.parametrize("exact", [False, True])
def test_threads_and_parts_change_no_bit(cache_type: str, exact: bool, library: Any) -> None:
    network, matrices = rounded_model("Q4_0")
    ids = torch.randint(0, VOCABULARY, (1, 41), generator=torch.Generator().manual_seed(4))
    one, two = (engine_of(network, library, matrices, each, exact=exact, cache_type=cache_type) for each in (1, 2))
    whole = steps(one, ids, 41)
    for lengths in ((41,), (11, 30), (1,) * 41, (13, 1, 2, 25), (3, 5, 33)):
        assert torch.equal(steps(two, ids, *lengths), whole)


@pytest.mark.parametrize("window", [None, 83, 300])
@pytest.mark.parametrize(
    "parts", [LLAMA, (*LLAMA, "model.positions=alibi", "model.score_cap=3")], ids=["rotary", "alibi"]
)
def test_a_long_text_has_the_same_bits_in_parts(parts: tuple[str, ...], window: int | None, library: Any) -> None:
    """Longer than a span of keys, with a window that ends inside of one, and slots that are forgotten meanwhile."""
    network = make("lm", *parts, "model.layers=1", "model.max_length=5000")
    engine = engine_of(network, library, {}, 2, exact=True)
    ids = torch.randint(0, VOCABULARY, (1, 1301), generator=torch.Generator().manual_seed(9))
    found = []
    for lengths in ((1301,), (601, 100, *(1,) * 13, 587)):
        state, logits = engine.start(window=window), []
        for part in ids.split(list(lengths), dim=1):
            some, state = engine.step(part, state)
            logits.append(some)
        found.append(torch.cat(logits, dim=1))
    assert torch.equal(*found)
    with torch.inference_mode():
        state = network.start() if window is None else network.start(window=window)
        expected, _ = network.step(ids, state)
    assert torch.allclose(found[0], expected, atol=5e-5 * float(expected.abs().max()))


# How far logits may be from those in float64 where only keys and values are rounded, in parts of the largest.
NEAR = {"f32": 1e-5, "f16": 1e-3, "int8": 2e-2}


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_each_kind_of_cache_is_near_float64(cache_type: str, library: Any) -> None:
    network, matrices = rounded_model("Q8_0")
    ids = torch.randint(0, VOCABULARY, (3, 57), generator=torch.Generator().manual_seed(8))
    with torch.inference_mode():
        expected = copy.deepcopy(network).double()(ids)
    engine = engine_of(network, library, matrices, 2, exact=True, cache_type=cache_type)
    found, largest = steps(engine, ids, 37, 1, 19).double(), float(expected.abs().max())
    assert (found - expected).abs().max() < NEAR[cache_type] * largest
    if cache_type != "f32":
        assert (found - expected).abs().max() > NEAR["f32"] * largest


def test_bytes_take_a_quarter_of_floats_and_a_scale() -> None:
    network = make("lm", *LLAMA)
    pools = {name: engine_of(network, native.load_library(), {}, cache_type=name).start().pool for name in CACHE_TYPES}
    assert {name: pool.keys.nbytes for name, pool in pools.items()} == {
        name: 2 * 512 * 2 * each for name, each in (("f32", 64), ("f16", 32), ("int8", 20))
    }


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_shape_is_that_of_the_dequantised_model(data: Any) -> None:
    """Rows that are not multiples of 32, one-token texts, windows, reorderings, threads: against float64."""
    draw = data.draw
    kv_heads = draw(st.integers(1, 3))
    sizes = {
        **{"heads": kv_heads * draw(st.integers(1, 3)), "kv_heads": kv_heads, "layers": draw(st.integers(1, 2))},
        **{"dim": draw(st.integers(1, 70)), "inner": draw(st.integers(1, 90))},
        **{"key_dim": 2 * draw(st.integers(1, 20)), "value_dim": draw(st.integers(1, 40))},
        **{
            "positions": draw(st.sampled_from(["rotary", "alibi", "t5", "none"])),
            "norm": draw(st.sampled_from(["layer", "rms"])),
        },
        "feed_forward": draw(st.sampled_from(["swiglu", "gelu", "relu", "geglu_tanh"])),
    }
    network = make("lm", *(f"model.{name}={value}" for name, value in sizes.items()), seed=draw(st.integers(0, 99)))
    window, length, rows = draw(st.sampled_from([None, 1, 5])), draw(st.integers(1, 23)), draw(st.integers(1, 3))
    ids = torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(length))
    first = draw(st.integers(1, length))
    order = torch.tensor(draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4)))
    engine = engine_of(network, native.load_library(), {}, draw(st.sampled_from([1, 2])), exact=True)
    reference = copy.deepcopy(network).double()
    found = []
    with torch.inference_mode():
        for model in (engine, reference):
            state = model.start() if window is None else model.start(window=window)
            begun, state = model.step(ids[:, :first], state)
            rest, state = model.step(ids[order, first:], model.reorder(state, order))
            found.append(torch.cat((begun.flatten(), rest.flatten())).double())
    assert torch.allclose(*found, atol=1e-4 * float(found[1].abs().max()))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 3), st.sampled_from(list(CACHE_TYPES)))
def test_lookup_prefixes_and_parts_change_no_token(prompt: list[int], cut: int, cache_type: str) -> None:
    """A prompt of few tokens repeats itself, so that guesses are made."""
    network, matrices = rounded_model("Q8_0")
    engine = engine_of(network, native.load_library(), matrices, 2, cache_type=cache_type)
    plain = engine_of(network, native.load_library(), matrices, 1, cache_type=cache_type)
    vars(plain)["rewind"] = None  # then no guess is made
    chosen = Settings(max_tokens=40, temperature=0.0)
    [[expected]] = generate(plain, plain.start(), Prompts([prompt]), chosen)
    [[looked_up]] = generate(engine, engine.start(), Prompts([prompt]), chosen)
    assert looked_up.ids == expected.ids
    read = [*prompt, *expected.ids]
    _, state = engine.step(torch.tensor([read]), engine.start())
    shared = max(0, len(prompt) - 1 - cut)
    begun = engine.prefix(state, 0, shared)
    assert begun is not None
    [[continued]] = generate(plain, begun, Prompts([prompt[shared:]]), chosen)
    assert continued.ids == expected.ids


def test_the_last_logits_are_those_of_the_step() -> None:
    network, matrices = rounded_model("Q4_0")
    engine = engine_of(network, native.load_library(), matrices)
    ids = torch.randint(0, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(5))
    whole, _ = engine.step(ids, engine.start())
    last, _ = engine.step_last(ids, engine.start())
    assert torch.equal(last, whole[:, -1:])


def test_a_head_is_seen_while_decoding() -> None:
    network = make("lm", *LLAMA)
    engine, state = engine_of(network, native.load_library(), {}, exact=True), None
    ids = torch.randint(0, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(6))
    state, found = engine.start(), []
    for part in ids.split([8, 1, 1, 1], dim=1):
        _, [weights], state = engine.step_seeing(part, state, [SeenHead(layer=1, head=2)])
        found.append(torch.nn.functional.pad(weights, (0, 11 - weights.size(2))))
    with torch.inference_mode():
        block = network.stack.blocks[1]
        x = network.stack.blocks[0](network.tokens(ids), mask=_causal())
        expected = block.self_attention.weights(block.residual1.norm(x), mask=_causal())[:, 2]
    assert torch.allclose(torch.cat(found, dim=1), expected, atol=1e-5)
    with pytest.raises(ConfigError, match="there is no layer 1 with a head 4; both count from 0"):
        engine.step_seeing(ids, engine.start(), [SeenHead(layer=1, head=4)])


@pytest.mark.parametrize("layers", [(0,), (1,), (1, 0)], ids=str)
def test_reading_only_to_see_ends_at_the_last_layer_that_is_seen(layers: tuple[int, ...]) -> None:
    network, matrices = rounded_model("Q8_0")
    engine = engine_of(network, native.load_library(), matrices)
    groups = [[SeenHead(layer, head) for head in (2, 0)] for layer in layers]
    ids = torch.randint(0, VOCABULARY, (1, 13), generator=torch.Generator().manual_seed(7))
    state, reading = engine.start(), engine.start()
    for part in ids.split([11, 1, 1], dim=1):
        _, expected, state = engine.step_seeing(part, state, [head for heads in groups for head in heads])
        seen = engine.see(part, reading, groups)
        assert torch.equal(torch.cat(seen), torch.stack(expected))
        assert [each.shape[0] for each in seen] == [2] * len(layers)
    with pytest.raises(ConfigError, match="there is no layer 2 with a head 0; both count from 0"):
        engine.see(ids, engine.start(), [[SeenHead(2, 0)]])


def _causal() -> Any:
    from clearhead.nn.masks import Mask

    return Mask(causal=True)


def test_rows_merge_and_reorder_as_with_torch() -> None:
    network, matrices = rounded_model("Q8_0")
    engine = engine_of(network, native.load_library(), matrices, exact=True)
    first, second = torch.tensor([[5, 7, 9, 11]]), torch.tensor([[3, 4]])
    _, a = engine.step(first, engine.start())
    _, b = engine.step(second, engine.start())
    merged = engine.merge([a, b])
    assert merged is not None
    logits, merged = engine.step(torch.tensor([[6], [8]]), merged)
    logits, _ = engine.step(torch.tensor([[2], [1]]), engine.reorder(merged, torch.tensor([1, 0])))
    texts = (torch.tensor([[3, 4, 8, 2]]), torch.tensor([[5, 7, 9, 11, 6, 1]]))
    expected = torch.cat([network(each)[:, -1] for each in texts])
    assert torch.allclose(logits[:, 0], expected, atol=1e-4 * float(expected.detach().abs().max()))


def test_what_native_code_could_not_read_is_refused() -> None:
    engine = engine_of(make("lm", "model.positions=learned", "model.max_length=9"), native.load_library(), {})
    with pytest.raises(TextError, match="there is no token 37: the model knows 37, counted from 0"):
        engine.step(torch.tensor([[1, 37]]), engine.start())
    with pytest.raises(TextError, match="there is no token -1"):
        engine.step(torch.tensor([[-1]]), engine.start())
    state = engine.start()
    with pytest.raises(ShapeError, match="a text of 10 tokens is longer than the model's table of 9 positions"):
        engine.step(torch.ones(1, 10, dtype=torch.int64), state)
    assert engine.step(torch.ones(1, 9, dtype=torch.int64), state)[0].shape == (1, 9, VOCABULARY)
    assert engine.step(torch.empty(1, 0, dtype=torch.int64), engine.start())[0].shape == (1, 0, VOCABULARY)


def test_native_code_refuses_what_python_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that was changed from outside: the lists lead to a slot that is not there."""
    engine = engine_of(make("lm", *LLAMA), native.load_library(), {})
    _, state = engine.step(torch.tensor([[1, 2, 3]]), engine.start())
    with torch.inference_mode():
        state.lists[0, 1] = 9999
    with pytest.raises(ShapeError, match="a step of 1 rows with 1 tokens each has a list of slots that are not in the"):
        engine.step(torch.tensor([[4]]), state)
    monkeypatch.setattr(engine.vectors, "count", 1000)
    with pytest.raises(ShapeError, match=REFUSALS[3]):
        engine.step(torch.tensor([[500]]), engine.start())


# --- the choice of an engine ---


@pytest.mark.parametrize("name", ["q8", "q4"])
def test_a_language_model_is_quantised_on_request(name: str) -> None:
    network = make("lm", *LLAMA)
    engines = Engines(network, quantise=name)
    assert isinstance(engines.stepper(), LmEngine)
    prompts, settings = Prompts([[5, 7]]), Settings(max_tokens=5, temperature=0.0)
    stepper = engines.stepper()
    [[found]] = generate(stepper, stepper.start(), prompts, settings)
    assert len(found.ids) == 5
    assert isinstance(Engines(network, int8=True).stepper(), LmEngine)


def test_what_cannot_be_quantised_is_said() -> None:
    network = make("lm", *LLAMA)
    with pytest.raises(ConfigError, match="unknown quantise=q5; choose from: q4, q8"):
        Engines(network, quantise="q5")
    with pytest.raises(ConfigError, match="quantise=q4 needs the engine auto, compiled or exact, not torch"):
        Engines(network, "torch", quantise="q4")
    with pytest.raises(ConfigError, match="quantise=q4 is for language models; other models have quantise=q8"):
        Engines(make("translate"), quantise="q4")
    assert Engines(make("translate"), quantise="q8").int8
    with pytest.raises(ConfigError, match="unknown cache_type=f8; choose from: f16, f32, int8"):
        Engines(network, quantise="q8", cache_type="f8")
    with pytest.raises(ConfigError, match="cache_type=int8 is for quantised language models; add quantise=q8 or q4"):
        Engines(network, cache_type="int8")
    assert Engines(network, quantise="q8", cache_type="int8").stepper().start().pool.keys.dtype == torch.uint8
