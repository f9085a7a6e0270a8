"""The token loop: rows that generate one token per step, joining and leaving between two steps.

    loop = TokenLoop(model)
    loop.add([Row(prompt, settings, stop, on_token=print)], model.start())
    while loop.active:
        loop.step()

`generate` and `stream_tokens` are the loop for prompts that start together, `generate_batch` for many sources: those of
similar length are read together, and the results come back in order.

Rows that are added together share a state of the model. Prompts of unequal length need no padding: all rows read the
tokens of the shortest prompt at once, and from then on one token per step each, the next one of their prompt while it
lasts, then the one they have chosen. So all rows of a state are equally long, and each has read what it would have read
alone. Groups that were added at different times stay apart, unless the model can merge states of unequal length.

    B rows, T tokens, S source tokens, V vocabulary
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from clearhead.decode.beam import BeamGroup
from clearhead.decode.logits import (
    ANY_TOKEN,
    apply_processors,
    force_token,
    logits_processors,
    make_sampler,
    row_generator,
)
from clearhead.decode.lookup import PromptLookup
from clearhead.decode.settings import EndReason, Hypothesis, Prompts, Row, Settings, Token
from clearhead.decode.stepper import PART, Stepper, last_logits, part_length, select_rows
from clearhead.errors import ConfigError

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]  # a computation that pauses between steps: to drop it is to cancel it


def generate(model: Stepper, state: Any, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
    """Continue each prompt until the stop token or max_tokens: the hypotheses of each, the best first."""
    return finish(generation_steps(model, state, prompts, settings))


def generation_steps(
    model: Stepper, state: Any, prompts: Prompts, settings: Settings, work: int | None = None
) -> Steps[list[list[Hypothesis]]]:
    """What `generate` returns, step by step; a search of the model's own is one step, if it is within `work`."""
    can_search = getattr(model, "can_search", None)
    cost = sum(prompts.limits(settings)) * settings.beam_width
    if can_search is not None and (work is None or cost <= work) and can_search(state, prompts, settings):
        found: list[list[Hypothesis]] = model.search(state, prompts, settings)  # type: ignore[attr-defined]
        return found
    rows, loop = prompts.rows(settings), TokenLoop(model, prompts.device)
    loop.add(rows, state)
    while loop.active:
        loop.step()
        yield
    return [row.hypotheses for row in rows]


