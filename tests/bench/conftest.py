"""Candidates without processes, where a test is about what is measured, not about how; a small quantised model."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Self

import pytest
from tests.interop.export.conftest import make_run

from clearhead.bench import measure
from clearhead.interop.exporting import export

__all__ = ["make_run"]
LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False, "dim": 64,
                         "heads": 4, "kv_heads": 2, "layers": 1, "inner": 96, "placement": "before",
                         "embedding_scale": 1.0}  # fmt: skip


class Here:
    """In place of a worker process: a candidate that is made from its pickle and takes its turns in this process."""

    def __init__(self, make: measure.MakeTurn):
        self.take: measure.Turn = pickle.loads(pickle.dumps(make))()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def turn(self) -> float:
        return measure._milliseconds(self.take)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_Worker", Here)


@pytest.fixture
def gguf_file(make_run: Any, tmp_path: Path) -> Path:
    pytest.importorskip("gguf")
    export("gguf", make_run("lm", size=330, **LLAMA), tmp_path / "out", "Q4_1")
    return tmp_path / "out" / "model.gguf"
