"""The graph of a model: every tensor is what was captured, and what its operation makes of its inputs."""

from __future__ import annotations

import base64
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import clearhead
from clearhead.errors import ProbeError
from clearhead.look import build
from clearhead.look.graph import Graph, Part, model_graph
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.probes import capture, probes
from clearhead.models.config import ModelConfig
from clearhead.models.lm import LanguageModel
from clearhead.nn.feedforward import ACTIVATIONS

from .networks import small_network

FUNCTIONS: dict[str, Any] = {"": lambda x: x, "1 -": lambda x: 1 - x, **ACTIVATIONS}
NANO = "models/gpt-nano-sort"


# --- the operations, written once more ---


def made(graph: Graph, part: Part) -> Tensor | None:
    """The value of a part, computed from its inputs by what its operation means; None for what has no such meaning."""
    inputs = [graph.parts[each].value for each in part.inputs]
    details = part.details
    match part.op:
        case "add":
            return torch.stack(inputs).sum(0)
        case "same":
            return inputs[0].expand_as(part.value)
        case "norm":
            x = inputs[0]
            mean = x.mean(-1, keepdim=True) if details["norm"] == "layer" else 0
            spread = ((x - mean) ** 2).mean(-1, keepdim=True).add(details["eps"]).sqrt()
            return (x - mean) / spread * details.get("gain", 1) + details.get("shift", 0)
        case "linear":
            whole = [each if each.dim() == 2 else each.transpose(0, 1).flatten(1) for each in inputs]
            y = sum(x @ weight.float().T for x, weight in zip(whole, part.weight, strict=True)) + details.get("bias", 0)
            y = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, None: lambda z: z}[details.get("activation")](y)
            if part.heads is None:
                return y
            return y.unflatten(-1, (-1, details["size"])).transpose(0, 1).repeat_interleave(details["group"], 0)
        case "rotate":
            cos, sin = details["cos"], details["sin"]
            turned, rest = inputs[0][..., : cos.size(-1)], inputs[0][..., cos.size(-1) :]
            return torch.cat((turned * cos + turned.roll(cos.size(-1) // 2, -1) * sin, rest), -1)
        case "score":
            return inputs[0] @ inputs[1].mT * details["scale"] + details.get("bias", 0)
        case "softmax":
            hidden = ~details["visible"] if "visible" in details else torch.zeros_like(part.value[0], dtype=torch.bool)
            return inputs[0].masked_fill(hidden, -math.inf).softmax(-1)
        case "pick":
            seen = details.get("visible", torch.ones_like(part.value[0], dtype=torch.bool))
            return F.one_hot(inputs[0].masked_fill(~seen, -math.inf).argmax(-1), part.value.size(-1)).float()
        case "mix":
            return inputs[0] @ inputs[1]
        case "products":
            terms = details["terms"]
            return sum(math.prod(FUNCTIONS[name](graph.parts[each].value) for name, each in term) for term in terms)
        case "shift":
            states, own = (
                graph.parts[details["of"]].value,
                part.value.flatten(0, -2),
            )  # the query has an axis of one head
            shifted = (own[:1], states[:-1]) if details["step"] > 0 else (states[1:], own[-1:])
            return torch.cat(shifted).view_as(part.value)
        case "concat":
            return torch.cat([each if each.dim() == 2 else each[0] for each in inputs], -1)
        case "prepend":
            return torch.cat((part.value[: details["count"]], inputs[0]))
        case "tail":
            return inputs[0][-len(part.value) :]
        case "pool":
            return {"first": inputs[0][:1], "last": inputs[0][-1:], "mean": inputs[0].mean(0, True)}[details["pool"]]
        case "logits":
            rows = part.weight[0].float()[torch.tensor(details["ids"])]  # (T, K, D)
            return (rows @ inputs[0].unsqueeze(-1)).squeeze(-1) + details.get("bias", 0)
        case "probability":
            return (inputs[0] - details["total"].unsqueeze(-1)).exp()
        case "lookup":
            return None
    assert part.op in ("given", "function"), part.op
    return None


def near(part: Part, expected: Tensor, rtol: float, atol: float) -> None:
    assert_close(part.value, expected, rtol=rtol, atol=atol, msg=lambda text: f"{part.id}: {text}")


def assert_every_number_follows(graph: Graph) -> None:
    """Every part is what its operation makes of its inputs; every group's items exist, and every part is in one."""
    for part in graph.parts.values():
        assert part.value.isfinite().all(), part.id
        if (expected := made(graph, part)) is not None:
            assert_close(
                part.value, expected.float(), rtol=1e-4, atol=2e-5, msg=lambda text, part=part: f"{part.id}: {text}"
            )
        assert all(each in graph.parts for each in part.inputs)
        assert len(graph.axes[part.rows]) == part.value.size(-2), part.id
        assert not part.columns or len(graph.axes[part.columns]) == part.value.size(-1), part.id
    assert [part.id for part in graph.of_group("")] == list(graph.parts)


def assert_parts_are_what_was_captured(look: Look, graph: Graph) -> None:
    """Parts named like a probe have its tensor, and those of the look are its own."""
    network = look.require_network()
    for kind, record in look.attention.items():
        stack, part = kind.split(".")
        for layer in range(record.layers):
            for name in ("weights", "scores", "query", "key", "value"):
                assert torch.equal(
                    graph.parts[f"{stack}.{layer}.{part}.{name}"].value, getattr(record, name)[layer].float()
                )
    for stack, layers in look.hidden.items():
        names = [f"{stack}.embedded", *(f"{stack}.{number}.hidden" for number in range(len(layers) - 1))]
        names = [name if name in graph.parts else name.replace(".hidden", ".cell.hidden") for name in names]
        for name, tensor in zip(names, layers, strict=True):
            assert_close(graph.parts[name].value, tensor.float(), rtol=1e-5, atol=1e-5)
    named = [name for name in probes(network) if name in graph.parts and name != "logits"]
    with build.evaluation_mode(network), torch.no_grad(), capture(network, *named) as seen:
        network(*look.inputs)
    for name in named:
        found = graph.parts[name].value
        expected = seen[name][0].float()
        if expected.shape != found.shape:  # heads that share keys
            expected = expected.repeat_interleave(len(found) // len(expected), 0)
        assert_close(found, expected, rtol=1e-5, atol=1e-5)


# --- bundled models ---


def seven() -> np.ndarray[Any, Any]:
    image = np.zeros((28, 28, 1), dtype="uint8")
    image[4:7, 6:21] = 255
    for step in range(18):
        image[6 + step : 9 + step, 19 - step // 2 : 22 - step // 2] = 255
    return image


BUNDLED: dict[str, Any] = {
    "en-es": "She has a red car.",
    "shakespeare": "ROMEO:\nBut soft",
    "shakespeare-lstm": "ROMEO:\nBut",
    "invented": "zog plim zog quav plim qu",
    "digits": seven(),
}


@pytest.mark.parametrize("name", BUNDLED)
def test_every_number_of_a_bundled_model_is_that_of_the_look_and_follows_from_its_inputs(name: str) -> None:
    look = clearhead.load(name).look(BUNDLED[name])
    graph = model_graph(look)
    assert_parts_are_what_was_captured(look, graph)
    assert_every_number_follows(graph)
    likeliest = look.probabilities.reshape(-1, look.probabilities.size(-1)).topk(10)
    assert_close(graph.parts["probabilities"].value, likeliest.values, rtol=1e-5, atol=1e-6)


def test_word_vectors_have_no_layers_to_draw() -> None:
    with pytest.raises(ProbeError, match="words has one vector for each word and no attention"):
        clearhead.load("words").view("xray", "king")


# --- every kind of model and part ---

TRANSLATORS: list[dict[str, Any]] = [
    {"placement": placement, "norm": norm}
    for placement in ("before", "after", "around")
    for norm in ("layer", "rms", "batch")
]
TRANSLATORS += [
    {"positions": "sinusoidal"},
    {"positions": "learned", "feed_forward": "gelu"},
    {"positions": "learned", "position_concat": True, "tied": False},
    {"positions": "rotary", "feed_forward": "swiglu"},
    {"positions": "alibi", "feed_forward": "geglu_tanh"},
    {"positions": "t5", "kv_heads": 1},
    {"window": 2},
    {"key_dim": 5, "value_dim": 3, "bias": False},
    *({"score": score} for score in ("dot", "additive", "bilinear", "cosine")),
    {"hard": True},
    {"embedding_norm": True, "embedding_dim": 7, "tied": False},
    {"architecture": "rnn", "cell": "gru"},
    {"architecture": "rnn", "cell": "lstm"},
    {"architecture": "rnn", "cell": "rnn", "context": "last"},
    {"architecture": "rnn", "cell": "lstm", "context": "sum", "layers": 1},
]
T, S = 5, 7


def words(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def look_at(task: str, **settings: Any) -> Look:
    network: Any = small_network(task, **settings)
    if "wide" in settings:
        network.output.table.normal_(generator=torch.Generator().manual_seed(2))
    source, read = torch.tensor([[4, 9, 12, 5, 7, 2, 3]]), (2, 11, 8, 5, 6)
    image = torch.randn(1, 1, 4, 6, generator=torch.Generator().manual_seed(1))
    patches, written = ["class", *words("p", 6)], {"decoder": words("y", T), "output": words("w", T)}
    prepared = {
        "translate": lambda: PreparedInput((source,), read, encoder=words("x", S), **written),
        "lm": lambda: PreparedInput(prompt=read, decoder=words("y", T)),
        "classify": lambda: PreparedInput((source,), encoder=words("x", S)),
        "tag": lambda: PreparedInput((source,), encoder=words("x", S)),
        "vision": lambda: PreparedInput((image,), encoder=patches),
        "caption": lambda: PreparedInput((image,), read, encoder=patches, **written),
    }[task]()
    return build.compute_look(network, replace(prepared, text="an input"), lambda _: "answer", model="small", task=task)


@pytest.mark.parametrize("settings", TRANSLATORS, ids=str)
def test_every_part_of_a_translator_follows_from_its_inputs(settings: dict[str, Any]) -> None:
    look = look_at("translate", **settings)
    graph = model_graph(look)
    assert_parts_are_what_was_captured(look, graph)
    assert_every_number_follows(graph)
    scores = [part.op for part in graph.parts.values() if part.symbol == "s"]
    is_dot = settings.get("score", "scaled_dot") in ("dot", "scaled_dot")
    assert all((op == "score") == is_dot for op in scores)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("lm", {"parallel": True, "feed_forward": "gelu_tanh", "positions": "learned"}),
        ("lm", {"head_norm": "rms", "positions": "rotary", "kv_heads": 1, "norm": "rms"}),
        ("lm", {"joint_norm": "rms", "positions": "rotary", "kv_heads": 1, "placement": "output"}),
        ("lm", {"positions": "rotary", "rotary_dim": 2, "output_cap": 3.0}),
        ("classify", {"pool": "class"}),
        ("classify", {"pool": "mean"}),
        ("classify", {"pool": "mean", "wide": 101}),
        ("classify", {"pool": "class_and_mean"}),
        ("classify", {"pool": "last", "pool_transform": "tanh"}),
        ("tag", {}),
        ("vision", {"positions": "learned"}),
        ("vision", {"patches": "convolution"}),
        ("caption", {}),
    ],
    ids=str,
)
def test_every_part_of_other_models_follows_from_its_inputs(task: str, settings: dict[str, Any]) -> None:
    look = look_at(task, **settings)
    graph = model_graph(look)
    assert_parts_are_what_was_captured(look, graph)
    assert_every_number_follows(graph)
    assert graph.groups[""].items[-1] == "output"


def test_a_look_from_a_file_has_no_network_to_draw(tmp_path: Path) -> None:
    saved = Look.load(look_at("lm").save(tmp_path))
    with pytest.raises(ProbeError, match="was loaded from a file: look again with the model itself"):
        model_graph(saved)


def test_the_hooks_are_removed() -> None:
    look = look_at("translate")
    model_graph(look)
    assert all(not each._forward_hooks and not each._forward_pre_hooks for each in look.require_network().modules())


# --- published numbers ---


def nano(name: str) -> dict[str, Any]:
    file = Path(os.environ.get("CLEARHEAD_DATA", "")) / NANO / name
    if not file.is_file():
        pytest.skip(f"needs {NANO} below $CLEARHEAD_DATA")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def numbers(stored: dict[str, Any]) -> Tensor:
    found = np.frombuffer(base64.b64decode(stored["data"]), dtype="<f4").copy()
    return torch.from_numpy(found).view(stored["shape"])


def sorting_network() -> LanguageModel:
    """minGPT's gpt-nano that sorts three letters, as https://bbycroft.net/llm draws it."""
    weights = {name: numbers(each) for name, each in nano("gpt-nano-sort-model.json").items() if name != "config"}
    config = ModelConfig(
        dim=48, heads=3, layers=3, positions="learned", max_length=11, placement="before", norm="layer",
        feed_forward="gelu_tanh", tied=False, embedding_scale=1.0, output_bias=False, dropout=0.0,
    )  # fmt: skip
    network = LanguageModel(config, 3)
    table = {
        "tokens.tokens.table.weight": weights["transformer.wte.weight"],
        "output.linear.weight": weights["lm_head.weight"],
    }
    table["tokens.positions.table.weight"] = weights["transformer.wpe.weight"]
    for end in ("weight", "bias"):
        table[f"stack.norm.{end}"] = weights[f"transformer.ln_f.{end}"]
        for layer in range(3):
            old, new = f"transformer.h.{layer}", f"stack.blocks.{layer}"
            qkv = weights[f"{old}.attn.c_attn.{end}"].chunk(3)
            for name, part in zip(("query", "key", "value"), qkv, strict=True):
                table[f"{new}.self_attention.{name}.{end}"] = part
            table[f"{new}.self_attention.output.{end}"] = weights[f"{old}.attn.c_proj.{end}"]
            table[f"{new}.residual1.norm.{end}"] = weights[f"{old}.ln_1.{end}"]
            table[f"{new}.residual2.norm.{end}"] = weights[f"{old}.ln_2.{end}"]
            table[f"{new}.feed_forward.inner.{end}"] = weights[f"{old}.mlp.c_fc.{end}"]
            table[f"{new}.feed_forward.outer.{end}"] = weights[f"{old}.mlp.c_proj.{end}"]
    network.load_state_dict(table)
    return network.eval()


def test_the_sorting_network_has_the_published_intermediate_values() -> None:
    published = {
        name: numbers(each) for name, each in nano("gpt-nano-sort-t0-partials.json").items() if name != "config"
    }
    network = sorting_network()
    first = "decoder.0"
    for row, ids in enumerate(published["idx"].long().tolist()):
        prepared = PreparedInput(prompt=tuple(ids), decoder=["ABC"[each] for each in ids], choices=("A", "B", "C"))
        graph = model_graph(build.compute_look(network, prepared, lambda _: "", model="sort", task="lm"))
        feed = f"{first}.feed_forward"
        names = {
            "tok_emb": "decoder.input.0", "x": "decoder.embedded", "ln1": f"{first}.self.norm",
            "q": f"{first}.self.query", "k": f"{first}.self.key", "v": f"{first}.self.value",
            "attSm": f"{first}.self.weights", "yProj": f"{first}.self.output", "attnResid": f"{first}.self.added",
            "ln2": f"{feed}.norm", "fc": f"{feed}.up", "gelu": f"{feed}.inner", "mlp": f"{feed}.output",
            "mlpResid": f"{first}.hidden", "block0": "decoder.0.hidden", "block1": "decoder.1.hidden",
            "block2": "decoder.2.hidden", "ln_f": "decoder.norm",
        }  # fmt: skip
        for theirs, ours in names.items():
            near(graph.parts[ours], published[theirs][row], rtol=0, atol=1e-5)
        mixed = graph.parts[f"{first}.self.mixed"].value.transpose(0, 1).flatten(1)
        assert_close(mixed, published["y"][row], rtol=0, atol=1e-5)
        visible = graph.parts[f"{first}.self.weights"].details["visible"]
        scores = graph.parts[f"{first}.self.scores"].value
        assert_close(scores[:, visible], published["att"][row][:, visible], rtol=0, atol=1e-5)
        ids_of = torch.tensor(graph.parts["logits"].details["ids"])
        assert_close(graph.parts["logits"].value, published["lm_head"][row].gather(-1, ids_of), rtol=0, atol=2e-5)
        assert_close(graph.parts["probabilities"].value, published["probs"][row].gather(-1, ids_of), rtol=0, atol=1e-5)
        assert_every_number_follows(graph)
