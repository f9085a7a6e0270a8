"""What a user may not set, and the one sentence that says so."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from clearhead.decode import Settings
from clearhead.errors import ConfigError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"longest": -1}, "longest=-1 must be 0 or more"),
    ({"beams": 0}, "beams=0 must be 1 or more"),
    ({"beams": -3}, "beams=-3 must be 1 or more"),
    ({"beams": 4, "n_best": 0}, "n_best=0 must be 1 or more"),
    ({"beams": 4, "n_best": 5}, "n_best=5 hypotheses need as many beams, and beams=4"),
    ({"beams": 4, "groups": 0}, "groups=0 must be 1 or more"),
    ({"beams": 4, "groups": 3}, "beams=4 cannot be divided into groups=3"),
    ({"beams": 4, "diversity": 0.5}, "diversity=0.5 is between groups, and groups=1; choose more groups"),
    ({"beams": 4, "groups": 2, "diversity": -1.0}, "diversity=-1.0 must be 0 or more"),
    ({"beams": 4, "coverage_penalty": -0.2}, "coverage_penalty=-0.2 must be 0 or more"),
    (
        {"coverage_penalty": 0.2},
        "coverage_penalty=0.2 ranks what a search finds, and beams=1; choose more beams",
    ),
    ({"length_penalty": -0.5}, "length_penalty=-0.5 must be 0 or more"),
    ({"length_penalty": math.nan}, "length_penalty=nan must be 0 or more"),
    ({"no_repeat": -2}, "no_repeat=-2 must be 0 or more"),
    ({"repetition_penalty": 0.9}, "repetition_penalty=0.9 must be 1 or more"),
    ({"temperature": -0.1}, "temperature=-0.1 must be 0 or more"),
    ({"temperature": math.nan}, "temperature=nan must be 0 or more"),
    ({"top_k": 0}, "top_k=0 must be 1 or more"),
    ({"top_p": 0.0}, "top_p=0.0 must be above 0 and at most 1"),
    ({"top_p": 1.1}, "top_p=1.1 must be above 0 and at most 1"),
    ({"min_p": 1.0}, "min_p=1.0 must be 0 or more and below 1"),
    ({"min_p": -0.1}, "min_p=-0.1 must be 0 or more and below 1"),
    ({"seed": -1}, "seed=-1 must be 0 or more"),
    ({"banned": (3, -1)}, "banned token -1 is negative; tokens count from 0"),
    ({"forced": (-7,)}, "forced token -7 is negative; tokens count from 0"),
    ({"forced": (3, 5), "banned": (5, 8)}, "token 5 is both forced and banned"),
    ({"beams": 4, "temperature": 0.7}, "temperature=0.7 draws at random and beams=4 searches; choose one of them"),
    ({"beams": 4, "top_k": 7}, "top_k=7 draws at random and beams=4 searches; choose one of them"),
    ({"beams": 4, "top_p": 0.9}, "top_p=0.9 draws at random and beams=4 searches; choose one of them"),
    ({"beams": 4, "min_p": 0.1}, "min_p=0.1 draws at random and beams=4 searches; choose one of them"),
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
        {"longest": 0, "seed": 0, "top_p": 1, "length_penalty": 0},
        {"beams": 6, "n_best": 6, "groups": 3, "diversity": 0.5, "seed": 3, "no_repeat": 2, "repetition_penalty": 1.2},
        {"temperature": 2.0, "top_k": 5, "top_p": 0.1, "min_p": 0.99, "forced": (1, 2), "banned": (0, 3)},
    ],
)
def test_what_goes_together_is_taken(values: dict[str, Any]) -> None:
    assert Settings.of(**values) == Settings(**values)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting tempreture; did you mean temperature\?$"):
        Settings.of(tempreture=1.0)


@pytest.mark.parametrize("name", ["forced", "banned"])
def test_a_token_outside_the_vocabulary_is_refused(name: str) -> None:
    Settings(**{name: (12,)}).check_vocabulary(13)
    with pytest.raises(ConfigError, match=rf"^{name} token 13 is not in the vocabulary of 13 tokens$"):
        Settings(**{name: (5, 13)}).check_vocabulary(13)


def test_settings_and_streams_of_text_need_no_torch() -> None:
    code = "import sys; from clearhead.decode import Settings, pieces; Settings(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
