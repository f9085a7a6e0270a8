"""Looks at other people's models, against what these models say themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.errors import ProbeError
from clearhead.look.foreign import look_at
from clearhead.look.look import Look
from clearhead.look.record import AttentionRecord
from clearhead.look.views.steps import steps

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")

T, S, DIM, HEADS, INNER, LAYERS, V = 5, 7, 21, 3, 17, 2, 31


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """In float64, and random in the same way each time."""
    torch.manual_seed(0)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


@pytest.fixture
def transformers() -> ModuleType:
    """Imported by the first test that needs it, since that takes seconds."""
    return pytest.importorskip("transformers")


def sharpened(module: nn.Module) -> nn.Module:
    """Weights as of a trained model: fresh ones give almost even attention, which would hide errors."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return module.eval()


def numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def assert_follows_from_its_parts(seen: AttentionRecord) -> None:
    """Scores from queries and keys, weights from scores, each where something may be seen."""
    for q, k, scores, weights in zip(seen.query, seen.key, seen.scores, seen.weights, strict=True):
        assert_close(scores, q @ k.mT / q.size(-1) ** 0.5)
        masked = scores.masked_fill(~seen.visible, -torch.inf)
        assert_close(weights, masked.softmax(-1))


# --- torch ---


class Own(nn.Module):
    """A classifier as somebody might write it."""

    def __init__(self, **settings: Any):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(DIM, HEADS, **settings) for _ in range(LAYERS))
        self.head = nn.Linear(DIM, V)
        self.own_weights: list[Tensor] = []

    def forward(self, x: Tensor, **masks: Any) -> Tensor:
        self.own_weights = []
        for layer in self.layers:
            mixed, weights = layer(x, x, x, average_attn_weights=False, **masks)
            self.own_weights.append(weights.reshape(HEADS, *weights.shape[-2:]))
            x = x + mixed
        return self.head(x)


CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)
MASKS: dict[str, dict[str, Tensor]] = {
    "open": {},
    "causal": {"attn_mask": CAUSAL},
    "causal as numbers": {"attn_mask": torch.zeros(T, T, dtype=torch.float64).masked_fill(CAUSAL, -torch.inf)},
    "padding": {"key_padding_mask": torch.tensor([[False, False, True, False, True]])},
    "of each head": {"attn_mask": torch.rand(HEADS, T, T, generator=torch.Generator().manual_seed(1)) > 0.7},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("settings", [{"batch_first": True}, {}, {"bias": False}], ids=str)
def test_a_plain_module(masks: dict[str, Tensor], settings: dict[str, Any]) -> None:
    module = sharpened(Own(**settings))
    x = torch.randn(1, T, DIM) if settings.get("batch_first") else torch.randn(T, 1, DIM)
    wide = {name: mask & ~torch.eye(T, dtype=torch.bool) if mask.dim() == 3 else mask for name, mask in masks.items()}
    look = look_at(_With(module, wide), x)
    expected = module(x, **wide)
    [kind] = look.attention
    seen = look.attention[kind]
    assert kind == ("decoder.self" if "attn_mask" in masks and masks["attn_mask"].dim() == 2 else "encoder.self")
    assert_close(seen.weights, module.own_weights)
    assert_close(look.logits, expected.reshape(T, V))
    if masks.keys() != {"attn_mask"} or masks["attn_mask"].dim() == 2:
        assert_follows_from_its_parts(seen)
    assert [len(hidden) for hidden in look.hidden.values()] == [LAYERS + 1]
    assert_close(look.hidden[kind.split(".")[0]][0], x.reshape(T, DIM))


class _With(nn.Module):
    """A module that is always called with these masks."""

    def __init__(self, module: nn.Module, masks: dict[str, Tensor]):
        super().__init__()
        self.module, self.masks = module, masks

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x, **self.masks)


def test_the_steps_of_a_head_with_a_mask_of_its_own() -> None:
    hidden = torch.zeros(HEADS, T, T, dtype=torch.bool)
    hidden[1, 2, 3:] = True
    look = look_at(_With(sharpened(Own(batch_first=True)), {"attn_mask": hidden}), torch.randn(1, T, DIM))
    found = steps(look, 1, 1, 2)
    assert found["softmax"][3:].eq(0).all()
    assert_close(found["sum"], look.weights["encoder.self"][1][1, 2] @ look.v["encoder.self"][1][1])


