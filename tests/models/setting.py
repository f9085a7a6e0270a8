"""What the tests of all models share: unequal sizes, every system in every shape, and a short training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor, nn

from clearhead.config import AnyConfig
from clearhead.models.config import ContextName
from clearhead.nn import CELLS as CELL_REGISTRY
from clearhead.nn import SCORES as SCORE_REGISTRY
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

B, S, T, V = 3, 7, 5, 13
PATCH, CHANNELS, HEIGHT, WIDTH = 2, 3, 4, 10
PATCHES = 2 * 5
DIM, CLASSES, PAD = 22, 11, 0
SIZES = Sizes(vocabulary=V, classes=CLASSES, channels=CHANNELS, height=HEIGHT, width=WIDTH, pad=PAD)
SMALL: dict[str, Any] = {"dim": DIM, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.0, "max_length": 19}
CELLS, CONTEXTS, SCORES = CELL_REGISTRY.builtin(), get_args(ContextName), SCORE_REGISTRY.builtin()


@dataclass(frozen=True)
class System:
    """One model: a task, and what of its configuration is not the default."""

    task: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join([self.task, *(f"{key}={value}" for key, value in self.settings.items())])

    def build(self, seed: int = 0, **settings: Any) -> Any:
        """The model, always the same for the same seed."""
        torch.manual_seed(seed)
        return build_network(self.config(**settings), SIZES)

    def config(self, **settings: Any) -> AnyConfig:
        size = {"patch": PATCH} if self.task in ("vision", "caption") else {}
        return TASKS[self.task].config_type().model_validate({"model": {**SMALL, **size, **self.settings, **settings}})

    def sources(self, rows: int = B) -> tuple[Tensor, ...]:
        """What is read before anything is written: a sentence, an image, or nothing."""
        return {"translate": lambda: (sentences(rows, S),), "caption": lambda: (images(rows),), "lm": lambda: ()}[
            self.task
        ]()


def sentences(rows: int, length: int) -> Tensor:
    return torch.randint(1, V, (rows, length))


def images(rows: int) -> Tensor:
    return torch.randn(rows, CHANNELS, HEIGHT, WIDTH)


def doubled(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Pixels in float64, ids as they are."""
    return tuple(x.double() if x.is_floating_point() else x for x in tensors)


def systems(task: str, *settings: dict[str, Any]) -> Iterator[System]:
    return (System(task, each) for each in settings)


RNN: dict[str, Any] = {"architecture": "rnn"}
TRANSFORMERS: list[dict[str, Any]] = [
    {"positions": "learned", "tied": False},
    {"positions": "rotary", "heads": 11},
    {"positions": "alibi"},
    {"positions": "t5"},
    {"window": 3},
    {"placement": "after", "score": "additive"},
]
# Every model once, in each of its cells and contexts.
MODELS = [
    *systems("translate", {}, *({**RNN, "cell": cell, "context": context} for cell in CELLS for context in CONTEXTS)),
    *systems("lm", {}, *({**RNN, "cell": cell} for cell in CELLS)),
    *systems("caption", {"architecture": "cross"}, {"architecture": "sequence"}),
    *systems("caption", *({**RNN, "cell": cell} for cell in CELLS)),
]
VARIATIONS = [
    *systems("translate", *TRANSFORMERS),
    *systems("translate", *({**RNN, "score": score} for score in SCORES if score != "scaled_dot")),
    *systems("translate", {**RNN, "hard": True}, {**RNN, "tied": False, "layers": 1}),
    *systems("lm", *TRANSFORMERS),
    *systems("lm", {**RNN, "tied": False, "layers": 1}),
    *systems("caption", *({"architecture": "cross", **each} for each in TRANSFORMERS)),
    *systems("caption", *({"architecture": "sequence", **each} for each in TRANSFORMERS)),
    *systems("caption", {"architecture": "sequence", "positions": "learned", "position_concat": True, "tied": False}),
]
WRITERS = MODELS + VARIATIONS


def assert_every_parameter_learns(model: nn.Module) -> None:
    """After a backward pass. A bias of all keys moves every score alike, so the softmax does not feel it."""
    still = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None
        or not parameter.grad.isfinite().all()
        or not (parameter.grad.any() or name.endswith("key.bias"))
    ]
    assert still == []


def memorise(model: nn.Module, loss: Callable[[], Tensor], steps: int = 300, learning_rate: float = 0.01) -> float:
    """The loss on one batch after training on nothing else; ends as soon as it is small."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(steps):
        value = loss()
        if value < 0.05:
            break
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(loss().detach())
