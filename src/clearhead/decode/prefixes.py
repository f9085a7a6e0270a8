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

    def shared(self, model: Stepper, window: int | None, prompt: Sequence[int]) -> int:
        """The number of tokens with which both prompts begin."""
        if self.model is not model or self.window != window:
            return 0
        pairs = enumerate(zip(self.prompt, prompt, strict=False))
        return next((i for i, (a, b) in pairs if a != b), min(len(self.prompt), len(prompt)))


class PrefixCache:
    """The prompts that were used last, up to `tokens` tokens together; for models with a method `prefix`."""

    def __init__(self, tokens: int):
        self.tokens = tokens
        self._entries: list[_Entry] = []  # the one used last at the end

    def start(self, model: Stepper, window: int | None, prompt: Sequence[int]) -> tuple[Any, int] | None:
        """A new state of one row that has read the beginning of a prompt, and how many tokens that is; or None.

        At least the last token is left to read: what follows the prompt is known from its logits.
        """
        best = max(self._entries, key=lambda entry: entry.shared(model, window, prompt), default=None)
        if best is None:
            return None
        shared = min(best.shared(model, window, prompt), len(prompt) - 1)
        if shared < SHORTEST:
            return None
        self._entries = [*(entry for entry in self._entries if entry is not best), best]
        state = model.prefix(best.state, 0, shared)  # type: ignore[attr-defined]
        return None if state is None else (state, shared)

    def keep(self, model: Stepper, window: int | None, prompt: Sequence[int], state: Any, row: int) -> None:
        """Keep the state of a row that has just read its prompt, in place of those that are a part of it."""
        if not SHORTEST <= len(prompt) <= self.tokens or getattr(model, "prefix", None) is None:
            return
        if any(entry.shared(model, window, prompt) == len(prompt) for entry in self._entries):
            return
        own = model.prefix(state, row, len(prompt))  # type: ignore[attr-defined]
        if own is None:
            return
        entry = _Entry(model, window, tuple(prompt), own)
        others = [each for each in self._entries if each.shared(model, window, prompt) < len(each.prompt)]
        self._entries = [*others, entry]
        while sum(len(each.prompt) for each in self._entries) > self.tokens:
            self._entries.pop(0)
