from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.config import ScheduleName
from clearhead.errors import ConfigError
from clearhead.train.schedules import Progress, factor, paper_rate

NAMES = get_args(ScheduleName)
shares = st.floats(0, 1)
warmups = st.floats(0.01, 1)


@given(st.sampled_from(NAMES), shares, warmups, shares)
def test_a_factor_is_a_share(name, progress, warmup, decay):
    assert 0 <= factor(name, progress, warmup, decay) <= 1


@given(st.sampled_from(NAMES), shares, st.floats(0.1, 0.9), st.floats(0.1, 1))
def test_it_never_jumps(name, progress, warmup, decay):
    step = 1e-6
    near = factor(name, max(0.0, progress - step), warmup, decay)
    assert abs(factor(name, progress, warmup, decay) - near) < 20 * step  # the steepest is a decay or warm-up of 0.1


@given(st.sampled_from(NAMES), st.lists(shares, min_size=2, max_size=2), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_it_rises_in_the_warmup_and_never_after_it(name, places, warmup, decay):
    low, high = sorted(places)
    first, second = factor(name, low * warmup, warmup, decay), factor(name, high * warmup, warmup, decay)
    assert first <= second
    low, high = (warmup + place * (1 - warmup) for place in (low, high))
    assert factor(name, low, warmup, decay) >= factor(name, high, warmup, decay)


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_at_zero_and_is_highest_where_the_warmup_ends(name):
    assert factor(name, 0.0, 0.2, 0.3) == 0.0
    assert factor(name, 0.05, 0.2, 0.3) == pytest.approx(0.25)
    assert factor(name, 0.2, 0.2, 0.3) == 1.0


@pytest.mark.parametrize(
    ("name", "half", "end"),
    [
        ("inverse_sqrt", math.sqrt(0.2 / 0.6), math.sqrt(0.2)),
        ("cosine", 0.5, 0.0),
        ("linear", 0.5, 0.0),
        ("stable", 1.0, 0.0),
    ],
)
def test_half_way_after_the_warmup_and_at_the_end(name, half, end):
    assert factor(name, 0.6, 0.2, 0.3) == pytest.approx(half)
    assert factor(name, 1.0, 0.2, 0.3) == pytest.approx(end)


def test_the_cosine_follows_its_curve_and_stable_falls_in_a_line():
    assert factor("cosine", 0.4, 0.2) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert factor("stable", 0.7, 0.1, 0.3) == 1.0
    assert factor("stable", 0.85, 0.1, 0.3) == pytest.approx(0.5)
    assert factor("stable", 1.0, 0.1, 0.0) == 1.0  # without a decay it stays


@pytest.mark.parametrize("name", [name for name in NAMES if name != "inverse_sqrt"])
def test_without_a_warmup_it_starts_at_the_highest(name):
    assert factor(name, 0.0, 0.0, 0.3) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_it_may_be_all_warmup(name):
    assert factor(name, 0.5, 1.0, 0.0) == 0.5
    assert factor(name, 1.0, 1.0, 0.0) == 1.0


def test_inverse_sqrt_needs_a_warmup():
    with pytest.raises(ConfigError, match=r"train\.warmup=0 leaves none; choose a warm-up above 0"):
        factor("inverse_sqrt", 0.5, 0.0)


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(2, 1024))
def test_inverse_sqrt_is_proportional_to_the_papers_formula(step, warmup, dim):
    highest = paper_rate(warmup, dim, warmup)
    assert paper_rate(step, dim, warmup) == pytest.approx(highest * factor("inverse_sqrt", step / 1000, warmup / 1000))


def test_the_papers_highest_rate():
    assert paper_rate(4000, 512, 4000) == pytest.approx(512**-0.5 * 4000**-0.5)


def test_progress_is_that_of_the_steps_or_of_the_minutes():
    progress = Progress(max_steps=100, max_minutes=2)
    assert progress.share(0) == 0.0
    assert progress.share(50) == 0.5
    assert progress.share(0.5) == 0.005
    progress.elapsed += 90
    assert progress.share(50) == 0.75
    assert progress.share(80) == 0.8
    assert progress.share(1000) == 1.0


def test_minutes_do_not_count_without_a_limit_and_come_back_after_an_interruption():
    progress = Progress(max_steps=10)
    progress.elapsed += 1e9
    assert progress.share(1) == 0.1
    assert Progress(10, 1, elapsed=30.0).share(1) == 0.5


def test_no_steps_are_done_at_once():
    assert Progress(0).share(0) == 1.0