def finish(steps: Steps[T]) -> T:
    """What a computation returns after its last step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def stream_tokens(model: Stepper, state: Any, prompts: Prompts, settings: Settings) -> Iterator[list[Token]]:
    """What `generate` generates, as it comes: after each step the new token of every row that goes on."""
    if settings.beam_width > 1:
        raise ConfigError(f"beam_width={settings.beam_width} is decided at the end; only beam_width=1 can be streamed")
    tokens: list[Token] = []
    rows, loop = prompts.rows(settings), TokenLoop(model, prompts.device)
    for row in rows:
        row.on_token = tokens.append
    loop.add(rows, state)
    while loop.active:
        loop.step()
        if new := [token for token in tokens if token.end != "stop"]:
            yield new
        tokens.clear()


class TokenLoop:
    """All rows that one model generates, in groups that share a state."""

    def __init__(self, model: Stepper, device: torch.device | str = "cpu"):
        self.model, self.device = model, device
        self.groups: list[SampleGroup | BeamGroup] = []

    @property
    def active(self) -> bool:
        return bool(self.groups)

    @property
    def rows(self) -> list[Row]:
        """The rows of all groups, in the order of their states."""
        return [row for group in self.groups for row in group.rows]

    @torch.inference_mode()
    def add(self, rows: Sequence[Row], state: Any, read: int = 0) -> None:
        """Let rows join that share a new state, row i of it for rows[i]; rows that search must have equal settings.

        The state may have `read` the first tokens of every prompt, but not the last; not for rows that search.
        """
        if not rows:
            return
        searches = {row.settings.shared() for row in rows if row.settings.beam_width > 1}
        if len(searches) > 1 or (searches and any(row.settings.beam_width == 1 for row in rows)):
            raise ConfigError("rows that share a beam search must have the same settings; add them separately")
        group: SampleGroup | BeamGroup
        if searches:
            group = BeamGroup(self.model, rows, state, self.device)
        else:
            group = SampleGroup(self.model, rows, state, self.device, read)
        if group.rows:
            self.groups.append(group)

    def step(self) -> None:
        """One token for every row, or a part of its prompt. Rows that have ended or are cancelled leave."""
        for group in self._turn():
            try:
                group.step()
            except Exception as problem:
                self.groups = [each for each in self.groups if each is not group]
                _fail(group.rows, problem)
        self.groups = [group for group in self.groups if group.rows]
        if len(self.groups) > 1:
            self._merge()

    def _turn(self) -> list[SampleGroup | BeamGroup]:
        """The groups of the next step: all that generate, and so many that read prompts that no row waits long."""
        if len(self.groups) == 1:
            return self.groups
        generating: list[SampleGroup | BeamGroup] = []
        reading: list[SampleGroup | BeamGroup] = []
        waiting: list[SampleGroup | BeamGroup] = []
        tokens = 0
        for group in self.groups:
            if group.takes_single_tokens:
                generating.append(group)
            elif tokens < PART:
                reading.append(group)
                tokens += group.part
            else:
                waiting.append(group)
        self.groups = [*generating, *waiting, *reading]  # those that waited are the first of the next step
        return [*generating, *reading]

    def _merge(self) -> None:
        """Unite groups that go on token by token, if the model can."""
        if getattr(self.model, "merge", None) is None:
            return
        merged: list[SampleGroup] = []
        others: list[SampleGroup | BeamGroup] = []
        for group in self.groups:
            if isinstance(group, BeamGroup) or not group.takes_single_tokens:
                others.append(group)
            elif not any(each.merge(group) for each in merged):
                merged.append(group)
        self.groups = [*merged, *others]


def _fail(rows: Sequence[Row], problem: Exception) -> None:
    if any(row.on_error is None for row in rows):
        raise problem
    for row in rows:
        if row.on_error is not None:
            row.on_error(row, problem)


class _Policy:
    """How the next token is chosen, for all rows with the same settings."""

    def __init__(self, settings: Settings):
        self.processors, self.sampler = logits_processors(settings), make_sampler(settings)
        self.is_random, self.return_logprobs = settings.temperature > 0, settings.return_logprobs
        self.needs_tokens = settings.repetition_penalty != 1 or settings.no_repeat_ngram > 0  # those so far


_policy = lru_cache(maxsize=256)(_Policy)


@dataclass(eq=False)
class _Member:
    """A row of a group, and how far it is."""

    row: Row
    read: int = 0  # tokens that the model has read
    score: float = 0.0
    logprobs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.row.settings
        self.policy = _policy(settings.shared())
        self.begin, self.limit = len(self.row.prompt), self.row.limit
        self.prefix = settings.prefix_tokens
        self.lookup = PromptLookup()
        self.random: Random | None = None
        if self.policy.is_random:
            self.random = row_generator(settings.seed, self.row.row_seed)

    @property
    def unread(self) -> int:
        return len(self.row.ids) - self.read

    def forced(self) -> int:
        """The next token of the prefix, or ANY_TOKEN."""
        generated = len(self.row.ids) - self.begin
        return self.prefix[generated] if generated < len(self.prefix) else ANY_TOKEN

    def take(self, token: int, logprob: float, score: float, logits: Tensor | None) -> None:
        row = self.row
        end: EndReason | None = None
        if self.policy.return_logprobs:
            self.logprobs.append(logprob)
            self.score += score
        if token == row.stop:
            end = "stop"
        else:
            row.ids.append(token)
            if len(row.ids) - self.begin >= self.limit:
                end = "length"
        if row.on_token is not None:
            row.on_token(Token(row, token, end, logprob, score, logits))
        if end is not None:
            row.finish(end, [self.hypothesis()])

    def hypothesis(self) -> Hypothesis:
        if not self.policy.return_logprobs:
            return Hypothesis(self.row.generated)
        length = max(1, len(self.logprobs))
        score = self.score / length**self.row.settings.length_penalty
        return Hypothesis(self.row.generated, score, tuple(self.logprobs))


class SampleGroup:
    """Greedy and sampled rows that share one state, each with its own settings."""

    def __init__(
        self, model: Stepper, rows: Sequence[Row], state: Any, device: torch.device | str = "cpu", read: int = 0
    ):
        self.model, self.device = model, device
        self._can_rewind = getattr(model, "rewind", None) is not None
        members = [_Member(row, read) for row in rows]
        for member in members:
            if member.limit == 0 and member.row.on_prompt is None:
                member.row.finish("length", [member.hypothesis()])
        kept = [i for i, member in enumerate(members) if member.row.active]
        self.state = select_rows(model, state, kept, len(rows), device)
        self._members = [members[i] for i in kept]
        self._checked = False  # that the settings fit the vocabulary

    @property
    def rows(self) -> list[Row]:
        """The rows that go on, in the order of the state."""
        return [member.row for member in self._members]

    @property
    def takes_single_tokens(self) -> bool:
        """Whether the next step reads one token of each row."""
        return min(member.unread for member in self._members) == 1

    @property
    def part(self) -> int:
        """The tokens of all rows that the next step reads."""
        rows = len(self._members)
        return rows * min(part_length(rows), *(member.unread for member in self._members))

    def merge(self, other: SampleGroup) -> bool:
        """Take over the rows of another group, if the model can merge the two states."""
        state = self.model.merge([self.state, other.state])  # type: ignore[attr-defined]
        if state is None:
            return False
        self.state, self._members = state, [*self._members, *other._members]
        return True

    @torch.inference_mode()
    def step(self) -> None:
        """Read the next tokens of all rows, and choose one for each row that has no unread token left."""
        self._leave()
        if not self._members:
            return
        count = min(part_length(len(self._members)), *(member.unread for member in self._members))
        ids = [member.row.ids[member.read : member.read + count] for member in self._members]
        guess = self._guess()
        if guess:
            ids = [ids[0] + guess]
        whole = guess or self._wants_prompt
        step = self.model.step if whole else getattr(self.model, "step_last", self.model.step)
        logits, self.state = step(torch.tensor(ids, device=self.device), self.state)  # (B, T or 1, V)
        if not self._checked:
            for member in self._members:
                member.row.settings.check_vocabulary(logits.size(-1))
            self._checked = True
        for member, own in zip(self._members, logits, strict=True) if self._wants_prompt else ():
            if member.row.on_prompt is not None and member.read < member.begin:
                member.row.on_prompt(own[: member.begin - member.read].float(), member.read)
        for i, member in enumerate(self._members):
            member.read += count
            if member.read == member.begin and member.row.on_read is not None:
                member.row.on_read(self.state, i)
        if guess:
            self._choose_along(guess, logits)
        else:
            self._choose(last_logits(logits))
        self._leave()

    def _guess(self) -> list[int]:
        """Tokens that the only row will perhaps choose, to be read in one step with its last."""
        if len(self._members) > 1 or not self._can_rewind:
            return []
        [member] = self._members
        ids, longest = member.row.ids, getattr(self.model, "max_length", None)
        most = member.begin + member.limit if longest is None else min(member.begin + member.limit, longest + 1)
        return member.lookup.guess(ids, most - len(ids) - 1) if member.unread == 1 else []

    def _choose_along(self, guess: Sequence[int], logits: Tensor) -> None:
        """Choose tokens of the only row while the guess before them is right, logits (1, T, V); unread the rest."""
        [member] = self._members
        right = 0
        for place in range(logits.size(1)):
            before = len(member.row.ids)
            self._choose(last_logits(logits[:, : place + 1]))
            chosen = member.row.ids[before:]
            if place == len(guess) or not member.row.active or chosen != [guess[place]]:
                break
            right += 1
            member.read += 1
        if right < len(guess):
            self.state = self.model.rewind(self.state, len(guess) - right)  # type: ignore[attr-defined]
        member.lookup.learn(len(guess), right)

    def _leave(self) -> None:
        """Rows that have ended or are cancelled leave the state."""
        kept = [i for i, member in enumerate(self._members) if member.row.active]
        if len(kept) < len(self._members):
            self.state = select_rows(self.model, self.state, kept, len(self._members), self.device)
            self._members = [self._members[i] for i in kept]

    @property
    def _wants_prompt(self) -> bool:
        return any(member.row.on_prompt is not None and member.read < member.begin for member in self._members)

    def _choose(self, logits: Tensor) -> None:
        """The next token of each row that is at its end, logits (B, V)."""
        batches: dict[tuple[_Policy, int], list[int]] = defaultdict(list)  # rows that are processed together
        for i, member in enumerate(self._members):
            if member.unread == 0 and member.limit == 0:
                member.row.finish("length", [member.hypothesis()])
            elif member.unread == 0:
                length = member.read if member.policy.needs_tokens else 0
                batches[member.policy, length].append(i)
        chosen: list[tuple[int, int, float, float]] = []  # row, token, log-probability, score
        for rows in batches.values():
            own = logits if len(rows) == len(logits) else logits[rows]
            chosen += zip(rows, *self._choose_batch([self._members[i] for i in rows], own), strict=True)
        for i, token, logprob, score in sorted(chosen) if len(batches) > 1 else chosen:
            member = self._members[i]
            member.take(token, logprob, score, logits[i] if member.row.keep_logits else None)

    def _choose_batch(self, members: Sequence[_Member], logits: Tensor) -> tuple[list[int], list[float], list[float]]:
        """Rows with one policy, logits (B, V) -> the token of each, its log-probability and its score."""
        policy = members[0].policy
        forced = [member.forced() for member in members]
        processed = logits
        if any(token != ANY_TOKEN for token in forced):
            processed = force_token(logits, torch.tensor(forced, device=logits.device))
        if policy.processors:
            so_far = [member.row.ids for member in members] if policy.needs_tokens else [[] for _ in members]
            so_far_tokens = torch.tensor(so_far, dtype=torch.int64, device=logits.device)  # (B, T)
            processed = apply_processors(policy.processors, processed, so_far_tokens)
        random = [member.random.random() if member.random is not None else 0.0 for member in members]
        token = policy.sampler(processed, random)  # (B,)
        if not policy.return_logprobs:
            nothing = [math.nan] * len(members)
            return token.tolist(), nothing, nothing
        total, index = logits.logsumexp(-1), token.unsqueeze(1)  # (B,), (B, 1)
        own, score = (x.gather(1, index).squeeze(1) - total for x in (logits, processed))
        return token.tolist(), own.tolist(), score.tolist()


# --- many sources ---

BATCH = 64  # sources read together


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of padding, start and stop."""

    pad: int
    start: int
    stop: int | None
    ends_source: bool = True  # the stop token stands after a source too


