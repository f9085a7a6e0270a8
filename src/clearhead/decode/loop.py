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

from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from clearhead.decode.beam import BeamGroup
from clearhead.decode.logits import ANY_TOKEN, RowSampler, RowText, looks_back, row_generator
from clearhead.decode.lookup import PromptLookup
from clearhead.decode.pool import batch_pool
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
        if len(self.groups) > 1:
            self._merge()
        for group in self._turn():
            try:
                group.step()
            except Exception as problem:
                self.groups = [each for each in self.groups if each is not group]
                _fail(group.rows, problem)
        self.groups = [group for group in self.groups if group.rows]

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
        mergeable: list[SampleGroup] = []
        others: list[SampleGroup | BeamGroup] = []
        for group in self.groups:
            if isinstance(group, BeamGroup) or not group.is_mergeable:
                others.append(group)
            else:
                mergeable.append(group)
        merged: list[SampleGroup] = []
        while mergeable:
            first, *rest = mergeable
            merged.append(first)
            mergeable = first.merge(rest)
        self.groups = [*merged, *others]


def _fail(rows: Sequence[Row], problem: Exception) -> None:
    if any(row.on_error is None for row in rows):
        raise problem
    for row in rows:
        if row.on_error is not None:
            row.on_error(row, problem)


@dataclass(eq=False)
class _Member:
    """A row of a group, and how far it is."""

    row: Row
    read: int = 0  # tokens that the model has read
    score: float = 0.0
    logprobs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.row.settings
        self.ids = self.row.ids
        self.settings = settings.shared()
        self.begin, self.limit = len(self.row.prompt), self.row.limit
        self.prefix = settings.prefix_tokens
        self.lookup = PromptLookup()
        self.random: Callable[[], float] = _no_number
        if settings.temperature > 0:
            self.random = row_generator(settings.seed, self.row.row_seed).random
        self.looks_back = looks_back(settings)
        self.text = RowText(array("i", self.row.ids if self.looks_back else ()), prompt=self.begin)
        self.has_text = self.looks_back or bool(self.prefix)

    @property
    def unread(self) -> int:
        return len(self.ids) - self.read

    def text_so_far(self) -> RowText:
        """With the next token of the prefix as the forced one."""
        generated = len(self.row.ids) - self.begin
        self.text.forced = self.prefix[generated] if generated < len(self.prefix) else ANY_TOKEN
        return self.text

    def take(self, token: int, logprob: float, score: float, logits: Tensor | None) -> None:
        row, ids = self.row, self.ids
        end: EndReason | None = None
        if self.settings.return_logprobs:
            self.logprobs.append(logprob)
            self.score += score
        if token == row.stop or token in self.settings.stop_tokens:
            end = "stop"
        else:
            ids.append(token)
            if self.looks_back:
                self.text.ids.append(token)
            if len(ids) - self.begin >= self.limit:
                end = "length"
        if row.on_token is not None:
            row.on_token(Token(row, token, end, logprob, score, logits))
        if end is not None:
            row.finish(end, [self.hypothesis()])

    def see(self, heads: list[Tensor]) -> None:
        if self.row.on_seen is not None and heads:
            self.row.on_seen(heads)

    def hypothesis(self) -> Hypothesis:
        if not self.settings.return_logprobs:
            return Hypothesis(self.row.generated)
        length = max(1, len(self.logprobs))
        score = self.score / length**self.row.settings.length_penalty
        return Hypothesis(self.row.generated, score, tuple(self.logprobs))


