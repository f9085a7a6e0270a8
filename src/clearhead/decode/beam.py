"""Beam search: keep the K likeliest beginnings, and stop when no beginning can still win.

    score = Σ log p(token | those before it) / length^penalty

No token can raise the sum, so an open beginning never comes to more than its sum / longest^penalty: once the n best
finished hypotheses have that much, they are the n best. Beams can be divided into groups (Vijayakumar et al.): at each
step they choose in turn, and a token costs more for each beam of an earlier group that has chosen it. That price counts
for the choice alone, not for the score.

With a coverage penalty β (Wu et al.) a finished score is less by β Σ_i -log min(1, what was seen of part i of the
source). That is never negative, so what an open beginning may hope for stays the same.

    B sentences, K beams, G groups of W beams, T tokens so far, V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

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


@dataclass(frozen=True)
class _Beams:
    """The open hypotheses of all sentences that are not decided yet; a beam that is none has the score -∞."""

    sentence: list[int]  # B, which prompt each belongs to
    ids: Tensor  # (B, K, T) the prompt and what was written
    own: Tensor  # (B, K, T) float64, the model's log-probability of each token; 0 in the prompt
    score: Tensor  # (B, K) float64, the sum so far
    seen: Tensor  # (B, K, S) what was seen of each part of the source

    def keep(self, kept: list[int]) -> _Beams:
        """Some of the sentences."""
        if len(kept) == len(self.sentence):
            return self
        return _Beams([self.sentence[i] for i in kept], *(x[kept] for x in self.parts))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Its tensors, in their order."""
        return self.ids, self.own, self.score, self.seen


@dataclass(frozen=True)
class _Next:
    """What the model says about the next token of every beam."""

    logits: Tensor  # (B, K, V) its own
    shaped: Tensor  # (B, K, V) after the rules
    total: Tensor  # (B, K) log Σ exp logits: what makes a log-probability of a logit
    likeliest: tuple[Tensor, Tensor]  # (B, K, C) the largest of what is shaped, falling, and their tokens
    reading: list[bool]  # B, whether the token is one of the prompt, which costs nothing

    def costs(self, logits: Tensor, beam: Tensor, token: Tensor) -> Tensor:
        """The log-probabilities (B, N) of tokens (B, N) that follow beams (B, N)."""
        place = beam * logits.size(-1) + token
        cost = logits.flatten(1).gather(1, place).double() - self.total.gather(1, beam)
        if not any(self.reading):
            return cost
        return cost.masked_fill(self.is_reading & (cost > -torch.inf), 0.0)

    @property
    def is_reading(self) -> Tensor:
        """(B, 1)."""
        return torch.tensor(self.reading, device=self.total.device).unsqueeze(1)