def test_what_a_mask_adds_is_part_of_the_score() -> None:
    module, x, added = sharpened(Own(batch_first=True)), torch.randn(1, T, DIM), torch.randn(T, T)
    plain = look_at(_With(module, {"attn_mask": torch.zeros(T, T)}), x).scores["encoder.self"][0]
    seen = look_at(_With(module, {"attn_mask": added}), x).attention["encoder.self"]
    assert_close(seen.scores[0], plain + added)
    assert_close(seen.weights, module.own_weights)
    assert seen.visible.all()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_s_own_translator(batch_first: bool, norm_first: bool) -> None:
    def turned(x: Tensor) -> Tensor:
        return x if batch_first else x.transpose(0, 1)

    model = nn.Transformer(DIM, HEADS, LAYERS, LAYERS + 1, INNER, batch_first=batch_first, norm_first=norm_first)
    sharpened(model)
    source, target = torch.randn(1, S, DIM), torch.randn(1, T, DIM)
    inputs = {"src": turned(source), "tgt": turned(target), "tgt_mask": CAUSAL, "tgt_is_causal": True}
    words = {"encoder": numbered("x", S), "decoder": numbered("y", T)}
    look = look_at(model, inputs, words)
    shapes = {kind: [tuple(each.shape) for each in seen.weights] for kind, seen in look.attention.items()}
    assert shapes == {
        "encoder.self": [(HEADS, S, S)] * LAYERS,
        "decoder.self": [(HEADS, T, T)] * (LAYERS + 1),
        "decoder.cross": [(HEADS, T, S)] * (LAYERS + 1),
    }
    for seen in look.attention.values():
        assert_follows_from_its_parts(seen)
    assert look.attention["decoder.self"].causal
    assert (look.attention["decoder.cross"].rows, look.attention["decoder.cross"].columns) == (
        words["decoder"],
        words["encoder"],
    )
    with torch.no_grad():
        assert_close(look.logits, model(**inputs).reshape(T, DIM))
        memory = source
        for layer, hidden in zip(model.encoder.layers, look.hidden["encoder"][1:], strict=True):
            memory = turned(layer(turned(memory)))
            assert_close(hidden, memory[0])
    assert len(look.hidden["decoder"]) == LAYERS + 2


def test_torch_s_shortcut_is_off_only_while_looking() -> None:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, INNER, batch_first=True).train()
    assert torch.backends.mha.get_fastpath_enabled()
    look = look_at(nn.Sequential(layer), torch.randn(1, T, DIM))
    assert len(look.weights["encoder.self"]) == 1
    assert torch.backends.mha.get_fastpath_enabled()
    assert layer.training
    with pytest.raises(RuntimeError):
        look_at(nn.Sequential(layer), torch.randn(1, T, DIM + 1))
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())


