"""Objects of the user's own classes in a run: a network or a tokenizer that no configuration describes.

Only the weights of such a network are saved, and nothing of the tokenizer: RUN/own.json has the names of their
classes, and whoever uses the run gives them again. To do without that, register a task (docs/extending.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from clearhead.errors import ConfigError, RunError
from clearhead.files import write_text
from clearhead.models.own import with_steps
from clearhead.run import Run, Sizes
from clearhead.text import Tokenizer
from clearhead.text.own import OwnTokenizer, as_tokenizer

OWN = "own.json"


@dataclass(frozen=True)
class Own:
    """What the user gives instead of what the configuration describes."""

    model: nn.Module | Callable[[Sizes], nn.Module] | None = None  # or a function that builds it
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, model: Any = None, tokenizer: Any = None) -> Own:
        """From any objects that can serve."""
        if model is not None and not callable(model):
            raise ConfigError(f"model={model!r} is neither a torch.nn.Module nor a function that builds one")
        return cls(model, None if tokenizer is None else as_tokenizer(tokenizer))

    def build(self, sizes: Sizes) -> nn.Module | None:
        """The network for data of these sizes; None if it is the configuration's."""
        if self.model is None:
            return None
        network = self.model if isinstance(self.model, nn.Module) else self.model(sizes)
        if not isinstance(network, nn.Module):
            raise ConfigError(f"model= gave {type(network).__name__}, which is not a torch.nn.Module")
        return with_steps(network)

    def write(self, run: Run, network: nn.Module) -> None:
        """Note in a run which of its objects are the user's own."""
        names = {}
        if self.model is not None:
            names["model"] = type(network).__name__
        if isinstance(self.tokenizer, OwnTokenizer):
            names["tokenizer"] = type(self.tokenizer.given).__name__
        if names:
            write_text(run.path / OWN, json.dumps(names))

    def check(self, run: Run) -> None:
        """Refuse a run whose objects were not given."""
        path = run.path / OWN
        names = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        given = {"model": self.model, "tokenizer": self.tokenizer}
        if missing := {kind: name for kind, name in names.items() if given[kind] is None}:
            what = " and ".join(f"a {kind} of your own class {name}" for kind, name in missing.items())
            keywords = ", ".join(f"{kind}={name}(…)" for kind, name in missing.items())
            raise RunError(f"{run.path} has {what}; load it from Python: clearhead.load({str(run.path)!r}, {keywords})")


NOTHING = Own()
