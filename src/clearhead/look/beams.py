"""The tree of a beam search: every text that it kept or dropped, with its log-probabilities.

    the root is what the search goes on from
    a node is a text: that of its parent, and one token more
    kept        it was one of the beams          dropped     it was considered, and others were likelier
    finished    it stopped, and is a hypothesis  best        the node of the best hypothesis

At each step a search of K beams considers its 2 K likeliest continuations, so a step has at most 2 K nodes. Two groups
of beams may write the same text, which is one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearhead.decode import Hypothesis, Prompts, Settings, beam_search
from clearhead.decode.beam import BeamCandidate, CandidateState
from clearhead.errors import ProbeError

FORMAT = "clearhead-beam-1"

Words = Callable[[Sequence[int]], list[str]]  # ids -> each as people read it
Text = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One text that the search considered."""

    id: int
    parent: int | None  # none of the root
    step: int  # tokens written
    token: str  # its last
    probability: float  # log p(token | those before it), by the model
    total: float  # the sum along the path
    score: float  # what ranks it: the total, and once it is a hypothesis the total over length^penalty
    state: CandidateState


@dataclass(frozen=True)
class BeamTree:
    """A search, and the node at which its best hypothesis ends; each node stands at the place of its id."""

    nodes: list[Node]
    source: str  # what was read
    best: int

    def path(self, node: int) -> list[Node]:
        """From the first token to a node, without the root."""
        if not 0 <= node < len(self.nodes):
            raise ProbeError(f"there is no node {node}: this tree has {len(self.nodes)}, counted from 0")
        found, parent = [self.nodes[node]], self.nodes[node].parent
        while parent is not None:
            found.append(self.nodes[parent])
            parent = self.nodes[parent].parent
        return found[-2::-1]

    def to_json(self) -> dict[str, Any]:
        """As the views read it."""
        nodes = [asdict(node) for node in self.nodes]
        return {"format": FORMAT, "source": self.source, "nodes": nodes, "best": self.best}


def beam_tree(
    network: Any,
    sources: Sequence[Tensor],
    prompt: Sequence[int],
    stop: int | None,
    settings: Settings,
    words: Words,
    source: str = "",
) -> BeamTree:
    """The tree of the search that goes on from one prompt; `sources` is what `network.start` reads, a batch of one."""
    with torch.inference_mode():
        state = network.start(*sources)
    seen = _Recorder()
    [[best, *_]] = beam_search(network, state, Prompts([prompt], stop), settings, seen)
    if not seen.texts:
        raise ProbeError(f"max_tokens={settings.max_tokens} leaves no room for a token, so there is no beam to show")
    nodes = seen.nodes(_root(prompt, words), stop, words)
    return BeamTree(list(nodes.values()), source, nodes[_read(best, stop)].id)


def _root(prompt: Sequence[int], words: Words) -> Node:
    """What every text goes on from."""
    return Node(0, None, 0, " ".join(words(prompt)), 0.0, 0.0, 0.0, "kept")


def _read(hypothesis: Hypothesis, stop: int | None) -> Text:
    """Its tokens, and its stop where it has one."""
    return (*hypothesis.ids, stop) if hypothesis.finished and stop is not None else tuple(hypothesis.ids)


@dataclass
class _Recorder:
    """Notes what a search considers and finds."""

    texts: dict[Text, BeamCandidate] = field(default_factory=dict)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def considered(self, candidate: BeamCandidate) -> None:
        """What one group drops, another may keep."""
        known = self.texts.get(candidate.ids)
        if known is None or known.state == "dropped":
            self.texts[candidate.ids] = candidate

    def found(self, row: int, hypothesis: Hypothesis) -> None:
        """Its score is known now."""
        self.hypotheses.append(hypothesis)

    def nodes(self, root: Node, stop: int | None, words: Words) -> dict[Text, Node]:
        """The node of each text, a parent before its children."""
        scores = {_read(each, stop): each.score for each in self.hypotheses}
        tokens = words([ids[-1] for ids in self.texts])
        nodes: dict[Text, Node] = {(): root}
        for (ids, text), token in zip(self.texts.items(), tokens, strict=True):
            score, parent = scores.get(ids, text.score), nodes[ids[:-1]]
            total = parent.total + text.logprob
            nodes[ids] = Node(len(nodes), parent.id, len(ids), token, text.logprob, total, score, text.state)
        return nodes
