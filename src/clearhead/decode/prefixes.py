"""States of prompts that were read, for prompts that begin like one of them: only what differs is read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.decode.stepper import Stepper

SHORTEST = 8  # tokens that two prompts must share: to read fewer is as fast


@dataclass(frozen=True)
class _Entry:
    model: Stepper
    window: int | None
    prompt: tuple[int, ...]
    state: Any  # of one row that has read the prompt

    def shared(self, model: Stepper, window: int | None, prompt: tuple[int, ...]) -> int:
        """The number of tokens with which both prompts begin."""
        if self.model is not model or self.window != window:
            return 0
        equal, most = 0, min(len(self.prompt), len(prompt))
        if self.prompt[:most] == prompt[:most]:
            return most
        while most - equal > 1:  # the first tokens are `equal`, and a difference is among the first `most`
            middle = (equal + most) // 2
            if self.prompt[equal:middle] == prompt[equal:middle]:
                equal = middle
            else:
                most = middle
        return equal


class PrefixCache:
    """The prompts that were used last, up to `tokens` tokens together; for models with a method `prefix`."""

    def __init__(self, tokens: int):
        self.tokens = tokens
        self._entries: list[_Entry] = []  # the one used last at the end

    def start(self, model: Stepper, window: int | None, prompt: Sequence[int]) -> tuple[Any, int] | None:
        """A new state of one row that has read the beginning of a prompt, and how many tokens that is; or None.

        At least the last token is left to read: what follows the prompt is known from its logits.
        """
        shared = [entry.shared(model, window, tuple(prompt)) for entry in self._entries]
        length = min(max(shared, default=0), len(prompt) - 1)
        if length < SHORTEST:
            return None
        best = self._entries[shared.index(max(shared))]
        self._entries = [*(entry for entry in self._entries if entry is not best), best]
        state = model.prefix(best.state, 0, length)  # type: ignore[attr-defined]
        return None if state is None else (state, length)

    def keep(self, model: Stepper, window: int | None, prompt: Sequence[int], state: Any, row: int) -> None:
        """Keep the state of a row that has just read its prompt, in place of those that are a part of it."""
        if not SHORTEST <= len(prompt) <= self.tokens or getattr(model, "prefix", None) is None:
            return
        shared = [entry.shared(model, window, tuple(prompt)) for entry in self._entries]
        if len(prompt) in shared:
            return
        own = model.prefix(state, row, len(prompt))  # type: ignore[attr-defined]
        if own is None:
            return
        entry = _Entry(model, window, tuple(prompt), own)
        others = [each for each, length in zip(self._entries, shared, strict=True) if length < len(each.prompt)]
        self._entries = [*others, entry]
        while sum(len(each.prompt) for each in self._entries) > self.tokens:
            self._entries.pop(0)