def _no_number() -> float:
    return 0.0


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
        self._vocabulary = 0  # its size, once the settings were found to fit it
        self._sampled: list[_Member] | None = None  # those of the sampler
        self._has_text = False  # whether any of them looks back at its text
        self._seeing: list[_Member] | None = None  # those of the heads
        self._heads: list[Any] = []  # that any of them sees
        self._ahead = 0  # tokens that the state has read beyond the one that is being chosen

    @property
    def rows(self) -> list[Row]:
        """The rows that go on, in the order of the state."""
        return [member.row for member in self._members]

    @property
    def takes_single_tokens(self) -> bool:
        """Whether the next step reads one token of each row."""
        return min(member.unread for member in self._members) == 1

    @property
    def is_mergeable(self) -> bool:
        """Whether its rows go on token by token; a state that has read nothing may have one row for all."""
        return self.takes_single_tokens and self._members[0].read > 0

    @property
    def part(self) -> int:
        """The tokens of all rows that the next step reads."""
        rows = len(self._members)
        return rows * min(part_length(rows), *(member.unread for member in self._members))

    def merge(self, others: Sequence[SampleGroup]) -> list[SampleGroup]:
        """Take over the rows of other groups; those stay whose state the model cannot merge, or that are wrong."""
        vocabulary = self._vocabulary or getattr(self.model, "vocabulary_size", 0)
        fitting = [each for each in others if each._fits(vocabulary)] if self._fits(vocabulary) else []
        if not fitting:
            return list(others)
        state = self.model.merge([self.state, *(each.state for each in fitting)])  # type: ignore[attr-defined]
        if state is None:  # at least one is of another kind
            return [each for each in others if len(others) == 1 or self.merge([each])]
        self.state = state
        self._members = [member for group in (self, *fitting) for member in group._members]
        return [each for each in others if each not in fitting]

    def _fits(self, vocabulary: int) -> bool:
        """Whether the settings of all rows fit a vocabulary of this size; a group that does not fails by itself."""
        if self._vocabulary != vocabulary:
            try:
                self._check(vocabulary)
            except ConfigError:
                return False
        return vocabulary > 0

    def _check(self, vocabulary: int) -> None:
        for member in self._members:
            member.row.settings.check_vocabulary(vocabulary)
        self._vocabulary = vocabulary

    @torch.inference_mode()
    def step(self) -> None:
        """Read the next tokens of all rows, and choose one for each row that has no unread token left."""
        self._leave()
        if not self._members:
            return
        members = self._members
        count = min(part_length(len(members)), min([len(member.ids) - member.read for member in members]))
        ids = [member.ids[member.read : member.read + count] for member in members]
        guess = self._guess()
        if guess:
            ids = [ids[0] + guess]
        logits, seen = self._read(torch.tensor(ids, device=self.device), whole=bool(guess))  # (B, T or 1, V)
        if not self._vocabulary:
            self._check(logits.size(-1))
        for i, member in enumerate(members):
            member.read += count
            if member.read == member.begin and member.row.on_read is not None:
                member.row.on_read(self.state, i)
        if guess:
            self._choose_along(guess, logits, seen.get(0))
        else:
            for i, tensors in seen.items():
                self._members[i].see(tensors)
            self._choose(last_logits(logits))
        self._leave()

    def _read(self, ids: Tensor, whole: bool) -> tuple[Tensor, dict[int, list[Tensor]]]:
        """Tokens (B, T) -> the logits after the last, (B, 1, V), or those of all; and what some rows see of them."""
        wanting = [i for i, member in enumerate(self._members) if member.row.on_prompt and member.read < member.begin]
        seen, whole = dict[int, list[Tensor]](), whole or bool(wanting)
        if any(member.row.heads for member in self._members):
            logits, seen = self._see(ids, last=not whole)
        else:
            step = self.model.step if whole else getattr(self.model, "step_last", self.model.step)
            logits, self.state = step(ids, self.state)
        for i in wanting:
            start, end = self._members[i].read, self._members[i].begin
            self._members[i].row.on_prompt(logits[i, : end - start].float(), start)  # type: ignore[misc]
        return logits, seen

    def _see(self, ids: Tensor, last: bool) -> tuple[Tensor, dict[int, list[Tensor]]]:
        """Tokens (B, T) -> logits (B, T, V), or with `last` (B, 1, V); and the heads (T, keys) that rows see."""
        model: Any = self.model
        if self._seeing is not self._members:
            self._seeing = self._members
            self._heads = list(dict.fromkeys(head for member in self._members for head in member.row.heads))
        logits, found, self.state = model.step_seeing(ids, self.state, self._heads, last)
        of, seen = dict(zip(self._heads, found, strict=True)), dict[int, list[Tensor]]()
        if len(self._members) == 1:  # all of it is the only row's
            seen[0] = [of[head][0] for head in self._members[0].row.heads]
        else:
            for i, (member, keys) in enumerate(zip(self._members, model.seen_keys(self.state), strict=True)):
                seen[i] = [of[head][i, :, :keys].clone() for head in member.row.heads]
        for i in seen:
            self._members[i].row.see_rest = partial(self._see_rest, self._members[i])
        return logits, seen

    @torch.inference_mode()
    def _see_rest(self, member: _Member) -> None:
        """Read the last token of a row that has ended, which no step has read."""
        model: Any = self.model
        unread, row = member.row.ids[member.read :], member.row
        if unread:
            alone = model.reorder(self.state, torch.tensor([self._members.index(member)]))
            if self._ahead:
                alone = model.rewind(alone, self._ahead)
            _, found, alone = model.step_seeing(torch.tensor([unread]), alone, row.heads, last=True)
            member.see([each[0, :, : model.seen_keys(alone)[0]] for each in found])
            member.read += len(unread)

    def _guess(self) -> list[int]:
        """Tokens that the only row will perhaps choose, to be read in one step with its last."""
        if len(self._members) > 1 or not self._can_rewind:
            return []
        [member] = self._members
        ids, longest = member.row.ids, getattr(self.model, "max_length", None)
        most = member.begin + member.limit if longest is None else min(member.begin + member.limit, longest + 1)
        return member.lookup.guess(ids, most - len(ids) - 1) if member.unread == 1 else []

    def _choose_along(self, guess: Sequence[int], logits: Tensor, seen: list[Tensor] | None) -> None:
        """Choose tokens of the only row while the guess before them is right, logits (1, T, V); unread the rest."""
        [member] = self._members
        right = 0
        for place in range(logits.size(1)):
            before, self._ahead = len(member.row.ids), len(guess) - place
            if seen is not None:
                member.see([each[place : place + 1, : each.size(1) - self._ahead] for each in seen])
            self._choose(last_logits(logits[:, : place + 1]))
            chosen = member.row.ids[before:]
            if place == len(guess) or not member.row.active or chosen != [guess[place]]:
                break
            right += 1
            member.read += 1
        self._ahead = 0
        if right < len(guess):
            self.state = self.model.rewind(self.state, len(guess) - right)  # type: ignore[attr-defined]
        member.lookup.learn(len(guess), right)

    def _leave(self) -> None:
        """Rows that have ended or are cancelled leave the state."""
        kept = [i for i, member in enumerate(self._members) if member.row.active]
        if len(kept) < len(self._members):
            self.state = select_rows(self.model, self.state, kept, len(self._members), self.device)
            self._members = [self._members[i] for i in kept]

    def _choose(self, logits: Tensor) -> None:
        """The next token of each row that is at its end, logits (B, V)."""
        members = self._members
        rows = [i for i, member in enumerate(members) if len(member.ids) == member.read]
        for i in [i for i in rows if members[i].limit == 0]:
            members[i].row.finish("length", [members[i].hypothesis()])
            rows.remove(i)
        if not rows:
            return
        if len(rows) < len(members):
            members, logits = [members[i] for i in rows], logits[rows]
        sampler = self._sampler_of(members)
        texts = [member.text_so_far() for member in members] if self._has_text else None
        chosen = sampler(logits, [member.random() for member in members], texts)
        for i, (member, token, logprob, score) in enumerate(zip(members, *chosen, strict=True)):
            member.take(token, logprob, score, logits[i] if member.row.keep_logits else None)

    def _sampler_of(self, members: list[_Member]) -> RowSampler:
        """The sampler of these rows: the last one as long as they are the same."""
        if members is not self._sampled:
            make = getattr(self.model, "sampler", RowSampler)
            self._sampled, self._sampler = members, make([member.settings for member in members])
            self._has_text = any(member.has_text for member in members)
        return self._sampler


