"""Beam search: keep the K most likely hypotheses, and stop when no open one can still win.

    score = Σ log p(token | tokens before it) / length^penalty

No token can raise the sum, so an open hypothesis never scores more than its sum / max_tokens^penalty: once the n best
finished hypotheses score at least that, they are the n best. Beams can be divided into groups (Vijayakumar et al.,
2016): at each step the groups choose in turn, and a token costs more for each beam of an earlier group that chose it.
That penalty counts for the choice alone, not for the score.

With a coverage penalty β (Wu et al., 2016) a finished score is lower by β Σ_i -log min(1, attention to source position
i). That is never negative, so the upper bound of an open hypothesis stays the same.

Open hypotheses are kept in plain Python: a step has a few candidates for each prompt, too few to be worth a tensor.

    R rows of the state, one for each open hypothesis, K beams, groups of W beams, C = 2W candidates, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from clearhead.decode.logits import ANY_TOKEN, apply_processors, force_token, logits_processors
from clearhead.decode.settings import Hypothesis, Prompts, Row, Settings
from clearhead.decode.stepper import Stepper, best, last_logits, part_length, select_rows, step_with_attention

CandidateState = Literal["kept", "dropped", "finished"]

_NO_ATTENTION = 1e-9  # the coverage of a source position that was never attended to


@dataclass(frozen=True)
class BeamCandidate:
    """One continuation that a step of the search considered, and what became of it."""

    row: int  # index of the prompt that it continues
    ids: tuple[int, ...]  # generated tokens, the new one last, without the prompt
    logprob: float  # the model's log-probability of the new token
    score: float  # the sum so far, the new token included
    state: CandidateState

    @property
    def token(self) -> int:
        return self.ids[-1]


class BeamObserver(Protocol):
    """Sees a search from inside."""

    def considered(self, candidate: BeamCandidate) -> None:
        """Called for each of the best continuations of a step; those that a processor forbids are left out."""
        ...

    def found(self, row: int, hypothesis: Hypothesis) -> None:
        """Called for each hypothesis that stopped or was cut at max_tokens."""
        ...


@torch.inference_mode()
def beam_search(
    model: Stepper, state: Any, prompts: Prompts, settings: Settings, observer: BeamObserver | None = None
) -> list[list[Hypothesis]]:
    """Continue each prompt: up to n hypotheses for each, the best first, and finished ones before cut ones."""
    rows = prompts.rows(settings)
    if rows:
        group = BeamGroup(model, rows, state, prompts.device, observer)
        while group.rows:
            group.step()
    return [row.hypotheses for row in rows]


class _Beam(NamedTuple):
    """An open hypothesis."""

    row: int  # of the state that it continues
    group: int
    ids: list[int]  # prompt and generated tokens
    logprobs: list[float]  # the model's log-probability of each token; 0 in the prompt
    score: float  # the sum so far


class _Candidate(NamedTuple):
    """A beam with one more token."""

    beam: _Beam
    token: int
    score: float  # the sum with this token
    logprob: float  # the model's log-probability of it

    def extended(self) -> _Beam:
        beam = self.beam
        return _Beam(beam.row, beam.group, [*beam.ids, self.token], [*beam.logprobs, self.logprob], self.score)


@dataclass(frozen=True)
class _NextTokens:
    """The C best next tokens of each row of the state, in the order of `ranking`, descending."""

    tokens: list[list[int]]
    ranking: list[list[float]]  # logits with the diversity penalty
    processed: list[list[float]]  # logits after the processors
    logits: list[list[float]]  # the model's own
    total: list[float]  # log Σ exp of the model's logits: logit - total = log-probability


_Found = dict[tuple[int, ...], Hypothesis]  # by tokens: two groups may find the same text


@dataclass(eq=False)
class _Search:
    """The search for one prompt."""

    row: Row
    beams: list[_Beam]
    finished: _Found = field(default_factory=dict)
    cut: _Found = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin = len(self.row.prompt)  # index of the first generated token
        self.known = [*self.row.prompt, *self.row.settings.prefix_tokens]

    def in_prompt(self, beam: _Beam) -> bool:
        """Whether the next token of a beam belongs to the prompt."""
        return len(beam.ids) < self.begin

    def best(self, count: int) -> list[Hypothesis]:
        found = _sorted(self.finished) + _sorted(self.cut)
        return found[:count] or [Hypothesis([], 0.0)]


class BeamGroup:
    """Beam searches with the same settings that share one state; each `step` extends all of them by one token."""

    def __init__(
        self,
        model: Stepper,
        rows: Sequence[Row],
        state: Any,
        device: torch.device | str = "cpu",
        observer: BeamObserver | None = None,
    ):
        self.model, self.device, self.observer = model, device, observer
        self.settings = rows[0].settings
        self.processors = logits_processors(self.settings)
        self.width = self.settings.beam_width // self.settings.beam_groups
        for row in rows:
            if row.limit == 0:
                row.finish("length", [Hypothesis([], 0.0)])
        open_rows = [i for i, row in enumerate(rows) if row.active]
        self.state = select_rows(model, state, open_rows, len(rows), device)
        shared = min((len(rows[i].prompt) for i in open_rows), default=0)
        prompts = [list(rows[i].prompt[:shared]) for i in open_rows]
        self._unread = torch.tensor(prompts, dtype=torch.int64, device=device)  # (R, T) tokens to read before a choice
        self._coverage: Tensor | None = None  # (R, S) attention to each source position so far
        self._searches = []
        for number, (i, ids) in enumerate(zip(open_rows, prompts, strict=True)):
            # One beam for each group: the beams of a group are equal until the first choice.
            groups = range(self.settings.beam_groups)
            self._searches.append(_Search(rows[i], [_Beam(number, g, ids, [0.0] * len(ids), 0.0) for g in groups]))

    @property
    def rows(self) -> list[Row]:
        """The rows whose search goes on."""
        return [search.row for search in self._searches]

    @property
    def takes_single_tokens(self) -> bool:
        """Whether the next step reads one token of each hypothesis."""
        return self._unread.size(1) == 1

    @property
    def part(self) -> int:
        """The tokens of all rows that the next step reads."""
        rows, tokens = self._unread.shape
        return rows * min(part_length(rows), tokens)

    @torch.inference_mode()
    def step(self) -> None:
        """One token for every open hypothesis, or one part of the prompts."""
        if any(not search.row.active for search in self._searches):
            self._drop([search for search in self._searches if search.row.active])
        if not self._searches:
            return
        size = part_length(len(self._unread))
        logits = self._read(self._unread[:, :size])  # (R, V)
        self._unread = self._unread[:, size:]
        if self._unread.size(1) == 0:
            self._extend(logits)
            self._searches = self._undecided()
            self._reorder(len(logits))

    def _read(self, ids: Tensor) -> Tensor:
        """Tokens (R, T) -> the logits (R, V) after the last."""
        if not self.settings.coverage_penalty:
            logits, self.state = self.model.step(ids, self.state)
            return last_logits(logits)
        logits, attention, self.state = step_with_attention(self.model, ids, self.state)
        self._coverage = attention if self._coverage is None else self._coverage + attention
        return last_logits(logits)

    def _extend(self, logits: Tensor) -> None:
        """Every beam by every token, logits (R, V): the groups choose in turn which of theirs go on."""
        processed = self._processed(logits)
        chosen: list[list[_Candidate]] = [[] for _ in self._searches]
        after = self._next_tokens(logits, processed, processed)
        for group in range(self.settings.beam_groups):
            if group and self.settings.diversity_penalty:
                after = self._next_tokens(logits, processed, processed - self._penalty(chosen, processed))
            for search, so_far in zip(self._searches, chosen, strict=True):
                beams = [beam for beam in search.beams if beam.group == group]
                so_far += self._choose(search, self._candidates(search, beams, after))
        for search, going in zip(self._searches, chosen, strict=True):
            search.beams = [each.extended() for each in going]

    def _processed(self, logits: Tensor) -> Tensor:
        """Logits (R, V) after prompt and prefix tokens are forced and the processors applied."""
        self.settings.check_vocabulary(logits.size(-1))
        position = len(self._searches[0].beams[0].ids)  # all beams are equally long
        if not self.processors and all(position >= len(search.known) for search in self._searches):
            return logits
        rows = {beam.row: (search, beam.ids) for search in self._searches for beam in search.beams}
        ordered = [rows[row] for row in range(len(logits))]
        forced = [search.known[position] if position < len(search.known) else ANY_TOKEN for search, _ in ordered]
        so_far = torch.tensor([ids for _, ids in ordered], device=logits.device)  # (R, T)
        forced_tokens = torch.tensor(forced, device=logits.device)  # (R,)
        prompts = torch.tensor([len(search.row.prompt) for search, _ in ordered], device=logits.device)  # (R,)
        return apply_processors(self.processors, force_token(logits, forced_tokens), so_far, prompts)

    def _next_tokens(self, logits: Tensor, processed: Tensor, ranking: Tensor) -> _NextTokens:
        """All three (R, V): the model's own, after the processors, and with the diversity penalty."""
        value, token, total = best(self.model, ranking, min(2 * self.width, logits.size(-1)))
        total = total if ranking is logits else logits.logsumexp(-1)
        values = value.tolist()
        after = values if processed is ranking else processed.gather(1, token).tolist()
        own = after if logits is processed else logits.gather(1, token).tolist()
        return _NextTokens(token.tolist(), values, after, own, total.tolist())

    def _penalty(self, earlier: list[list[_Candidate]], like: Tensor) -> Tensor:
        """(R, V): the diversity penalty of each token, for each beam of the earlier groups that chose it."""
        entries = [
            (beam.row, each.token)
            for search, chosen in zip(self._searches, earlier, strict=True)
            for beam in {beam.row: beam for beam in search.beams}.values()
            for each in chosen
        ]
        penalty = torch.zeros_like(like)
        if entries:
            row, token = torch.tensor(entries, device=like.device).T
            penalty.index_put_((row, token), like.new_tensor(self.settings.diversity_penalty), accumulate=True)
        return penalty

    def _candidates(self, search: _Search, beams: list[_Beam], after: _NextTokens) -> Iterator[_Candidate]:
        """The 2W best continuations of a group's W beams: each beam can stop once, so that W of them go on."""
        offers = [
            (before + logit, beam, index)
            for beam in beams
            for before in (beam.score - after.total[beam.row],)
            for index, logit in enumerate(after.ranking[beam.row])
        ]
        offers.sort(key=itemgetter(0), reverse=True)  # of equal ones that of the earlier beam is first
        for ranking, beam, index in offers[: 2 * self.width]:
            if ranking == -math.inf:
                return
            row, total = beam.row, after.total[beam.row]
            gain, logprob = after.processed[row][index] - total, after.logits[row][index] - total
            if search.in_prompt(beam):  # a token of the prompt costs nothing
                gain = logprob = 0.0
            yield _Candidate(beam, after.tokens[row][index], beam.score + gain, logprob)

    def _choose(self, search: _Search, candidates: Iterator[_Candidate]) -> list[_Candidate]:
        """The W candidates that go on. One that stops is finished if it ranks among the first W, else dropped."""
        going: list[_Candidate] = []
        for rank, each in enumerate(candidates):
            if rank >= self.width == len(going) and self.observer is None:
                break
            ends = each.token == search.row.stop or each.token in self.settings.stop_tokens
            stops = ends and not search.in_prompt(each.beam)
            stays = rank < self.width if stops else len(going) < self.width
            if self.observer is not None:
                self._report(self.observer, search, each, "dropped" if not stays else "finished" if stops else "kept")
            if stays and stops:
                self._add(search, search.finished, each.extended())
            elif stays:
                going.append(each)
        return going

    def _report(self, observer: BeamObserver, search: _Search, each: _Candidate, state: CandidateState) -> None:
        """Tell the observer what became of a candidate; tokens of a prompt are no candidates."""
        if ids := (*each.beam.ids, each.token)[search.begin :]:
            observer.considered(BeamCandidate(search.row.index, ids, each.logprob, each.score, state))

    def _undecided(self) -> list[_Search]:
        """The searches that go on; the others resolve their rows. At max_tokens open hypotheses are cut."""
        going = []
        for search in self._searches:
            if self._decided(search):
                self._finish(search)
            elif len(search.beams[0].ids) < search.begin + search.row.limit:
                going.append(search)
            else:
                for beam in search.beams:
                    self._add(search, search.cut, beam)
                self._finish(search)
        return going

    def _decided(self, search: _Search) -> bool:
        """Whether nothing is open, or n hypotheses are finished and no open one can beat them."""
        found, count = search.finished, self.settings.n_best
        highest = max((beam.score for beam in search.beams), default=-math.inf)
        if highest == -math.inf or (found and self.settings.beam_width == 1):  # one beam ends at its first stop
            return True
        bound = highest / search.row.limit**self.settings.length_penalty
        return len(found) >= count and _sorted(found)[count - 1].score >= bound

    def _finish(self, search: _Search) -> None:
        hypotheses = search.best(self.settings.n_best)
        search.row.ids += hypotheses[0].ids
        search.row.finish("stop" if hypotheses[0].finished else "length", hypotheses)

    def _add(self, search: _Search, to: _Found, beam: _Beam) -> None:
        """Store the hypothesis of a beam, without prompt and stop token."""
        ids, logprobs = beam.ids[search.begin :], tuple(beam.logprobs[search.begin :])
        score = beam.score / len(logprobs) ** self.settings.length_penalty
        if self._coverage is not None:
            attention = self._coverage[beam.row].tolist()
            logs = (math.log(min(1.0, max(each, _NO_ATTENTION))) for each in attention)
            score += self.settings.coverage_penalty * sum(logs)
        hypothesis = Hypothesis(ids if to is search.cut else ids[:-1], score, logprobs)
        to[tuple(hypothesis.ids)] = hypothesis
        if self.observer is not None:
            self.observer.found(search.row.index, hypothesis)

    def _reorder(self, count: int) -> None:
        """Give each beam a row of the state; their last tokens are read next."""
        beams = [beam for search in self._searches for beam in search.beams]
        self._select([beam.row for beam in beams], count)
        self._unread = torch.tensor([[beam.ids[-1]] for beam in beams], device=self.device)
        row = iter(range(len(beams)))
        for search in self._searches:
            search.beams = [_Beam(next(row), *beam[1:]) for beam in search.beams]

    def _drop(self, kept: list[_Search]) -> None:
        self._searches = kept
        rows = list(dict.fromkeys(beam.row for search in kept for beam in search.beams))
        self._select(rows, len(self._unread))
        self._unread = self._unread[rows]
        for search in kept:
            search.beams = [_Beam(rows.index(beam.row), *beam[1:]) for beam in search.beams]

    def _select(self, rows: list[int], count: int) -> None:
        self.state = select_rows(self.model, self.state, rows, count, self.device)
        self._coverage = None if self._coverage is None else self._coverage[rows]


def _sorted(found: _Found) -> list[Hypothesis]:
    return sorted(found.values(), key=lambda each: -each.score)
