"""In-context learning: a language model answers as the examples in its prompt do, and no weight changes.

    Input: a warm, funny film
    Output: positive

    Input: two hours of my life
    Output:                         <- how likely is each label here?

All prompts begin with the same examples: these are read once, and every text continues from their cache.

    N prompts, C continuations, B rows, T tokens, V vocabulary
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.data.dataset import read
from clearhead.errors import ConfigError, DataError
from clearhead.nn.positions import length_limit

if TYPE_CHECKING:
    from clearhead.tasks.lm import LanguageModel

FORMAT = "Input: {input}\nOutput: {output}\n\n"
ROWS = 16  # texts that are read together: each has its own copy of the cache


@dataclass(frozen=True)
class Shots:
    """Examples of inputs with their outputs, and how they are written into a prompt."""

    examples: Sequence[tuple[str, str]]
    form: str = FORMAT

    def __post_init__(self) -> None:
        if [self.form.count(field) for field in ("{input}", "{output}")] != [1, 1] or not self._before("{output}"):
            raise ConfigError(f"the format {self.form!r} must have {{input}} once, and after it {{output}} once")

    def prompt(self, text: str) -> str:
        """All examples, and a text whose output is to follow."""
        examples = "".join(_filled(self.form, *example) for example in self.examples)
        return examples + _filled(self._before("{output}").rstrip(), text)

    def continuation(self, output: str) -> str:
        """An output as it follows a prompt: after a space, where the format has one."""
        before = self._before("{output}")
        return before[len(before.rstrip()) :] + output

    @property
    def stop(self) -> str:
        """What follows an output: the end of its line if the format does not say."""
        return self.form.partition("{output}")[2][:1] or "\n"

    def _before(self, field: str) -> str:
        before = self.form.partition(field)[0]
        return before if "{input}" in before else ""


def _filled(form: str, text: str, output: str = "") -> str:
    """A format with its fields replaced; what is put in is not searched for fields."""
    before, _, after = form.partition("{input}")
    between, field, end = after.partition("{output}")
    return before + text + between + (output + end if field else "")


def read_shots(path: str) -> list[tuple[str, str]]:
    """The inputs and outputs of a file of labelled texts or of pairs."""
    dataset = read(path, validation=0)
    if dataset.kind == "labelled":
        return [(each.text, each.label) for each in dataset.train]
    if dataset.kind == "pairs":
        return [(each.source, each.target) for each in dataset.train]
    raise DataError(f"has {dataset.kind}; examples are labelled texts or pairs of texts", path=path)


def draw_shots(examples: Sequence[tuple[str, str]], count: int, seed: int) -> tuple[list[int], list[int]]:
    """The numbers of `count` random examples, and of all others; those of a larger count begin with the same."""
    if count >= len(examples):
        raise ConfigError(f"{count} shots of {len(examples)} examples leave none to be scored; use fewer shots")
    order = Random(seed).sample(range(len(examples)), len(examples))
    return order[:count], sorted(order[count:])


@torch.inference_mode()
def continuation_logprobs(
    model: LanguageModel,
    prompts: Sequence[str],
    continuations: Sequence[str],
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Tensor:
    """log p(continuation | prompt), (N, C); prompt and continuation are tokenised together, as one text."""
    rows = [_Row.of(model, prompt, continuations) for prompt in prompts]
    longest = max((len(row.head) + max(map(len, row.tails)) for row in rows), default=0)
    if (most := length_limit(model.network)) is not None and longest > most:
        raise ConfigError(f"a prompt has {longest:,} tokens and {model.name} reads {most:,}; use fewer shots")
    network: Any = model.network
    window, found, done = model.window(longest), torch.empty(len(rows), len(continuations)), 0
    shared = rows[0].head[: shared_length([row.head[:-1] for row in rows])] if rows else []
    start = network.start() if window is None else network.start(window=window)
    if shared:
        _, start = network.step(torch.tensor([shared]), start)
    for indices in _equally_long(rows):
        batch = [rows[i] for i in indices]
        heads = torch.tensor([row.head[len(shared) :] for row in batch])  # (B, T)
        state = deepcopy(start)
        if shared:
            state = network.reorder(state, torch.zeros(len(batch), dtype=torch.long))
        logits, state = network.step(heads, state)
        first = logits[:, -1].log_softmax(-1)  # (B, V)
        for number in range(len(continuations)):
            tails = [torch.tensor(row.tails[number]) for row in batch]
            found[indices, number] = _tail_logprobs(network, state, first, tails)
        done += len(batch)
        on_progress(done, len(rows))
    return found


@dataclass(frozen=True)
class _Row:
    """A prompt and its continuations as ids; a head may end before the prompt, where a token crosses its end."""

    head: list[int]
    tails: list[list[int]]  # C, each with a token or more

    @classmethod
    def of(cls, model: LanguageModel, prompt: str, continuations: Sequence[str]) -> _Row:
        alone, whole = model.prompt_ids(prompt), [model.prompt_ids(prompt + each) for each in continuations]
        cut = shared_length([alone, *(ids[:-1] for ids in whole)])
        if not cut:
            raise ConfigError(f"the prompt {prompt!r} gives no token before its continuation; begin it with a word")
        return cls(whole[0][:cut], [ids[cut:] for ids in whole])


def shared_length(rows: Sequence[Sequence[int]]) -> int:
    """How many tokens all rows begin with."""
    return next((place for place, ids in enumerate(zip(*rows, strict=False)) if len(set(ids)) > 1), min(map(len, rows)))


def _equally_long(rows: Sequence[_Row]) -> Iterator[list[int]]:
    """Numbers of rows in batches whose heads have one length: nothing is padded."""
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        by_length[len(row.head)].append(number)
    for numbers in by_length.values():
        yield from (numbers[start : start + ROWS] for start in range(0, len(numbers), ROWS))


def _tail_logprobs(network: Any, state: Any, first: Tensor, tails: Sequence[Tensor]) -> Tensor:
    """(B,): the sum over the tokens of each tail, of which `first` (B, V) predicts the first."""
    ids = pad_sequence(list(tails), batch_first=True)  # (B, T); causal: padding at the end changes nothing before it
    total = first.gather(1, ids[:, :1]).squeeze(1)
    if ids.size(1) == 1:
        return total
    logits, _ = network.step(ids[:, :-1], deepcopy(state))
    later: Tensor = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)  # (B, T - 1)
    real = torch.arange(1, ids.size(1)) < torch.tensor([len(tail) for tail in tails]).unsqueeze(1)
    return total + later.where(real, 0.0).sum(1)