def test_keys_and_values_of_other_sizes() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reads = nn.MultiheadAttention(DIM, HEADS, kdim=11, vdim=13, batch_first=True)

        def forward(self, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return self.reads(x, key, value, average_attn_weights=False)[1]

    module, x = sharpened(Reading()), (torch.randn(1, T, DIM), torch.randn(1, S, 11), torch.randn(1, S, 13))
    seen = look_at(module, x).attention["decoder.cross"]
    assert_close(seen.weights[0], module(*x)[0])


# --- transformers ---


def ids(count: int) -> Tensor:
    return torch.randint(3, V, (1, count))


def eager(model: Any, **inputs: Any) -> Any:
    """What the model says itself, with every weight and state."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        said = model(**inputs, output_attentions=True, output_hidden_states=True)
    model.set_attn_implementation(before)
    return said


def layers(tensors: Any) -> list[Tensor]:
    return [tensor[0] for tensor in tensors]


def assert_as_said(look: Look, kind: str, weights: Any, states: Any) -> None:
    """Weights of every layer; states of all but the last, which transformers may give after a last norm."""
    assert_close(look.weights[kind], layers(weights), rtol=1e-6, atol=1e-7)
    assert_follows_from_its_parts(look.attention[kind])
    stack = kind.split(".")[0]
    assert len(look.hidden[stack]) == len(states)
    assert_close(look.hidden[stack][:-1], layers(states)[:-1], rtol=1e-6, atol=1e-7)


@pytest.fixture(params=["eager", "sdpa"])
def written(request: pytest.FixtureRequest) -> str:
    return request.param


def test_gpt2(transformers: ModuleType, written: str) -> None:
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=13, n_embd=DIM, n_layer=LAYERS, n_head=HEADS, attn_implementation=written
    )
    model = sharpened(transformers.GPT2LMHeadModel(config))
    inputs = {"input_ids": ids(T)}
    look = look_at(model, inputs, numbered("w", T), text="a text")
    said = eager(model, **inputs)
    assert list(look.attention) == ["decoder.self"]
    assert (look.model, look.text, look.tokens) == ("GPT2LMHeadModel", "a text", {"decoder": numbered("w", T)})
    assert look.attention["decoder.self"].causal
    assert_as_said(look, "decoder.self", said.attentions, said.hidden_states)
    assert_close(look.logits, said.logits[0])
    assert look.output == " ".join(map(str, said.logits[0].argmax(-1).tolist()))
    assert model.config._attn_implementation == written


def test_bert(transformers: ModuleType, written: str) -> None:
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        num_labels=3,
        id2label={0: "bad", 1: "fair", 2: "good"},
        attn_implementation=written,
    )
    model = sharpened(transformers.BertForSequenceClassification(config))
    inputs = {"input_ids": ids(T), "attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    look, said = look_at(model, inputs), eager(model, **inputs)
    assert list(look.attention) == ["encoder.self"]
    assert look.attention["encoder.self"].visible.equal(torch.tensor([[True] * 4 + [False]]).expand(T, T))
    assert_as_said(look, "encoder.self", said.attentions, said.hidden_states)
    assert_close(look.hidden["encoder"][-1], said.hidden_states[-1][0])
    assert look.output == ["bad", "fair", "good"][int(said.logits.argmax())]
    assert look.tokens == {"encoder": ["0", "1", "2", "3", "4"]}


def test_vit(transformers: ModuleType, written: str) -> None:
    config = transformers.ViTConfig(
        image_size=6,
        patch_size=2,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        attn_implementation=written,
    )
    model = sharpened(transformers.ViTForImageClassification(config))
    inputs = {"pixel_values": torch.randn(1, 3, 6, 6)}
    look, said = look_at(model, inputs), eager(model, **inputs)
    assert_as_said(look, "encoder.self", said.attentions, said.hidden_states)
    assert (look.grid, look.class_token) == ((3, 3), True)
    assert look.tokens["encoder"] == ["class", "1,1", "1,2", "1,3", "2,1", "2,2", "2,3", "3,1", "3,2", "3,3"]


def test_marian(transformers: ModuleType, written: str) -> None:
    config = transformers.MarianConfig(
        vocab_size=V,
        max_position_embeddings=13,
        d_model=DIM,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS + 1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        pad_token_id=0,
        decoder_start_token_id=0,
        attn_implementation=written,
    )
    model = sharpened(transformers.MarianMTModel(config))
    inputs = {"input_ids": ids(S), "attention_mask": torch.tensor([[1] * 5 + [0] * 2]), "decoder_input_ids": ids(T)}
    look, said = look_at(model, inputs), eager(model, **inputs)
    assert_as_said(look, "encoder.self", said.encoder_attentions, said.encoder_hidden_states)
    assert_as_said(look, "decoder.self", said.decoder_attentions, said.decoder_hidden_states)
    assert_close(look.weights["decoder.cross"], layers(said.cross_attentions), rtol=1e-6, atol=1e-7)
    assert [each.causal for each in look.attention.values()] == [kind == "decoder.self" for kind in look.attention]
    assert_close(look.logits, said.logits[0])


def test_gpt2_with_a_memory(transformers: ModuleType) -> None:
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=13, n_embd=DIM, n_layer=LAYERS, n_head=HEADS, add_cross_attention=True
    )
    model = sharpened(transformers.GPT2LMHeadModel(config))
    inputs = {"input_ids": ids(T), "encoder_hidden_states": torch.randn(1, S, DIM)}
    look, said = look_at(model, inputs), eager(model, **inputs)
    assert set(look.attention) == {"decoder.self", "decoder.cross"}
    assert_close(look.weights["decoder.cross"], layers(said.cross_attentions), rtol=1e-6, atol=1e-7)


def test_heads_that_share_keys_each_have_them(transformers: ModuleType) -> None:
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=13,
    )
    model = sharpened(transformers.LlamaForCausalLM(config))
    inputs = {"input_ids": ids(T)}
    look, said = look_at(model, inputs), eager(model, **inputs)
    assert [tuple(key.shape) for key in look.k["decoder.self"]] == [(6, T, 4)] * LAYERS
    assert_as_said(look, "decoder.self", said.attentions, said.hidden_states)


def test_nothing_stays_behind_in_transformers(transformers: ModuleType) -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    config = transformers.GPT2Config(vocab_size=V, n_positions=13, n_embd=DIM, n_layer=LAYERS, n_head=HEADS)
    model = transformers.GPT2LMHeadModel(config).train()
    before = (list(ALL_ATTENTION_FUNCTIONS), list(ALL_MASK_ATTENTION_FUNCTIONS), config._attn_implementation)
    look_at(model, {"input_ids": ids(T)})
    with pytest.raises(IndexError):
        look_at(model, {"input_ids": ids(T) + V})
    after = (list(ALL_ATTENTION_FUNCTIONS), list(ALL_MASK_ATTENTION_FUNCTIONS), config._attn_implementation)
    assert after == before
    assert model.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


# --- as any other look ---


def test_it_is_a_look_like_any_other(tmp_path: Any) -> None:
    look = look_at(sharpened(Own(batch_first=True)), torch.randn(1, T, DIM), numbered("w", T), choices=numbered("c", V))
    loaded = Look.load(look.save(tmp_path / "look.safetensors"))
    assert_close(loaded.weights["encoder.self"], look.weights["encoder.self"])
    assert json.loads(json.dumps(look.to_json(full=True), allow_nan=False))["model"] == "Own"
    assert look.output.split() == [f"c{best}" for best in look.logits.argmax(-1).tolist()]  # type: ignore[union-attr]
    found = steps(look, 1, 2, 3)
    assert [step.name for step in found.steps] == ["score", "scale", "softmax", "weight", "sum"]
    assert_close(found["sum"], look.weights["encoder.self"][1][2, 3] @ look.v["encoder.self"][1][2])


def test_one_token() -> None:
    look = look_at(Own(batch_first=True), torch.randn(1, 1, DIM))
    assert_close(look.weights["encoder.self"][0], torch.ones(HEADS, 1, 1))


class Growing(nn.Module):
    """Layers that read different numbers of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(DIM, HEADS, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((layer(x, x, x)[0], x), dim=1)
        return x


@pytest.mark.parametrize(
    ("module", "tokens", "sentence"),
    [
        (nn.Linear(DIM, V), None, r"^Linear did not attend: no nn\.MultiheadAttention or transformers layer ran$"),
        (Own(batch_first=True), ["a", "b"], r"^2 token strings were given for the 5 tokens that the encoder reads$"),
        (
            Own(batch_first=True),
            {"decoder": ["a"]},
            r"^tokens were given for a stack called decoder; this module has encoder$",
        ),
        (
            Growing(),
            None,
            r"^layers\.0 and layers\.1 are both encoder\.self and have weights of 3 × 5 × 5 and 3 × 10 × 10; look at",
        ),
        (Own(batch_first=True, add_bias_kv=True), None, r"^layers\.0 has keys that belong to no token \(add_bias"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(module: nn.Module, tokens: Any, sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence):
        look_at(module.double(), torch.randn(1, T, DIM), tokens)


def test_a_batch_is_refused_and_so_are_words_without_a_stack() -> None:
    with pytest.raises(ProbeError, match=r"^a look shows one example, and the batch has 2; give the module one of the"):
        look_at(Own(batch_first=True), torch.randn(2, T, DIM))
    model = nn.Transformer(DIM, HEADS, 1, 1, INNER, batch_first=True)
    with pytest.raises(
        ProbeError, match=r"^this module has two stacks: give their token strings as tokens=\{'encoder': \["
    ):
        look_at(model, (torch.randn(1, S, DIM), torch.randn(1, T, DIM)), ["a"])
