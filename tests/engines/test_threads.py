from __future__ import annotations

import pytest

from clearhead.engines import threads


def test_threads_are_chosen_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {1: 5, 4: 1}  # with four threads a step takes less
    now = [0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    found = threads.Threads(most=4)
    for _ in range(2 * threads.TRIALS):
        with found.chosen(rows=9) as number:
            now[0] += slow[number]
    with found.chosen(rows=9) as number:
        assert number == 4
    with found.chosen(rows=100) as number:  # another size is tried anew
        assert number == 1
