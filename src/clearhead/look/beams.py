"""The tree of a beam search: every text that it kept or dropped, with its log-probabilities.

    the root is the prompt
    a node is a text: the text of its parent and one more token
    kept        it became a beam                 dropped     others were likelier
    finished    it ended with the stop token     best        the node of the best hypothesis

At each step a search of beam width K considers its 2 K likeliest continuations, so a step has at most 2 K nodes. Groups
of beams that write the same text share a node.
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

ShowTokens = Callable[[Sequence[int]], list[str]]  # ids -> the token string of each
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One text that the search considered."""

    id: int
    parent: int | None  # None for the root
    step: int  # tokens generated
    token: str  # the last one; of the root the prompt
    probability: float  # log p(token | the tokens before it)
    total: float  # sum along the path
    score: float  # what ranks it: the total, and of a finished text the total over length^penalty
    state: CandidateState
    token_id: int | None = None  # None for the root


@dataclass(frozen=True)
class BeamTree:
    """A search, and the node at which its best hypothesis ends; node i is `nodes[i]`."""

    nodes: list[Node]
    source: str  # the text that was read
    best: int

    def path(self, node: int) -> list[Node]:
        """The nodes from the first token to a node, without the root."""
        if not 0 <= node < len(self.nodes):
            raise ProbeError(f"there is no node {node}: this tree has {len(self.nodes)}, counted from 0")
        found, parent = [self.nodes[node]], self.nodes[node].parent
        while parent is not None:
            found.append(self.nodes[parent])
            parent = self.nodes[parent].parent
        return found[-2::-1]

    def ids(self, node: int) -> list[int]:
        """The token ids from the first token to a node, without the prompt."""
        return [each.token_id for each in self.path(node) if each.token_id is not None]

    def to_json(self) -> dict[str, Any]:
        nodes = [asdict(node) for node in self.nodes]
        for node in nodes:
            del node["token_id"]
        return {"format": FORMAT, "source": self.source, "nodes": nodes, "best": self.best}


def beam_tree(
    network: Any,
    sources: Sequence[Tensor],
    prompt: Sequence[int],
    stop: int | None,
    settings: Settings,
    show_tokens: ShowTokens,
    source: str = "",
) -> BeamTree:
    """Search from one prompt and record every text; `sources` is what `network.start` reads, a batch of one."""
    with torch.inference_mode():
        state = network.start(*sources)
    recorder = _Recorder()
    [[best, *_]] = beam_search(network, state, Prompts([prompt], stop), settings, recorder)
    if not recorder.texts:
        raise ProbeError(f"max_tokens={settings.max_tokens} leaves no room for a token, so there is no beam to show")
    root = Node(0, None, 0, " ".join(show_tokens(prompt)), 0.0, 0.0, 0.0, "kept")
    nodes = recorder.nodes(root, stop, show_tokens)
    return BeamTree(list(nodes.values()), source, nodes[_with_stop(best, stop)].id)


def _with_stop(hypothesis: Hypothesis, stop: int | None) -> Ids:
    """The ids of a hypothesis, with the stop token if it ended with one."""
    return (*hypothesis.ids, stop) if hypothesis.finished and stop is not None else tuple(hypothesis.ids)


@dataclass
class _Recorder:
    """An observer that keeps what a search considers and finds."""

    texts: dict[Ids, BeamCandidate] = field(default_factory=dict)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def considered(self, text: BeamCandidate) -> None:
        """A text that one group drops may be kept by another: then it counts as kept."""
        known = self.texts.get(text.ids)
        if known is None or known.state == "dropped":
            self.texts[text.ids] = text

    def found(self, row: int, hypothesis: Hypothesis) -> None:
        self.hypotheses.append(hypothesis)

    def nodes(self, root: Node, stop: int | None, show_tokens: ShowTokens) -> dict[Ids, Node]:
        """The node of each text, parents before their children."""
        scores = {_with_stop(each, stop): each.score for each in self.hypotheses}
        tokens = show_tokens([ids[-1] for ids in self.texts])
        nodes: dict[Ids, Node] = {(): root}
        for (ids, text), token in zip(self.texts.items(), tokens, strict=True):
            score, parent = scores.get(ids, text.score), nodes[ids[:-1]]
            total = parent.total + text.logprob
            nodes[ids] = Node(
                len(nodes), parent.id, len(ids), token, text.logprob, total, score, text.state, token_id=ids[-1]
            )
        return nodes
