"""Beam search: keep the K likeliest beginnings, and stop when no beginning can still win.

    score = Σ log p(token | those before it) / length^penalty

No token can raise the sum, so an open beginning never comes to more than its sum / longest^penalty: once the n best
finished hypotheses have that much, they are the n best. Beams can be divided into groups (Vijayakumar et al.): at each
step they choose in turn, and a token costs more for each beam of an earlier group that has chosen it. That price counts
for the choice alone, not for the score.

With a coverage penalty β (Wu et al.) a finished score is less by β Σ_i -log min(1, what was seen of part i of the
source). That is never negative, so what an open beginning may hope for stays the same.

What is open is kept in plain Python: a step has a few candidates for each sentence, too few to be worth a tensor.

    R rows of the state, one for each open hypothesis, K beams, groups of W beams, C = 2W candidates, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from clearhead.decode.hypothesis import Hypothesis
from clearhead.decode.plan import Plan, Prompts
from clearhead.decode.rules import follow, only, rules_of
from clearhead.decode.settings import Settings
from clearhead.decode.stepper import Stepper, best, move, read_and_look

Fate = Literal["kept", "dropped", "finished"]

_UNSEEN = 1e-9  # what is never seen at all costs as much as this


@dataclass(frozen=True)
class Considered:
    """One text that a step of a search considered, and what became of it."""

    sentence: int  # which prompt it goes on from
    ids: tuple[int, ...]  # what is written, with the new token and without the prompt
    own: float  # the model's log-probability of the new token
    score: float  # the sum with it
    state: Fate


class Observer(Protocol):
    """Whoever wants to see a search: told of every text as it is considered, and of every hypothesis as it is found."""

    def considered(self, text: Considered) -> None:
        """One of the best continuations of a step; those that the rules forbid are not told."""
        ...

    def found(self, sentence: int, hypothesis: Hypothesis) -> None:
        """One that stopped, or was cut at the longest length."""
        ...


@torch.inference_mode()
def beam_search(
    model: Stepper, state: Any, prompts: Prompts, settings: Settings, observer: Observer | None = None
) -> list[list[Hypothesis]]:
    """Go on from each prompt: up to n hypotheses for each, the best first, and finished ones before cut ones."""
    return _Search(model, Plan.of(prompts, settings), settings, observer).run(state) if prompts.ids else []


class _Beam(NamedTuple):
    """An open hypothesis."""

    row: int  # of the state that it goes on from
    group: int
    ids: list[int]  # the prompt and what was written
    own: list[float]  # the model's log-probability of each token; 0 in the prompt
    score: float  # the sum so far


class _Candidate(NamedTuple):
    """A beam with one more token."""

    beam: _Beam
    token: int
    score: float  # the sum with this token
    own: float  # the model's log-probability of it

    def beam_with_it(self) -> _Beam:
        """What is open if it goes on."""
        beam = self.beam
        return _Beam(beam.row, beam.group, [*beam.ids, self.token], [*beam.own, self.own], self.score)


@dataclass(frozen=True)
class _Next:
    """What the model says about the next token of each row: its C best tokens by what decides, falling."""

    tokens: list[list[int]]
    decides: list[list[float]]  # their logits with all that counts for the choice
    shaped: list[list[float]]  # after the rules
    own: list[list[float]]  # the model's own
    total: list[float]  # log Σ exp of all logits of the model: what makes a log-probability of a logit


_Sentence = tuple[int, list[_Beam]]  # which prompt, and what is open of it
_Found = list[dict[tuple[int, ...], Hypothesis]]  # of each sentence, by its tokens


class _Search:
    """One search: what is fixed, and the hypotheses found."""

    def __init__(self, model: Stepper, plan: Plan, settings: Settings, observer: Observer | None):
        self.model, self.plan, self.settings, self.observer = model, plan, settings, observer
        self.rules = rules_of(settings)
        self.width = settings.beams // settings.groups
        self.finished: _Found = [{} for _ in plan.begin]
        self.cut: _Found = [{} for _ in plan.begin]

    def run(self, state: Any) -> list[list[Hypothesis]]:
        """The prompts are read once for each sentence; only then does each beam get a row of the state."""
        numbers, device = self.plan.open(), self.plan.known.device
        state = move(self.model, state, numbers, len(self.plan.begin), device)
        ids, seen = self.plan.filled(numbers), torch.zeros(len(numbers), 1, device=device)
        sentences = [self._begin(number, row, ids[row].tolist()) for row, number in enumerate(numbers)]
        while sentences:
            # logits (R, V), look (R, S)
            logits, look, state = read_and_look(self.model, ids, state, look=self.settings.coverage_penalty > 0)
            seen = seen + look if look.numel() else seen
            sentences = self._going(self._extended(sentences, logits, seen), seen)
            rows = [beam.row for _, beams in sentences for beam in beams]
            state = move(self.model, state, rows, len(logits), device)
            seen = seen[rows] if look.numel() else seen
            ids = torch.tensor([[beam.ids[-1]] for _, beams in sentences for beam in beams], device=device)
            sentences = _with_rows_in_order(sentences)
        return [self._best(sentence) for sentence in range(len(self.finished))]

    def _begin(self, number: int, row: int, ids: list[int]) -> _Sentence:
        """All beams are the same at first: in each group only one of them speaks."""
        return number, [_Beam(row, group, ids, [0.0] * len(ids), 0.0) for group in range(self.settings.groups)]

    def _extended(self, sentences: list[_Sentence], logits: Tensor, seen: Tensor) -> list[_Sentence]:
        """Every beam by every token, logits (R, V): the groups choose in turn which of theirs go on."""
        shaped = self._shaped(sentences, logits)
        chosen: list[list[_Candidate]] = [[] for _ in sentences]
        after = self._next(logits, shaped, shaped)
        for group in range(self.settings.groups):
            if group and self.settings.diversity:
                after = self._next(logits, shaped, shaped - self._price(sentences, chosen, shaped))
            for (number, beams), so_far in zip(sentences, chosen, strict=True):
                found = self._candidates(number, [beam for beam in beams if beam.group == group], after)
                so_far += self._choose(number, found, seen)
        return [
            (number, [each.beam_with_it() for each in going])
            for (number, _), going in zip(sentences, chosen, strict=True)
        ]

    def _shaped(self, sentences: list[_Sentence], logits: Tensor) -> Tensor:
        """Logits (R, V), and what the rules make of them."""
        self.settings.check_vocabulary(logits.size(-1))
        place = len(sentences[0][1][0].ids)  # all beams are as long
        if not self.rules and place >= self.plan.known.size(1):
            return logits
        rows = {beam.row: (number, beam.ids) for number, beams in sentences for beam in beams}
        ordered = [rows[row] for row in range(len(logits))]
        given = self.plan.at(place, [number for number, _ in ordered])  # (R,)
        so_far = torch.tensor([ids for _, ids in ordered], device=logits.device)  # (R, T)
        return follow(self.rules, only(logits, given), so_far)

    def _next(self, logits: Tensor, shaped: Tensor, decides: Tensor) -> _Next:
        """All three (R, V): by the model, after the rules, and with what else counts for the choice."""
        value, token, total = best(self.model, decides, min(2 * self.width, logits.size(-1)))
        total = total if decides is logits else logits.logsumexp(-1)
        values = value.tolist()
        after = values if shaped is decides else shaped.gather(1, token).tolist()
        own = after if logits is shaped else logits.gather(1, token).tolist()
        return _Next(token.tolist(), values, after, own, total.tolist())

    def _price(self, sentences: list[_Sentence], earlier: list[list[_Candidate]], like: Tensor) -> Tensor:
        """(R, V): what a token costs for each beam of the earlier groups that chose it."""
        places = [
            (beam.row, each.token)
            for (_, beams), chosen in zip(sentences, earlier, strict=True)
            for beam in {beam.row: beam for beam in beams}.values()
            for each in chosen
        ]
        price = torch.zeros_like(like)
        if places:
            row, token = torch.tensor(places, device=like.device).T
            price.index_put_((row, token), like.new_tensor(self.settings.diversity), accumulate=True)
        return price

    def _candidates(self, number: int, beams: list[_Beam], after: _Next) -> Iterator[_Candidate]:
        """The 2W best continuations of a group's W beams: each beam can stop once, so that W of them go on."""
        offers = [
            (before + logit, beam, place)
            for beam in beams
            for before in (beam.score - after.total[beam.row],)
            for place, logit in enumerate(after.decides[beam.row])
        ]
        offers.sort(key=itemgetter(0), reverse=True)  # of equal ones that of the earlier beam is first
        for rank, beam, place in offers[: 2 * self.width]:
            if rank == -math.inf:
                return
            row, total = beam.row, after.total[beam.row]
            cost, own = after.shaped[row][place] - total, after.own[row][place] - total
            if self._is_reading(number, beam):  # a token of the prompt costs nothing
                cost = own = 0.0
            yield _Candidate(beam, after.tokens[row][place], beam.score + cost, own)

    def _is_reading(self, number: int, beam: _Beam) -> bool:
        """Whether the next token is one of the prompt."""
        return len(beam.ids) < self.plan.begin[number]

    def _choose(self, number: int, found: Iterator[_Candidate], seen: Tensor) -> list[_Candidate]:
        """What stops is finished, unless it is below the W best: it would not be kept as a beam either; W go on."""
        going: list[_Candidate] = []
        for place, each in enumerate(found):
            if place >= self.width == len(going) and self.observer is None:
                break
            stops = each.token == self.plan.stop and not self._is_reading(number, each.beam)
            stays = place < self.width if stops else len(going) < self.width
            if self.observer is not None:
                self._tell(self.observer, number, each, "dropped" if not stays else "finished" if stops else "kept")
            if stays and stops:
                self._add(self.finished, number, each.beam_with_it(), seen)
            elif stays:
                going.append(each)
        return going

    def _tell(self, observer: Observer, number: int, each: _Candidate, state: Fate) -> None:
        """What became of a candidate; tokens of a prompt are none."""
        if ids := (*each.beam.ids, each.token)[self.plan.begin[number] :]:
            observer.considered(Considered(number, ids, each.own, each.score, state))

    def _going(self, sentences: list[_Sentence], seen: Tensor) -> list[_Sentence]:
        """Those that are not decided; at its longest length a sentence leaves what is open as it is."""
        going = []
        for number, beams in sentences:
            if self._decided(number, max((beam.score for beam in beams), default=-math.inf)):
                continue
            if len(beams[0].ids) < self.plan.end[number]:
                going.append((number, beams))
                continue
            for beam in beams:
                self._add(self.cut, number, beam, seen)
        return going

    def _decided(self, sentence: int, best: float) -> bool:
        """Whether nothing is open, or n are finished and no open beam can beat them, whatever comes."""
        found, wanted = self.finished[sentence], self.settings.n_best
        if best == -math.inf or (found and self.settings.beams == 1):  # one beam is greedy: it ends at its first stop
            return True
        longest = self.plan.end[sentence] - self.plan.begin[sentence]
        hope = best / longest**self.settings.length_penalty
        return len(found) >= wanted and _sorted(found)[wanted - 1].score >= hope

    def _add(self, to: _Found, number: int, beam: _Beam, seen: Tensor) -> None:
        """What follows the prompt, without the stop; two groups may find the same."""
        begin = self.plan.begin[number]
        ids, own = beam.ids[begin:], tuple(beam.own[begin:])
        score = beam.score / len(own) ** self.settings.length_penalty
        if self.settings.coverage_penalty:
            parts = seen[beam.row].tolist()
            score += self.settings.coverage_penalty * sum(math.log(min(1.0, max(each, _UNSEEN))) for each in parts)
        hypothesis = Hypothesis(ids if to is self.cut else ids[:-1], score, own)
        to[number][tuple(hypothesis.ids)] = hypothesis
        if self.observer is not None:
            self.observer.found(number, hypothesis)

    def _best(self, sentence: int) -> list[Hypothesis]:
        found = _sorted(self.finished[sentence]) + _sorted(self.cut[sentence])
        return found[: self.settings.n_best] or [Hypothesis([], 0.0)]


def _with_rows_in_order(sentences: list[_Sentence]) -> list[_Sentence]:
    """After the state was moved: each beam has a row of its own."""
    row = count()
    return [(number, [_Beam(next(row), *beam[1:]) for beam in beams]) for number, beams in sentences]


def _sorted(found: dict[tuple[int, ...], Hypothesis]) -> list[Hypothesis]:
    """The best first."""
    return sorted(found.values(), key=lambda each: -each.score)
