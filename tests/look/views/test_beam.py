"""The tree of a beam search, against the search itself and against a slow one that scores every text from scratch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from clearhead.decode import Hypothesis, Prompts, Settings, beam_search
from clearhead.errors import ConfigError, ProbeError
from clearhead.look.views.beam import BeamTree, Node, beam_tree
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

V, START, STOP, LONGEST = 13, 2, 3, 7
SOURCE = torch.tensor([[5, 11, 4, 7, 9, STOP]])
SMALL = {"dim": 22, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.0, "max_length": 19, "tied": False}
TRANSLATORS: list[dict[str, Any]] = [
    {},
    {"positions": "rotary", "heads": 11},
    {"window": 3},
    {"architecture": "rnn", "cell": "lstm"},
]
every_translator = pytest.mark.parametrize("parts", TRANSLATORS, ids=str)


def translator(parts: dict[str, Any], seed: int = 0) -> Any:
    """In float64, and sharp enough that texts differ in how likely they are."""
    torch.manual_seed(seed)
    config = TASKS["translate"].config_type().model_validate({"model": {**SMALL, **parts}})
    network = build_network(config, Sizes(vocabulary=V)).double().eval()
    with torch.no_grad():
        network.output.linear.weight.normal_(std=0.4)
    return network


def words(ids: Sequence[int]) -> list[str]:
    return [f"w{index}" for index in ids]


def tree_of(network: Any, **settings: Any) -> BeamTree:
    chosen = Settings(**{"max_tokens": LONGEST, **settings})
    return beam_tree(network, (SOURCE,), [START], STOP, chosen, words, "a source")


def found_by(network: Any, **settings: Any) -> Hypothesis:
    state = network.start(SOURCE)
    return beam_search(network, state, Prompts([[START]], STOP), Settings(**{"max_tokens": LONGEST, **settings}))[0][0]


def text(tree: BeamTree, node: Node) -> tuple[int, ...]:
    return tuple(int(each.token[1:]) for each in tree.path(node.id)) if node.step else ()


def following(network: Any, ids: tuple[int, ...]) -> list[float]:
    """The log-probability of every token after a text, by reading all of it at once."""
    with torch.inference_mode():
        return network(SOURCE, torch.tensor([[START, *ids]]))[0, -1].log_softmax(-1).tolist()


@every_translator
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_the_best_node_is_the_best_hypothesis(parts: dict[str, Any], penalty: float) -> None:
    network = translator(parts)
    best = found_by(network, beam_width=3, length_penalty=penalty)
    tree = tree_of(network, beam_width=3, length_penalty=penalty)
    path = tree.path(tree.best)
    assert [int(node.token[1:]) for node in path] == [*best.ids, *([STOP] if best.finished else [])]
    assert tree.ids(tree.best) == [node.token_id for node in path] == [int(node.token[1:]) for node in path]
    assert [node.probability for node in path] == pytest.approx(list(best.logprobs), abs=1e-12)
    assert tree.nodes[tree.best].score == pytest.approx(best.score, abs=1e-12)
    assert tree.nodes[tree.best].state == ("finished" if best.finished else "kept")


@every_translator
@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_node_is_what_a_slow_search_considers(parts: dict[str, Any], beams: int, seed: int) -> None:
    network = translator(parts, seed)
    tree = tree_of(network, beam_width=beams)
    step = 0
    while kept := [node for node in tree.nodes if node.step == step and node.state == "kept"]:
        step += 1
        nodes = [node for node in tree.nodes if node.step == step]
        if not nodes:
            break
        possible = [
            (parent.total + own, own, (*text(tree, parent), token))
            for parent in kept
            for token, own in enumerate(following(network, text(tree, parent)))
        ]
        best = sorted(possible, reverse=True)[: 2 * beams]
        going = [ids for _, _, ids in best if ids[-1] != STOP][:beams]
        states = {
            ids: "finished" if ids[-1] == STOP and place < beams else "kept" if ids in going else "dropped"
            for place, (_, _, ids) in enumerate(best)
        }
        assert {text(tree, node): node.state for node in nodes} == states
        for total, own, ids in best:
            [node] = [node for node in nodes if text(tree, node) == ids]
            assert (node.probability, node.total) == pytest.approx((own, total), abs=1e-9)
    assert step > 2


@every_translator
def test_scores_have_the_length_penalty_where_a_text_is_a_hypothesis(parts: dict[str, Any]) -> None:
    trees = [tree_of(translator(parts, seed), beam_width=5, n_best=5, length_penalty=0.6) for seed in range(4)]
    nodes = [node for tree in trees for node in tree.nodes]
    assert {node.state for node in nodes} == {"kept", "dropped", "finished"}
    for node in nodes:
        if node.state == "finished":
            assert node.score == pytest.approx(node.total / node.step**0.6, abs=1e-12)
        if node.state == "dropped":
            assert node.score == pytest.approx(node.total, abs=1e-12)


def test_a_text_that_is_cut_has_its_score_and_stays_kept() -> None:
    tree = tree_of(translator({}), beam_width=2, max_tokens=3, banned_tokens=(STOP,), length_penalty=2.0)
    best = tree.nodes[tree.best]
    assert (best.state, best.step) == ("kept", 3)
    assert best.score == pytest.approx(best.total / 9, abs=1e-12)


def test_ids_are_places_and_parents_come_first() -> None:
    tree = tree_of(translator({}), beam_width=4)
    root, *others = tree.nodes
    assert (root.id, root.parent, root.step, root.token, root.total) == (0, None, 0, f"w{START}", 0.0)
    for place, node in enumerate(others, start=1):
        assert node.id == place
        assert node.parent is not None
        parent = tree.nodes[node.parent]
        assert (parent.state, parent.step) == ("kept", node.step - 1)
        assert node.total == pytest.approx(parent.total + node.probability, abs=1e-12)


def test_groups_that_write_the_same_share_its_node() -> None:
    network = translator({})
    tree = tree_of(network, beam_width=4, beam_groups=4, diversity_penalty=0.3, n_best=4)
    texts = [text(tree, node) for node in tree.nodes]
    assert len(set(texts)) == len(texts)
    state = network.start(SOURCE)
    settings = Settings(max_tokens=LONGEST, beam_width=4, beam_groups=4, diversity_penalty=0.3, n_best=4)
    for hypothesis in beam_search(network, state, Prompts([[START]], STOP), settings)[0]:
        ids = (*hypothesis.ids, *([STOP] if hypothesis.finished else []))
        node = tree.nodes[texts.index(ids)]
        assert (node.state != "dropped", node.score) == (True, pytest.approx(hypothesis.score, abs=1e-12))


def test_a_longer_prompt_is_the_root() -> None:
    tree = beam_tree(translator({}), (SOURCE,), [START, 7], STOP, Settings(max_tokens=3, beam_width=2), words)
    assert tree.nodes[0].token == "w2 w7"
    with torch.inference_mode():
        own = translator({})(SOURCE, torch.tensor([[START, 7]]))[0, -1].log_softmax(-1)
    first = [node for node in tree.nodes if node.step == 1]
    assert [node.probability for node in first] == pytest.approx(own.topk(4).values.tolist(), abs=1e-9)
    assert max(node.step for node in tree.nodes) <= 3


def test_an_observer_changes_nothing() -> None:
    class Counting:
        considered_texts, hypotheses = 0, 0

        def considered(self, text: Any) -> None:
            self.considered_texts += 1

        def found(self, sentence: int, hypothesis: Hypothesis) -> None:
            self.hypotheses += 1

    network, counting = translator({}), Counting()
    sources, prompts = SOURCE.expand(3, -1), Prompts([[START], [START, 5, 6], [START, 9]], STOP)
    settings = Settings(max_tokens=LONGEST, beam_width=3, n_best=3)
    watched = beam_search(network, network.start(sources), prompts, settings, counting)
    assert watched == beam_search(network, network.start(sources), prompts, settings)
    assert counting.considered_texts > counting.hypotheses >= 3


def test_it_is_plain_data() -> None:
    tree = tree_of(translator({}), beam_width=2)
    data = json.loads(json.dumps(tree.to_json(), allow_nan=False))
    assert {key: data[key] for key in ("format", "source", "best")} == {
        "format": "clearhead-beam-1",
        "source": "a source",
        "best": tree.best,
    }
    assert [Node(**node) for node in data["nodes"]] == [replace(node, token_id=None) for node in tree.nodes]
    assert list(data["nodes"][0]) == ["id", "parent", "step", "token", "probability", "total", "score", "state"]


def test_what_cannot_be_shown_is_one_sentence() -> None:
    network = translator({})
    with pytest.raises(ConfigError, match=r"^beam_width=0 must be 1 or more$"):
        tree_of(network, beam_width=0)
    with pytest.raises(ProbeError, match=r"^max_tokens=0 leaves no room for a token, so there is no beam to show$"):
        tree_of(network, beam_width=2, max_tokens=0)
    tree = tree_of(network, beam_width=2, max_tokens=1)
    assert max(node.step for node in tree.nodes) == 1
    with pytest.raises(ProbeError, match=rf"^there is no node 99: this tree has {len(tree.nodes)}, counted from 0$"):
        tree.path(99)
