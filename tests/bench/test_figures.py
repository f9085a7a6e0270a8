from __future__ import annotations

import pytest

from clearhead.bench.figures import Figure


def test_a_figure_knows_whether_it_holds() -> None:
    assert Figure("x", 2.0, "s", 2.0).holds is True
    assert Figure("x", 2.1, "s", 2.0).holds is False
    assert Figure("x", 3.0, "s").holds is None


def test_some_figures_should_be_large() -> None:
    assert Figure("x", 2.0, "s", 2.0, bound="at least").holds is True
    assert Figure("x", 1.9, "s", 2.0, bound="at least").holds is False


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (Figure("x", 3.0, "s", 2.5), "≤ 2.5 s"),
        (Figure("x", 3.0, "", 2.0), "≤ 2"),
        (Figure("x", 3.0, "points", -2.0, bound="at least"), "≥ -2 points"),
        (Figure("x", 3.0, "s"), ""),
    ],
)
def test_limits_are_written_as_people_write_them(figure: Figure, said: str) -> None:
    assert figure.wanted == said


def test_the_document_has_the_verdict() -> None:
    assert Figure("x", 3.0, "×", 5.0, {"repeats": 7}).document() == {
        "what": "x",
        "value": 3.0,
        "unit": "×",
        "limit": 5.0,
        "detail": {"repeats": 7},
        "bound": "at most",
        "holds": True,
    }
