from __future__ import annotations

import pytest

from clearhead.engines import threads


def test_the_faster_number_of_threads_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {1: 5, 4: 1}  # with four threads a step takes less
    now = [0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    found = threads.ThreadChooser(most=4)
    for _ in range(2 * threads.TRIALS):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads]
    with found.choose(rows=9) as trial:
        assert trial.threads == 4
    with found.choose(rows=100) as trial:  # another size is tried anew
        assert trial.threads == 1


def test_the_choice_recovers_from_a_slow_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow = [0.0], {1: 5.0, 4: 1.0}
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    found, chosen = threads.ThreadChooser(most=4), []
    for step in range(200):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads] + (20 if trial.threads == 4 and step < 9 else 0)
        chosen.append(trial.threads)
    assert chosen[10] == 1  # when it was measured, four threads seemed slower
    assert set(chosen[-20:]) == {4}


def test_a_search_is_measured_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    found = threads.ThreadChooser(most=4)
    for _ in range(threads.TRIALS):  # a search counts as two
        with found.choose(rows=9) as trial:
            trial.steps = 30 if trial.threads == 4 else 10
            now[0] += 3.0 if trial.threads == 4 else 2.0
    with found.choose(rows=9) as trial:
        assert trial.threads == 4
