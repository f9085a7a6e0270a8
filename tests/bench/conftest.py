"""Candidates without processes: where a test is about what is measured, not about how."""

from __future__ import annotations

import pickle
from typing import Self

import pytest

from clearhead.bench import measure


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
