"""What is computed during generation, against one forward pass over the finished text: every model, every search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.decode import Prompts, Settings, generate
from clearhead.errors import ConfigError, ProbeError
from clearhead.look.build import (
    GenerationRecorder,
    compute_look,
    look_probes,
    look_while_generating,
    recording,
    run_probes,
)
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

B, V, START, STOP, LONGEST = 3, 13, 2, 3, 6
SMALL = {"dim": 22, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.3, "max_length": 29, "tied": False}
SIZES = Sizes(vocabulary=V, channels=3, height=4, width=10)
SCHEMES: list[dict[str, Any]] = [
    {"positions": "sinusoidal"},
    {"positions": "learned", "position_concat": True},
    {"positions": "rotary", "heads": 11},
    {"positions": "alibi", "kv_heads": 1},
    {"positions": "t5"},
    {"positions": "none", "score": "additive", "placement": "after"},
    {"window": 3},
]
RNN: dict[str, Any] = {"architecture": "rnn"}
WRITERS: list[tuple[Any, dict[str, Any]]] = [
    *(("translate", scheme) for scheme in SCHEMES),
    *(("translate", {**RNN, "context": "attention", "cell": cell}) for cell in ("rnn", "gru", "lstm")),
    ("translate", {**RNN, "context": "sum"}),
    *(("lm", scheme) for scheme in SCHEMES),
    ("lm", RNN),
    *(("caption", {"architecture": "cross", **scheme}) for scheme in SCHEMES),
    *(("caption", {"architecture": "sequence", **scheme}) for scheme in SCHEMES),
    ("caption", RNN),
]
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 5},
    {"beam_width": 3},
    {"beam_width": 4, "beam_groups": 2, "diversity_penalty": 0.4, "no_repeat_ngram": 2},
]
every_writer = pytest.mark.parametrize(("task", "parts"), WRITERS, ids=str)
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
one_or_many_beams = pytest.mark.parametrize("way", [WAYS[0], WAYS[3]], ids=str)


def network_of(task: Any, parts: dict[str, Any], seed: int = 0) -> Any:
    """In float64, sharp enough that beams differ and rows end at different times; not told to stop training."""
    torch.manual_seed(seed)
    patch = {"patch": 2} if task == "caption" else {}
    network = build_network(
        TASKS[task].config_type().model_validate({"model": {**SMALL, **patch, **parts}}), SIZES
    ).double()
    with torch.no_grad():
        network.get_submodule("text.output" if hasattr(network, "text") else "output").linear.weight.normal_(std=0.5)
    return network


def sources_of(task: str, rows: int) -> tuple[Tensor, ...]:
    torch.manual_seed(7)
    sentence = torch.randint(4, V, (rows, 7))
    sentence[:, -1] = STOP
    return {"translate": (sentence,), "caption": (torch.randn(rows, 3, 4, 10).double(),), "lm": ()}[task]


def strings(ids: Iterable[int]) -> list[str]:
    return [str(index) for index in ids]


def decode(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))


def generating(network: Any, prepared: PreparedInput, settings: Settings) -> Look:
    return look_while_generating(network, prepared, settings, strings, decode, model="small", task="any")


def numbered(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def prepared_for(task: str, parts: dict[str, Any]) -> PreparedInput:
    sequence = parts.get("architecture") == "sequence"
    about: dict[str, Any] = {"text": "an input", "choices": tuple(numbered(V)), "stop": STOP}
    start = strings([START])
    return {
        "translate": PreparedInput(sources_of(task, 1), (START,), encoder=numbered(7), decoder=start, **about),
        "lm": PreparedInput(prompt=(START, 9, 5), decoder=strings([START, 9, 5]), **about),
        "caption": PreparedInput(
            sources_of(task, 1),
            (START,),
            encoder=() if sequence else numbered(11),
            decoder=[*(numbered(10) if sequence else ()), *start],
            **about,
        ),
    }[task]


def assert_same_look(found: Look, expected: Look) -> None:
    assert (found.tokens, found.text, found.model, found.choices) == (
        expected.tokens,
        expected.text,
        expected.model,
        expected.choices,
    )
    assert_close(found.logits, expected.logits)
    assert found.hidden.keys() == expected.hidden.keys()
    for stack, layers in expected.hidden.items():
        assert_close(found.hidden[stack], layers)
    assert found.attention.keys() == expected.attention.keys()
    for kind, wanted_ in expected.attention.items():
        have = found.attention[kind]
        assert (have.rows, have.columns, have.causal) == (wanted_.rows, wanted_.columns, wanted_.causal)
        assert have.visible.equal(wanted_.visible)
        for name in ("weights", "scores", "query", "key", "value"):
            assert_close(getattr(have, name), getattr(wanted_, name), msg=lambda text, name=name: f"{name}: {text}")


@every_writer
@one_or_many_beams
def test_looking_during_generation_is_looking_at_the_finished_text(task: str, parts: dict[str, Any], way: dict) -> None:
    network, prepared = network_of(task, parts), prepared_for(task, parts)
    found = generating(network, prepared, Settings(max_tokens=LONGEST, **way))
    ids = [int(token) for token in found.output.split()]
    [read] = found.inputs[-1].tolist()
    assert tuple(read[: len(prepared.prompt)]) == prepared.prompt
    assert [*prepared.prompt, *ids][: len(read)] == read
    written = strings([*prepared.prompt[1:], *ids, STOP][: len(read)])
    patches = prepared.decoder[: len(prepared.decoder) - len(prepared.prompt)]
    example = replace(prepared, prompt=tuple(read), decoder=[*patches, *strings(read)], output=written)
    assert_same_look(found, compute_look(network, example, lambda _: "unused", model="small", task="any"))
    assert network.training


@every_way
def test_the_text_is_the_one_that_is_found_without_looking(way: dict[str, Any]) -> None:
    network, settings = network_of("translate", {}).eval(), Settings(max_tokens=LONGEST, **way)
    prepared = prepared_for("translate", {})
    found = generating(network, prepared, settings)
    [[best, *_]] = generate(network, network.start(*prepared.sources), Prompts([[START]], STOP), settings)
    assert found.output == decode(best.ids)


@every_writer
@one_or_many_beams
def test_rows_that_end_and_beams_that_change_places_take_it_along(task: str, parts: dict[str, Any], way: dict) -> None:
    network = network_of(task, parts, seed=1).eval()
    rows = B if sources_of(task, B) else 1
    prompts = Prompts([[START], [START, 9, 5], [START, 7]][:rows], STOP)
    settings = Settings(**{"max_tokens": LONGEST, "return_logprobs": True, "n_best": way.get("beam_width", 1), **way})
    with recording(network) as recorder:
        found = generate(recorder, recorder.start(*sources_of(task, B)), prompts, settings)
    compared = 0
    for row, hypotheses in enumerate(found):
        source = tuple(each[row : row + 1] for each in sources_of(task, B))
        for hypothesis in hypotheses:
            whole = [*prompts.ids[row], *hypothesis.ids, *([STOP] if hypothesis.finished else [])]
            expected = run_probes(network, (*source, torch.tensor([whole[:-1]])), *look_probes(network))
            have = recorder.seen(row, whole[:-1])
            assert have.keys() == expected.keys()
            for name, tensor in expected.items():
                assert_close(have[name], tensor[0], msg=lambda text, name=name: f"{name}: {text}")
            compared += 1
    assert compared >= rows


def test_beams_do_change_places_and_rows_do_end() -> None:
    """Otherwise the tests above would show little."""
    network, moves, counts = network_of("translate", {}, seed=1).eval(), [], []

    class Noting(GenerationRecorder):
        def reorder(self, state: Any, rows: Tensor) -> Any:
            moves.append(rows.tolist())
            return super().reorder(state, rows)

        def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
            counts.append(len(ids))
            return super().step(ids, state)

    recorder = Noting(network, {})
    prompts = Prompts([[START], [START, 9, 5], [START, 7]], STOP)
    generate(recorder, recorder.start(*sources_of("translate", B)), prompts, Settings(max_tokens=LONGEST, beam_width=3))
    assert any(sorted(rows) != rows or len(set(rows)) < len(rows) for rows in moves[1:])
    assert len(set(counts[1:])) > 1


def test_the_words_at_the_edges() -> None:
    network, prepared = network_of("translate", {}), prepared_for("translate", {})
    look = generating(network, prepared, Settings(max_tokens=4, prefix_tokens=(7, 8), banned_tokens=(STOP,)))
    assert look.output.split()[:2] == ["7", "8"]
    assert look.tokens["decoder"] == [str(START), *look.output.split()[:-1]]
    assert look.attention["decoder.cross"].rows == look.output.split()
    assert look.attention["decoder.cross"].columns == numbered(7)
    assert look.attention["decoder.self"].causal
    assert [tuple(weights.shape) for weights in look.weights["decoder.cross"]] == [(2, 4, 7)] * 2


def test_a_text_of_one_token() -> None:
    network, prepared = network_of("lm", {}), PreparedInput(prompt=(9,), decoder=["9"])
    look = generating(network, prepared, Settings(max_tokens=1))
    assert look.tokens == {"decoder": ["9"]}
    assert_close(look.weights["decoder.self"][1], torch.ones(2, 1, 1).double())
    assert look.logits is not None
    assert int(look.logits[0].argmax()) == int(look.output)


def test_the_tensors_can_be_used_in_training() -> None:
    look = generating(network_of("lm", {}), prepared_for("lm", {}), Settings(max_tokens=3))
    scale = torch.ones(1, requires_grad=True)
    (scale * look.weights["decoder.self"][0]).sum().backward()
    assert scale.grad is not None
    assert not look.weights["decoder.self"][0].is_inference()
    assert not look.hidden["decoder"][0].is_inference()


def test_what_cannot_be_written_is_one_sentence() -> None:
    network, prepared = network_of("lm", {}), prepared_for("lm", {})
    with pytest.raises(ProbeError, match=r"^max_tokens=0 leaves no room for a token, so nothing was generated$"):
        generating(network, prepared, Settings(max_tokens=0))
    with pytest.raises(ConfigError, match=r"^a prompt has no token; begin it with the start token$"):
        generating(network, PreparedInput(), Settings(max_tokens=2))
    with pytest.raises(ConfigError, match=r"^beam_width=0 must be 1 or more$"):
        generating(network, prepared, Settings(beam_width=0))


def test_hooks_are_gone_whatever_happens() -> None:
    network = network_of("lm", {})
    with pytest.raises(IndexError):
        generating(network, PreparedInput(prompt=(V,), decoder=["?"]), Settings(max_tokens=2))
    assert not any(part._forward_hooks for part in network.modules())
    assert network.training
