from __future__ import annotations

import doctest

import pytest

from clearhead import errors


def test_the_examples_in_the_docstrings() -> None:
    result = doctest.testmod(errors)
    assert result.attempted == 3
    assert result.failed == 0


def test_every_error_is_drawn_in_the_tree() -> None:
    defined = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.ClearheadError)}
    assert errors.__doc__ is not None
    assert defined == {word for word in errors.__doc__.split() if word.endswith("Error")}


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (errors.DataError("is empty", path="a.tsv"), "a.tsv: is empty"),
        (errors.DataError("is odd", line=7), "line 7: is odd"),
        (errors.DataError("no data"), "no data"),
    ],
)
def test_a_data_error_says_as_much_of_the_place_as_it_knows(error: errors.DataError, sentence: str) -> None:
    assert str(error) == sentence