class SourceStepper(Stepper, Protocol):
    """A stepper that first reads a source."""

    def start(self, source: Tensor, /) -> Any:
        """Padded sources (B, S) -> the state before the first token."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


def generate_batch(
    model: SourceStepper,
    sources: Sequence[Sequence[int]],
    special: SpecialTokens,
    settings: Settings,
    rows: int = BATCH,
    threads: int = 1,
    row_seeds: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, the best first; a text is at most `source_limit` long.

    `row_seeds` are those of the sources, instead of 0, 1, 2, … With several threads as many batches are computed side
    by side: worth it where a step releases Python's lock.
    """
    return finish(batch_steps(model, sources, special, settings, rows, threads, row_seeds=row_seeds))


def batch_steps(
    model: SourceStepper,
    sources: Sequence[Sequence[int]],
    special: SpecialTokens,
    settings: Settings,
    rows: int = BATCH,
    threads: int = 1,
    work: int | None = None,
    row_seeds: Sequence[int] | None = None,
) -> Steps[list[list[Hypothesis]]]:
    """What `generate_batch` returns, step by step; `work` limits the tokens × beams of a step."""
    device = next(model.parameters()).device

    def compute(indices: Sequence[int]) -> Steps[list[list[Hypothesis]]]:
        limits = [source_limit(sources[i], settings) for i in indices]
        seeds = indices if row_seeds is None else [row_seeds[i] for i in indices]
        prompts = Prompts([[special.start]] * len(indices), special.stop, limits, row_seeds=seeds, device=device)
        end = [special.stop] if special.ends_source else []
        stopped = [torch.tensor([*sources[i], *end]) for i in indices]
        with torch.inference_mode():
            state = model.start(pad_sequence(stopped, batch_first=True, padding_value=special.pad).to(device))  # (B, S)
        found = yield from generation_steps(model, state, prompts, settings, work)
        return found

    order = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
    costs = [source_limit(source, settings) * settings.beam_width for source in sources]
    batches = list(_batches(order, costs, rows, work))
    parallel = threads > 1 and len(batches) > 1
    found: dict[int, list[Hypothesis]] = {}  # by the index of the source
    running: deque[tuple[list[int], Future[list[list[Hypothesis]]]]] = deque()
    for batch in batches:
        if parallel and (work is None or costs[batch[0]] <= work):
            running.append((batch, _pool(threads).submit(lambda batch: finish(compute(batch)), batch)))
        else:
            found.update(zip(batch, (yield from compute(batch)), strict=True))
            yield
        if len(running) == threads:
            first, computed = running.popleft()
            found.update(zip(first, computed.result(), strict=True))
            yield
    for batch, computed in running:
        found.update(zip(batch, computed.result(), strict=True))
    return [found[i] for i in range(len(sources))]


def _batches(order: Sequence[int], costs: Sequence[int], rows: int, work: int | None) -> Iterator[list[int]]:
    """The longest first, so that what is left at the end is short."""
    batch: list[int] = []
    for i in order:
        # The first of a batch is its longest: the others take as many steps.
        full = work is not None and batch and (len(batch) + 1) * costs[batch[0]] > work
        if full or len(batch) == rows:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool for the process: the C library keeps memory for every new thread."""
    return ThreadPoolExecutor(threads, thread_name_prefix="clearhead-batch")


def source_limit(source: Sequence[int], settings: Settings) -> int:
    """The maximum number of tokens generated for a source: twice its length and 12, and no more than max_tokens."""
    return min(settings.max_tokens, 2 * len(source) + 12)