@dataclass(frozen=True)
class _Candidates:
    """Continuations of the beams of each sentence."""

    beam: Tensor  # (B, N)
    token: Tensor  # (B, N)
    rank: Tensor  # (B, N) what decides, falling
    score: Tensor  # (B, N) the sum with this token
    own: Tensor  # (B, N) the model's log-probability of the token

    @classmethod
    def joined(cls, groups: list[_Candidates]) -> _Candidates:
        """Those of all groups."""
        parts = zip(*(vars(each).values() for each in groups), strict=True)
        return groups[0] if len(groups) == 1 else cls(*(torch.cat(part, dim=1) for part in parts))

    def best(self, count: int, hidden: Tensor) -> _Candidates:
        """The first of those that are not hidden (B, N); where too few are left, they have the score -∞."""
        rank, score = (x.masked_fill(hidden, -torch.inf) for x in (self.rank, self.score))
        places = rank.topk(count, dim=1).indices
        return _Candidates(*(x.gather(1, places) for x in (self.beam, self.token, rank, score, self.own)))


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
        model, sentences, device = self.model, self.plan.open(), self.plan.known.device
        state = move(model, state, sentences, len(self.plan.begin), device)
        beams, ids = self._begin(sentences), self.plan.filled(sentences)
        rows = [i for i in range(len(sentences)) for _ in range(self.settings.beams)]  # of the state, for each beam
        while beams.sentence:
            # logits (rows of the state, V)
            logits, look, state = read_and_look(model, ids, state, look=self.settings.coverage_penalty > 0)
            beams = replace(beams, seen=beams.seen + look[rows].view(*beams.score.shape, -1))
            beams, origin = self._extend(beams, logits if len(rows) == len(logits) else logits[rows])
            kept = self._undecided(beams)
            rows = [rows[beam] for i in kept for beam in origin[i]]
            state = move(model, state, rows, len(logits), device)
            beams, rows = beams.keep(kept), list(range(len(rows)))
            ids = beams.ids[:, :, -1].reshape(-1, 1)
        return [self._best(sentence) for sentence in range(len(self.finished))]

    def _begin(self, sentences: list[int]) -> _Beams:
        """All beams are the same at first: in each group only one of them may speak."""
        ids = self.plan.filled(sentences).unsqueeze(1).expand(-1, self.settings.beams, -1)  # (B, K, T)
        own = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
        score = torch.full(ids.shape[:2], -torch.inf, dtype=torch.float64, device=ids.device)
        score[:, :: self.width] = 0.0
        return _Beams(sentences, ids, own, score, seen=torch.zeros_like(own[:, :, :1]))

    def _extend(self, beams: _Beams, logits: Tensor) -> tuple[_Beams, list[list[int]]]:
        """Every beam by every token, logits (B × K, V): the best go on. Also of which of the B × K rows each was."""
        chosen = self._choose(beams, self._next(beams, logits))
        count, width = beams.score.shape
        origin = torch.arange(0, count * width, width, device=logits.device).unsqueeze(1) + chosen.beam  # (B, K)
        ids, own, seen = (x.flatten(0, 1)[origin] for x in (beams.ids, beams.own, beams.seen))  # (B, K, T or S)
        ids = torch.cat((ids, chosen.token.unsqueeze(-1)), dim=-1)
        own = torch.cat((own, chosen.own.unsqueeze(-1)), dim=-1)
        return _Beams(beams.sentence, ids, own, chosen.score, seen), origin.tolist()

    def _next(self, beams: _Beams, logits: Tensor) -> _Next:
        """Logits (B × K, V), and what the rules make of them."""
        self.settings.check_vocabulary(logits.size(-1))
        (count, width), place = beams.score.shape, beams.ids.size(-1)
        given = self.plan.at(place, beams.sentence)  # (B,)
        forced = None if given is None else given.repeat_interleave(width)
        shaped = follow(self.rules, only(logits, forced), beams.ids.flatten(0, 1))
        reading = [place < self.plan.begin[sentence] for sentence in beams.sentence]
        logit, token, total = best(self.model, logits, self._offers(logits))
        if shaped is not logits:
            logit, token, _ = best(self.model, shaped, self._offers(logits))
        each, shaped, logit, token = (x.view(count, width, -1) for x in (logits, shaped, logit, token))
        return _Next(each, shaped, total.view(count, width), (logit, token), reading)

    def _offers(self, logits: Tensor) -> int:
        """How many tokens of a beam can be among the best of its group."""
        return min(2 * self.width, logits.size(-1))

    def _choose(self, beams: _Beams, after: _Next) -> _Candidates:
        """The groups in turn: what stops is finished, the others go on, (B, K)."""
        chosen: list[_Candidates] = []
        for first in range(0, self.settings.beams, self.width):
            found = self._candidates(beams, after, first, chosen)
            stops = (found.token == self.plan.stop) & ~after.is_reading
            if stops.any():
                self._finish(beams, found, stops)
            chosen.append(found.best(self.width, hidden=stops))
            if self.observer is not None:
                self._tell(self.observer, beams, found, stops, chosen[-1])
        return _Candidates.joined(chosen)

    def _candidates(self, beams: _Beams, after: _Next, first: int, earlier: list[_Candidates]) -> _Candidates:
        """The 2W best continuations of a group's W beams: each beam can stop once, so that W of them go on."""
        group = slice(first, first + self.width)
        logit, token = (x[:, group] for x in after.likeliest)  # (B, W, C)
        if self.settings.diversity and earlier:
            offered = self._with_diversity(after.shaped[:, group], earlier)  # (B, W, V)
            logit, token = offered.topk(self._offers(offered), dim=-1)
        rank = (beams.score - after.total)[:, group].unsqueeze(-1) + logit
        rank, place = rank.flatten(1).topk(min(2 * self.width, rank[0].numel()), dim=1)  # (B, 2W)
        beam, token = first + place // logit.size(-1), token.flatten(1).gather(1, place)
        cost = after.costs(after.shaped, beam, token)
        own = after.costs(after.logits, beam, token) if self.rules else cost
        return _Candidates(beam, token, rank, beams.score.gather(1, beam) + cost, own)

    def _with_diversity(self, logits: Tensor, earlier: list[_Candidates]) -> Tensor:
        """(B, W, V), less the price of each token for each beam of the earlier groups that chose it."""
        price = torch.zeros_like(logits[:, 0])  # (B, V)
        for group in earlier:
            price.scatter_add_(1, group.token, self.settings.diversity * (group.score > -torch.inf).to(price.dtype))
        return logits - price.unsqueeze(1)

    def _finish(self, beams: _Beams, found: _Candidates, stops: Tensor) -> None:
        """Keep what stops; a stop below the W best would not have been kept as a beam either."""
        stops = stops & (found.score > -torch.inf)
        for i, j in stops[:, : self.width].nonzero().tolist():
            beam = int(found.beam[i, j])
            own = [*beams.own[i, beam].tolist(), float(found.own[i, j])]
            ids, seen = beams.ids[i, beam].tolist(), beams.seen[i, beam].tolist()
            self._add(self.finished, beams.sentence[i], ids, own, float(found.score[i, j]), seen)

    def _tell(self, observer: Observer, beams: _Beams, found: _Candidates, stops: Tensor, chosen: _Candidates) -> None:
        """What became of each candidate of a group; tokens of a prompt are none."""
        for i, sentence in enumerate(beams.sentence):
            kept = set(zip(chosen.beam[i].tolist(), chosen.token[i].tolist(), strict=True))
            parts = (found.beam, found.token, found.own, found.score, stops)
            rows = zip(*(part[i].tolist() for part in parts), strict=True)
            for place, (beam, token, own, score, stop) in enumerate(rows):
                ids = (*beams.ids[i, beam].tolist(), token)[self.plan.begin[sentence] :]
                stays = place < self.width if stop else (beam, token) in kept
                state: Fate = "dropped" if not stays else "finished" if stop else "kept"
                if ids and score > -torch.inf:
                    observer.considered(Considered(sentence, ids, own, score, state))

    def _undecided(self, beams: _Beams) -> list[int]:
        """The places of the sentences that go on; those at their longest length leave what is open as it is."""
        going, length = [], beams.ids.size(-1)
        for i, (sentence, scores) in enumerate(zip(beams.sentence, beams.score.tolist(), strict=True)):
            if self._decided(sentence, max(scores)):
                continue
            if length < self.plan.end[sentence]:
                going.append(i)
                continue
            for ids, own, score, seen in zip(*(x[i].tolist() for x in beams.parts), strict=True):
                if score > -torch.inf:
                    self._add(self.cut, sentence, ids, own, score, seen)
        return going

    def _decided(self, sentence: int, best: float) -> bool:
        """Whether nothing is open, or n are finished and no open beam can beat them, whatever comes."""
        found, wanted = _sorted(self.finished[sentence]), self.settings.n_best
        if best == -torch.inf or (found and self.settings.beams == 1):  # one beam is greedy: it ends at its first stop
            return True
        longest = self.plan.end[sentence] - self.plan.begin[sentence]
        return len(found) >= wanted and found[wanted - 1].score >= best / longest**self.settings.length_penalty

    def _add(
        self, to: _Found, sentence: int, ids: list[int], own: list[float], score: float, seen: list[float]
    ) -> None:
        """What follows the prompt; two groups may find the same."""
        begin = self.plan.begin[sentence]
        score /= (len(own) - begin) ** self.settings.length_penalty
        score += self.settings.coverage_penalty * sum(math.log(min(1.0, max(each, _UNSEEN))) for each in seen)
        hypothesis = Hypothesis(ids[begin:], score, tuple(own[begin:]))
        to[sentence][tuple(ids[begin:])] = hypothesis
        if self.observer is not None:
            self.observer.found(sentence, hypothesis)

    def _best(self, sentence: int) -> list[Hypothesis]:
        found = _sorted(self.finished[sentence]) + _sorted(self.cut[sentence])
        return found[: self.settings.n_best] or [Hypothesis([], 0.0)]


def _sorted(found: dict[tuple[int, ...], Hypothesis]) -> list[Hypothesis]:
    """The best first."""
    return sorted(found.values(), key=lambda each: -each.score)
