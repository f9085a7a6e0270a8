"""Invalid settings, and the error message of each."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from clearhead.decode import Settings
from clearhead.errors import ConfigError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": -1}, "max_tokens=-1 must be 0 or more"),
    ({"beam_width": 0}, "beam_width=0 must be 1 or more"),
    ({"beam_width": -3}, "beam_width=-3 must be 1 or more"),
    ({"beam_width": 4, "n_best": 0}, "n_best=0 must be 1 or more"),
    ({"beam_width": 4, "n_best": 5}, "n_best=5 needs at least as many beams, and beam_width=4"),
    ({"beam_width": 4, "beam_groups": 0}, "beam_groups=0 must be 1 or more"),
    ({"beam_width": 4, "beam_groups": 3}, "beam_width=4 is not divisible by beam_groups=3"),
    ({"beam_width": 4, "diversity_penalty": 0.5}, "diversity_penalty=0.5 needs more than one group, and beam_groups=1"),
    ({"beam_width": 4, "beam_groups": 2, "diversity_penalty": -1.0}, "diversity_penalty=-1.0 must be 0 or more"),
    ({"beam_width": 4, "coverage_penalty": -0.2}, "coverage_penalty=-0.2 must be 0 or more"),
    ({"coverage_penalty": 0.2}, "coverage_penalty=0.2 ranks the results of a beam search, and beam_width=1"),
    ({"length_penalty": -0.5}, "length_penalty=-0.5 must be 0 or more"),
    ({"length_penalty": math.nan}, "length_penalty=nan must be 0 or more"),
    ({"no_repeat_ngram": -2}, "no_repeat_ngram=-2 must be 0 or more"),
    ({"repetition_penalty": 0.9}, "repetition_penalty=0.9 must be 1 or more"),
    ({"temperature": -0.1}, "temperature=-0.1 must be 0 or more"),
    ({"temperature": math.nan}, "temperature=nan must be 0 or more"),
    ({"top_k": 0}, "top_k=0 must be 1 or more"),
    ({"top_p": 0.0}, "top_p=0.0 must be above 0 and at most 1"),
    ({"top_p": 1.1}, "top_p=1.1 must be above 0 and at most 1"),
    ({"min_p": 1.0}, "min_p=1.0 must be 0 or more and below 1"),
    ({"min_p": -0.1}, "min_p=-0.1 must be 0 or more and below 1"),
    ({"seed": -1}, "seed=-1 must be 0 or more"),
    ({"banned_tokens": (3, -1)}, "banned_tokens: token -1 is negative; tokens count from 0"),
    ({"prefix_tokens": (-7,)}, "prefix_tokens: token -7 is negative; tokens count from 0"),
    ({"prefix_tokens": (3, 5), "banned_tokens": (5, 8)}, "token 5 is in both prefix_tokens and banned_tokens"),
    (
        {"beam_width": 4, "temperature": 0.7},
        "temperature=0.7 is for sampling and beam_width=4 for beam search; choose one of them",
    ),
    ({"beam_width": 4, "top_k": 7}, "top_k=7 is for sampling and beam_width=4 for beam search; choose one of them"),
    ({"beam_width": 4, "top_p": 0.9}, "top_p=0.9 is for sampling and beam_width=4 for beam search; choose one of them"),
    ({"beam_width": 4, "min_p": 0.1}, "min_p=0.1 is for sampling and beam_width=4 for beam search; choose one of them"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_wrong_value_is_refused_with_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(**values)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"max_tokens": 0, "seed": 0, "top_p": 1, "length_penalty": 0},
        {
            "beam_width": 6,
            "n_best": 6,
            "beam_groups": 3,
            "diversity_penalty": 0.5,
            "seed": 3,
            "no_repeat_ngram": 2,
            "repetition_penalty": 1.2,
        },
        {"temperature": 2.0, "top_k": 5, "top_p": 0.1, "min_p": 0.99, "prefix_tokens": (1, 2), "banned_tokens": (0, 3)},
    ],
)
def test_valid_combinations_are_accepted(values: dict[str, Any]) -> None:
    assert Settings.create(**values) == Settings(**values)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting tempreture; did you mean temperature\?$"):
        Settings.create(tempreture=1.0)


@pytest.mark.parametrize("name", ["prefix_tokens", "banned_tokens"])
def test_a_token_outside_the_vocabulary_is_refused(name: str) -> None:
    Settings(**{name: (12,)}).check_vocabulary(13)
    with pytest.raises(ConfigError, match=rf"^{name}: there is no token 13 in the vocabulary of 13 tokens$"):
        Settings(**{name: (5, 13)}).check_vocabulary(13)


def test_one_token_at_least_must_be_left() -> None:
    Settings(banned_tokens=(0, 1, 1)).check_vocabulary(3)
    with pytest.raises(ConfigError, match=r"^banned_tokens: these are all 3 tokens of the vocabulary; leave out at"):
        Settings(banned_tokens=(0, 1, 2)).check_vocabulary(3)


def test_settings_and_streams_of_text_need_no_torch() -> None:
    code = (
        "import sys; from clearhead.decode import Settings, text_pieces; Settings(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_former_name_leads_to_the_present_one() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting beams; it is called beam_width$"):
        Settings.create(beams=4)