# --- many sources ---

BATCH = 64  # sources read together, by a model that does not say how many it reads fastest (`batch_size`)
SHARE = 16  # of them that are enough for a thread of their own


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
    rows: int | None = None,
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
    rows: int | None = None,
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
    most: int = getattr(model, "batch_size", BATCH) if rows is None else rows
    if threads > 1 and len(sources) >= threads * SHARE:  # no thread waits for the others between two layers
        rounds = -(-len(sources) // (most * threads))
        most = -(-len(sources) // (rounds * threads))
        if rounds == 1:
            order = [i for thread in range(threads) for i in order[thread::threads]]
    costs = [source_limit(source, settings) * settings.beam_width for source in sources]
    batches = list(_batches(order, costs, most, work))
    parallel = threads > 1 and len(batches) > 1
    found: dict[int, list[Hypothesis]] = {}  # by the index of the source
    running: deque[tuple[list[int], Future[list[list[Hypothesis]]]]] = deque()
    for batch in batches:
        if parallel and (work is None or costs[batch[0]] <= work):
            running.append((batch, batch_pool(threads).submit(lambda batch: finish(compute(batch)), batch)))
        else:
            found.update(zip(batch, (yield from compute(batch)), strict=True))
            yield
        if len(running) > threads:  # one waits for whichever thread is free first
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


def source_limit(source: Sequence[int], settings: Settings) -> int:
    """The maximum number of tokens generated for a source: twice its length and 12, and no more than max_tokens."""
    return min(settings.max_tokens, 2 * len(source) + 12)
