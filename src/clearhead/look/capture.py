"""Named probes: what a model computes, seen while it computes as always.

    with capture(model, "decoder.*.cross.weights", "encoder.2.hidden") as seen:
        model(source, target)
    seen["decoder.0.cross.weights"]        # (B, H, T, S)

The names are those of `probes.py`; `*` and `?` stand for any letters. Only what is asked for is computed, and only for
the `heads` that are asked for; with `stop`, the pass ends as soon as all of it was seen, so that the first layer of
twelve costs a twelfth. Nothing in the model changes, and the hooks are gone afterwards, whatever happens. A part that
computes several times, as in writing token by token, leaves what it computed last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase, translate
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.call import SEEN
from clearhead.look.look import span
from clearhead.look.probes import Computed, Heads, Instead, Probe, probes

Keep = Callable[[str, Tensor], None]  # the name of a probe, and what was seen


class _AllSeen(BaseException):
    """Ends a forward pass whose answer nobody waits for; no error, so nobody on the way may take it for one."""


@contextmanager
def capture(
    model: nn.Module, *patterns: str, heads: int | Sequence[int] | None = None, stop: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Record what the patterns name, the batch in front, each time the model is called.

    With `stop` the block ends where the model has computed all of it, and what comes after the call is not reached.
    """
    chosen: Heads = None if heads is None else [heads] if isinstance(heads, int) else list(heads)
    wanted = choose(probes(model), patterns)
    _check_heads(wanted, chosen)
    seen: dict[str, Tensor] = {}
    ended = _AllSeen()

    def keep(name: str, tensor: Tensor) -> None:
        seen[name] = tensor
        if stop and len(seen) == len(wanted):
            raise ended

    with ExitStack() as until_the_end:
        for name, probe in wanted.items():
            recorder = _recorder(keep, name, probe, chosen)
            if probe.instead is None or chosen is not None or _is_replaced(probe.module):
                until_the_end.callback(probe.module.register_forward_hook(recorder, with_kwargs=True).remove)
            else:
                vars(probe.module)["forward"] = _computing(probe.instead, probe.module, partial(keep, name), recorder)
                until_the_end.callback(vars(probe.module).pop, "forward")
        try:
            yield seen
        except _AllSeen as reason:
            if reason is not ended:  # but that of a capture around this one
                raise


def _is_replaced(module: nn.Module) -> bool:
    """Whether somebody, perhaps another capture, lets it compute in his own way: then that is what counts."""
    return "forward" in vars(module)


def _recorder(keep: Keep, name: str, probe: Probe, heads: Heads) -> Any:
    def record(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], gave: Any) -> None:
        with torch.no_grad():
            keep(name, probe.read(Computed(module, given, named, gave), heads).detach())

    return record


def _computing(instead: Instead, module: nn.Module, keep: Callable[[Tensor], None], recorder: Any) -> Any:
    """A `forward` that computes by what is seen; in training it computes as always, and what is seen is recomputed."""
    forward = module.forward

    def compute(*given: Any) -> Tensor:
        if torch.is_grad_enabled() or module.training:
            gave: Tensor = forward(*given)
            recorder(module, given, {}, gave)
        else:
            gave, seen = instead(*given)
            keep(seen)
        return gave

    return compute


def choose(known: dict[str, Probe], patterns: Sequence[str]) -> dict[str, Probe]:
    """The probes that any of the patterns names; a pattern that names none is refused."""
    if not patterns:
        raise ProbeError("there is nothing to capture: name some probes, such as encoder.*.self.weights")
    named: set[str] = set()
    for pattern in patterns:
        fits = re.compile(translate(pattern)).match
        found = [name for name in known if fits(name)]
        if not found:
            raise ProbeError(f"this model has no {pattern}: {_what_there_is(known, pattern)}")
        named.update(found)
    return {name: probe for name, probe in known.items() if name in named}


def _what_there_is(known: dict[str, Probe], pattern: str) -> str:
    """How far the names go along with the pattern, and what could stand there instead."""
    if pattern.split(".")[-1] in SEEN and not any(probe.heads for probe in known.values()):
        return f"it does not attend; it has {_listed(known) or 'nothing to see'}"
    left = [name.split(".") for name in known]
    for place, word in enumerate(pattern.split(".")):
        going_on = [words for words in left if len(words) > place and fnmatchcase(words[place], word)]
        if not going_on:
            there = _listed({words[place] for words in left if len(words) > place})
            before = ".".join(pattern.split(".")[:place])
            return f"after {before} comes {there}" if before else f"a name begins with {there}"
        left = going_on
    return f"it goes on with {_listed({words[place + 1] for words in left if len(words) > place + 1})}"


def _listed(words: Any) -> str:
    """Words and numbers: `0 to 5, embedded`."""
    numbers = [word for word in words if word.isdigit()]
    named = sorted(word for word in words if not word.isdigit())
    return ", ".join([*([span(len(numbers))] if numbers else []), *named])


def _check_heads(wanted: dict[str, Probe], heads: Heads) -> None:
    for name, probe in wanted.items():
        for head in heads or []:
            if probe.heads is not None and not 0 <= head < probe.heads:
                layer = name.rsplit(".", 1)[0]
                raise ProbeError(f"{layer} has no head {head}; choose from {span(probe.heads)}")
