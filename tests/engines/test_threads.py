from __future__ import annotations

import pytest

from clearhead.engines import threads


def test_threads_are_chosen_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {1: 5, 4: 1}  # with four threads a step takes less
    now = [0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    found = threads.Threads(most=4)
    for _ in range(2 * threads.TRIALS):
        with found.chosen(rows=9) as trial:
            now[0] += slow[trial.threads]
    with found.chosen(rows=9) as trial:
        assert trial.threads == 4
    with found.chosen(rows=100) as trial:  # another size is tried anew
        assert trial.threads == 1
