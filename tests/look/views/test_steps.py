"""Every step of a query, against what was captured, what the block wrote, and the code that the step points at."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import clearhead
from clearhead.errors import ProbeError
from clearhead.look import build
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.views.steps import Step, Steps, attention_steps, examples, steps
from clearhead.nn import MultiHeadAttention, attention, cosine, scaled_dot
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

V, S, T, HEADS = 13, 7, 5, 2
SMALL = {"dim": 22, "heads": HEADS, "layers": 3, "inner": 17, "dropout": 0.0, "max_length": 19}
SIZES = Sizes(vocabulary=V, classes=11, channels=3, height=4, width=10)
FIRST = ["score", "scale", "softmax", "weight", "sum"]
OF_ENCODER = ["heads combined", "add & norm", "feed-forward", "add & norm"]
OF_DECODER = ["heads combined", "add & norm", "cross-attention", "add & norm", "feed-forward", "add & norm"]
VARIATIONS: list[dict[str, Any]] = [
    {"placement": placement, "norm": norm}
    for placement in ("before", "after", "around")
    for norm in ("layer", "rms", "batch")
]
VARIATIONS += [
    {"positions": "learned"},
    {"positions": "rotary", "heads": 11},
    {"positions": "alibi", "feed_forward": "swiglu"},
    {"positions": "t5", "kv_heads": 1},
    {"window": 3, "feed_forward": "gelu"},
    {"key_dim": 5, "value_dim": 3, "bias": False},
    *({"score": score} for score in ("dot", "additive", "bilinear", "cosine")),
    {"hard": True},
]
every_variation = pytest.mark.parametrize("parts", VARIATIONS, ids=str)


def numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def network_of(task: Any, parts: dict[str, Any]) -> Any:
    """In float64, with norms and biases as after training."""
    torch.manual_seed(1)
    patch = {"patch": 2} if task in ("vision", "caption") else {}
    network = build_network(
        TASKS[task].config_type().model_validate({"model": {**SMALL, **patch, **parts}}), SIZES
    ).double()
    for weight in network.parameters():
        nn.init.normal_(weight, mean=0.1, std=0.3)
    for name, buffer in network.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return network.eval()


def look_at(task: Any, parts: dict[str, Any]) -> Look:
    network, patches = network_of(task, parts), ["class", *numbered("p", 10)]
    source = torch.tensor([[4, 9, 12, 5, 7, 0, 0]])
    read, image = (2, 11, 8, 5, 6), torch.randn(1, 3, 4, 10).double()
    written = {"decoder": numbered("y", T), "output": numbered("w", T)}
    example = {
        "translate": lambda: PreparedInput((source,), read, encoder=numbered("x", S), **written),
        "lm": lambda: PreparedInput(prompt=read, decoder=numbered("y", T)),
        "classify": lambda: PreparedInput((source,), encoder=numbered("x", S)),
        "vision": lambda: PreparedInput((image,), encoder=patches),
        "caption": lambda: PreparedInput((image,), read, encoder=patches, **written),
    }[task]()
    return build.compute_look(
        network, replace(example, text="an input"), lambda _: "an answer", model="small", task=task
    )


def every_query(look: Look) -> Iterator[Steps]:
    """Of the last layer all queries of all heads, and one of each other layer."""
    for kind, seen in look.attention.items():
        last = seen.layers - 1
        asked = [(last, head, query) for head in range(seen.heads) for query in range(len(seen.rows))]
        for layer, head, query in [*asked, *((layer, 0, 1) for layer in range(last))]:
            yield steps(look, layer, head, query, kind)


def assert_steps_are_what_was_captured(look: Look, found: Steps) -> None:
    seen, at = look.attention[found.kind], (found.head, found.query)
    values = {step.name: step.value for step in found.steps if step.name != "add & norm"}
    before_mask = next(values[name] for name in ("position", "scale", "score") if name in values)
    weights, visible = seen.weights[found.layer][at], seen.visible[found.query]
    assert_close(before_mask, seen.scores[found.layer][at])
    assert_close(values["softmax" if "softmax" in values else "pick one"], weights)
    assert_close(values["weight"], weights[:, None] * seen.value[found.layer][found.head])
    assert_close(values["sum"], weights @ seen.value[found.layer][found.head])
    assert ("mask" in values) == (not bool(seen.visible.all()))
    if "mask" in values:
        assert_close(values["mask"], before_mask.masked_fill(~visible, -torch.inf))
    if "scale" in values:
        assert_close(values["scale"], values["score"] / seen.query[found.layer].size(-1) ** 0.5)


@every_variation
def test_every_step_is_what_was_captured_and_the_last_is_what_the_block_wrote(parts: dict[str, Any]) -> None:
    look = look_at("translate", parts)
    assert set(look.attention) == {"encoder.self", "decoder.self", "decoder.cross"}
    for found in every_query(look):
        assert_steps_are_what_was_captured(look, found)
        wrote = look.hidden[found.kind.split(".")[0]][found.layer + 1][found.query]
        assert_close(found.steps[-1].value, wrote)


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("lm", {"positions": "rotary", "heads": 11}),
        ("classify", {"placement": "after"}),
        ("vision", {}),
        ("caption", {"architecture": "cross", "positions": "alibi"}),
    ],
    ids=str,
)
def test_so_it_is_for_every_kind_of_model(task: str, parts: dict[str, Any]) -> None:
    look = look_at(task, parts)
    for found in every_query(look):
        assert_steps_are_what_was_captured(look, found)
        wrote = look.hidden[found.kind.split(".")[0]][found.layer + 1][found.query]
        assert_close(found.steps[-1].value, wrote)


@pytest.mark.parametrize("score", ["scaled_dot", "dot", "additive", "bilinear", "cosine"])
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_recurrent_decoder_ends_in_its_state(score: str, hard: bool, cell: str) -> None:
    parts = {"architecture": "rnn", "context": "attention", "score": score, "hard": hard, "cell": cell}
    look = look_at("translate", parts)
    [kind] = look.attention
    for query in range(T):
        found = steps(look, 0, 0, query, kind)
        assert_steps_are_what_was_captured(look, found)
        assert found.steps[-1].name == "state"
        states, _, _ = align(look)
        assert_close(found.steps[-1].value, states[0, query])


def align(look: Look) -> tuple[Tensor, Any, Tensor]:
    source, target = look.inputs
    state = look.network.start(source)
    return look.network.decoder.align(look.network.target(target), state.memory, state.last)


def test_the_intermediate_values_of_a_block_are_those_of_its_parts() -> None:
    look = look_at("translate", {"placement": "around"})
    block, inside = look.network.decoder.blocks[1], []
    for name in ("self_attention", "residual1", "cross_attention", "residual2", "feed_forward", "residual3"):
        getattr(block, name).register_forward_hook(lambda _module, _given, gave: inside.append(gave))
    look.network(*look.inputs)
    wrote = [gave[0, 3] for gave in inside]
    for step, expected in zip(steps(look, 1, 0, 3, "decoder.self").steps[-6:], wrote, strict=True):
        assert_close(step.value, expected)


def test_the_names_are_those_of_the_lectures() -> None:
    def names(task: str, kind: str, **parts: Any) -> list[str]:
        look = look_at(task, parts)
        return [step.name for step in steps(look, 1, 0, 2, kind).steps]

    masked = [*FIRST[:2], "mask", *FIRST[2:]]
    assert names("vision", "encoder.self") == [*FIRST, *OF_ENCODER]
    assert names("translate", "encoder.self") == [*masked, *OF_ENCODER]
    assert names("translate", "decoder.self") == [*masked, *OF_DECODER]
    assert names("translate", "decoder.cross") == [*masked, *OF_ENCODER]
    assert names("lm", "decoder.self", positions="alibi") == [*FIRST[:2], "position", "mask", *FIRST[2:], *OF_ENCODER]
    assert names("lm", "decoder.self", score="additive") == ["score", "mask", *FIRST[2:], *OF_ENCODER]
    assert names("lm", "decoder.self", hard=True) == [*FIRST[:2], "mask", "pick one", *FIRST[3:], *OF_ENCODER]


@pytest.mark.parametrize(
    ("placement", "sum_", "reads"),
    [("after", "Norm(x + z)", "x"), ("before", "x + z", "Norm(x)"), ("around", "x + Norm(z)", "Norm(x)")],
)
def test_the_equations_are_those_of_the_parts(placement: str, sum_: str, reads: str) -> None:
    look = look_at("translate", {"placement": placement, "feed_forward": "swiglu"})
    found = {step.name: step.equation for step in steps(look, 0, 0, 0, "encoder.self").steps}
    assert found["scale"] == "s_j = q · k_j / √d_k,  d_k = 11"
    assert found["add & norm"] == f"x ← {sum_}"
    assert found["feed-forward"] == f"z = (swish(y W_g) · y W_1) W_2,  y = {reads}"


# --- where the equations stand ---

Line = tuple[str, int]


@contextmanager
def lines_that_run() -> Iterator[set[Line]]:
    """The lines of the package that run, by file and number."""
    ran: set[Line] = set()
    root = Path(clearhead.__file__).parent

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(root / "nn") and not file.is_relative_to(root / "models"):
            return None
        if event == "line":
            ran.add((file.relative_to(root).as_posix(), frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield ran
    finally:
        sys.settrace(before)


def written_out(network: nn.Module) -> None:
    """Attention by the equation, as the steps show it."""
    for part in network.modules():
        if isinstance(part, MultiHeadAttention):
            part.kernel = part.kernel.explicit()


@pytest.mark.parametrize(
    ("task", "parts"),
    [("translate", parts) for parts in VARIATIONS]
    + [("lm", {}), ("vision", {}), ("translate", {"architecture": "rnn", "context": "attention"})],
    ids=str,
)
def test_each_step_points_at_a_line_that_runs_when_the_model_does(task: str, parts: dict[str, Any]) -> None:
    look = look_at(task, parts)
    written_out(look.network)
    with lines_that_run() as ran:
        look.network(*look.inputs)
    for kind in look.attention:
        for step in steps(look, 0, 0, 2, kind).steps:
            assert (step.file, step.line) in ran, step.name


# What the line of each step says: a line that moves keeps its number right by itself, one that changes is seen here.
SAYS = {
    "score": "return q @ k.transpose(-2, -1)",
    "scale": "return dot(q, k) / math.sqrt(k.size(-1))",
    "position": "return self.normalize(scores if added is None else scores + added, visible)",
    "mask": "return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)",
    "softmax": "return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)",
    "weight": "return self.dropout(self.weights(q, k, mask, offset, bias)) @ share_heads(v, q.size(1))",
    "sum": "return self.dropout(self.weights(q, k, mask, offset, bias)) @ share_heads(v, q.size(1))",
    "heads combined": "return self.output(join_heads(mixed))",
    "cross-attention": "x = self.residual2(x, lambda y: self.cross_attention(y, memory, mask=memory_mask, cache=read))",
    "feed-forward": "return self.outer(self.dropout(self.activation(self.inner(x))))",
}


def test_the_lines_say_what_the_steps_do() -> None:
    look = look_at("translate", {"positions": "t5", "placement": "after"})
    found = steps(look, 2, 1, 3, "decoder.self").steps
    said = {step.name: step.source for step in found}
    assert {name: said[name] for name in SAYS} == SAYS
    assert said["add & norm"] == "return self.norm(x + self.dropout(sublayer(x)))"
    text = (Path(clearhead.__file__).parent / found[0].file).read_text(encoding="utf-8")
    assert text.splitlines()[found[0].line - 1].strip() == SAYS["score"]


def test_a_score_of_yours_is_shown_where_you_keep_it() -> None:
    def far(q: Tensor, k: Tensor) -> Tensor:
        return -torch.cdist(q, k)

    torch.manual_seed(1)
    query, keys, values = torch.randn(5), torch.randn(7, 5), torch.randn(7, 3)
    step = attention_steps(query, keys, values, score=far)[0]
    assert (Path(step.file), step.source) == (Path(__file__), "def far(q: Tensor, k: Tensor) -> Tensor:")
    assert_close(step.value, -(keys - query).norm(dim=-1))


# --- without a network, and by hand ---


def test_without_a_network_the_steps_end_with_the_sum() -> None:
    look = replace(look_at("translate", {}), network=None)
    found = steps(look, 1, 1, 3, "decoder.cross")
    assert [step.name for step in found.steps] == [*FIRST[:2], "mask", *FIRST[2:]]
    assert_steps_are_what_was_captured(look, found)


@pytest.mark.parametrize("parts", [{"positions": "alibi"}, {"score": "additive"}], ids=str)
def test_scores_that_are_no_scaled_dot_product_are_shown_as_they_were_seen(parts: dict[str, Any]) -> None:
    look = replace(look_at("lm", parts), network=None)
    found = steps(look, 1, 1, 3)
    assert [step.name for step in found.steps] == ["score", "mask", *FIRST[2:]]
    assert_steps_are_what_was_captured(look, found)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score", [scaled_dot, cosine])
def test_the_steps_end_in_what_attention_gives(masked: bool, score: Any) -> None:
    torch.manual_seed(1)
    query, keys, values = torch.randn(5), torch.randn(7, 5), torch.randn(7, 3)
    mask = torch.tensor([True, False, True, True, False, True, True]) if masked else None
    found = attention_steps(query, keys, values, mask, score)
    output, weights = attention(query[None], keys, values, None if mask is None else mask[None], score)
    values_of = {step.name: step.value for step in found}
    assert_close(values_of["sum"], output[0])
    assert_close(values_of["softmax"], weights[0])
    expected = [name for name in FIRST if score is scaled_dot or name != "scale"]
    expected[expected.index("softmax") : expected.index("softmax")] = ["mask"] if masked else []
    assert [step.name for step in found] == expected
    assert found[-1].source == "return weights @ v, weights"


def test_each_step_follows_from_the_one_before() -> None:
    query, keys, values = torch.tensor([8.0, 0, 0, 0]), torch.eye(4)[:2] * 2, torch.tensor([[1.0, 0], [0, 1]])
    score, scale, softmax, weight, total = (step.value for step in attention_steps(query, keys, values))
    assert_close(score, torch.tensor([16.0, 0]))
    assert_close(scale, torch.tensor([8.0, 0]))
    assert_close(softmax, scale.exp() / scale.exp().sum())
    assert_close(weight, softmax[:, None] * values)
    assert_close(total, weight.sum(0))


# --- as data ---


def test_it_is_plain_data_with_a_word_for_each_key() -> None:
    look = look_at("translate", {})
    found = steps(look, 0, 1, 2, "decoder.self")
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    about = {key: data[key] for key in ("format", "kind", "layer", "head", "query", "rows", "columns")}
    assert about == {
        "format": "clearhead-steps-1",
        "kind": "decoder.self",
        "layer": 0,
        "head": 1,
        "query": 2,
        "rows": numbered("y", T),
        "columns": numbered("y", T),
    }
    assert [step["name"] for step in data["steps"]] == [step.name for step in found.steps]
    mask = next(step for step in data["steps"] if step["name"] == "mask")
    assert [number is None for number in mask["value"]] == [False, False, False, True, True]
    assert (mask["shape"], mask["labels"]) == ([T], numbered("y", T))
    weight = next(step for step in data["steps"] if step["name"] == "weight")
    assert_close(torch.tensor(weight["value"]).double(), found["weight"], rtol=1e-4, atol=1e-9)
    assert (weight["shape"], weight["labels"]) == ([T, 11], numbered("y", T))
    last = data["steps"][-1]
    assert (last["labels"], last["file"], last["shape"]) == (None, "nn/block.py", [22])
    assert last["source"] == found.steps[-1].source == "return x + self.dropout(sublayer(self.norm(x)))"


def test_one_token_looks_at_itself() -> None:
    network = network_of("lm", {})
    example = PreparedInput(prompt=(7,), decoder=["only"], text="only")
    look = build.compute_look(network, example, lambda _: "", model="small", task="lm")
    found = steps(look, 0, 0, 0)
    assert_close(found["softmax"], torch.ones(1).double())
    assert_close(found.steps[-1].value, look.hidden["decoder"][1][0])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ((3, 0, 0, "encoder.self"), r"^encoder\.self of small has no layer 3; choose from 0 to 2$"),
        ((0, 2, 0, "encoder.self"), r"^encoder\.self of small has no head 2; choose from 0 to 1$"),
        ((0, -1, 0, "encoder.self"), r"^encoder\.self of small has no head -1; choose from 0 to 1$"),
        ((0, 0, 5, "decoder.cross"), r"^decoder\.cross of small has no query 5; choose from 0 to 4$"),
        ((0, 0, 0, "cross"), r"^small has no attention called cross; it has encoder\.self, decoder\.self, decoder"),
    ],
)
def test_what_does_not_exist_is_one_sentence(asked: tuple[Any, ...], sentence: str) -> None:
    look = look_at("translate", {})
    with pytest.raises(ProbeError, match=sentence):
        steps(look, *asked)


def test_a_step_is_found_by_its_name() -> None:
    step = Step("sum", "z", torch.ones(2), None, "nn/attention.py", 1)
    assert Steps("encoder.self", 0, 0, 0, [step])["sum"] is step.value


# --- vectors, all queries at once, and the examples of the lectures ---


@every_variation
def test_the_vectors_and_matrices_are_those_of_the_look(parts: dict[str, Any]) -> None:
    look = look_at("translate", parts)
    for kind, seen in look.attention.items():
        found = steps(look, 1, 1, 2, kind)
        data = found.to_json()
        for short, name in (("q", "query"), ("k", "key"), ("v", "value")):
            assert_close(torch.tensor(data["vectors"][short]).double(), getattr(seen, name)[1][1], rtol=1e-4, atol=1e-9)
        for name, matrix in data["matrices"].items():
            row = [-torch.inf if each is None else each for each in matrix[2]]
            assert_close(torch.tensor(row).double(), found[name], rtol=1e-3, atol=1e-4)
        assert {"softmax", "pick one"} & set(data["matrices"])


def test_the_examples_give_the_numbers_of_the_lectures() -> None:
    thinking, words, food, river, account = (each.steps() for each in examples())
    assert (thinking["score"].tolist(), thinking["scale"].tolist()) == ([112, 96], [14, 12])
    assert_close(thinking["softmax"], torch.tensor([0.88, 0.12]), rtol=0, atol=0.005)
    assert words["score"].tolist() == [102, 99]
    assert_close(words["scale"], torch.tensor([58.9, 57.2]), rtol=0, atol=0.05)
    assert_close(words["softmax"], torch.tensor([0.85, 0.15]), rtol=0, atol=0.005)
    assert food["softmax"][:2].sum() > 0.9  # burrito and taco are what is mexican
    water, money = river["sum"].tolist()
    assert water > money
    assert account["sum"].tolist() == [money, water]  # the same word beside another: the meanings change places
