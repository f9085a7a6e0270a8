"""Pictures in the terminal: blocks that can be read with colours and without."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from clearhead.errors import ShapeError
from clearhead.look.render.terminal import show_bars, show_heights, show_matrix

ROWS, COLUMNS = ["el", "coche", "rojo"], ["the", "red", "car", "[STOP]", "internationally"]
WEIGHTS = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0.25, 0.5, 0.25, 0], [0, 0.75, 0, 0, 0.25]])


def screen(width: int = 80, encoding: str = "utf-8", **settings: object) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", write_through=True)
    return Console(file=file, width=width, markup=False, highlight=False, **settings)  # type: ignore[arg-type]


def written(console: Console) -> list[str]:
    file = console.file
    assert isinstance(file, io.TextIOWrapper)
    file.seek(0)
    return file.read().splitlines()


def test_denser_blocks_are_larger_weights() -> None:
    console = screen(30)
    show_matrix(console, WEIGHTS, ROWS, COLUMNS, "layer 1")
    lines = written(console)
    assert lines[0] == "layer 1"
    assert [line.rstrip() for line in lines[-4:-1]] == [
        "   el ███",
        "coche     ░░░ ▒▒▒ ░░░",
        " rojo     ▓▓▓         ░░░",
    ]
    assert lines[-1] == "░ 0.25  ▒ 0.5  ▓ 0.75  █ 1"


def test_long_words_stand_letter_below_letter() -> None:
    console = screen(30)
    show_matrix(console, WEIGHTS, ROWS, COLUMNS)
    heading = [line.ljust(30) for line in written(console)[:10]]
    columns = ["".join(line[6 + 4 * place] for line in heading).strip() for place in range(5)]
    assert columns == ["the", "red", "car", "[STOP]", "internati…"]


def test_short_words_stand_in_one_line() -> None:
    console = screen()
    show_matrix(console, WEIGHTS[:, :4], ROWS, COLUMNS[:4])
    assert written(console)[0].split() == COLUMNS[:4]


def test_what_does_not_fit_is_said() -> None:
    console = screen(20)
    show_matrix(console, torch.ones(1, 31), ["a"], ["b"] * 31)
    assert written(console)[-1] == "columns 0:9 of 31; --columns 9: shows the others"
    assert written(console)[1] == "a " + "█ " * 9


def test_what_may_not_be_seen_is_empty() -> None:
    console = screen(30)
    show_matrix(console, torch.ones(2, 2), ["a", "b"], ["a", "b"], visible=torch.tensor([[True, False], [True, True]]))
    assert written(console)[1].rstrip() == "a ███████"
    assert written(console)[2].rstrip() == "b ███████ ███████"


def test_without_colours_there_is_no_escape_and_with_them_the_strongest_stands_out() -> None:
    plain, coloured = screen(), screen(force_terminal=True, color_system="standard")
    for console in (plain, coloured):
        show_matrix(console, WEIGHTS, ROWS, COLUMNS)
    assert "\x1b" not in "".join(written(plain))
    assert "\x1b[1;33m▒" in "".join(written(coloured))
    assert "\x1b[34m░" in "".join(written(coloured))


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = screen(force_terminal=True)
    show_matrix(console, WEIGHTS, ROWS, COLUMNS)
    assert "[33m" not in "".join(written(console))
    assert "[34m" not in "".join(written(console))


def test_plain_signs_where_blocks_cannot_be_written() -> None:
    console = screen(30, encoding="ascii")
    show_matrix(console, WEIGHTS[:, :4], ROWS, COLUMNS[:4])
    assert written(console)[-2].split() == ["rojo", "*****"]
    assert written(console)[-1] == ". 0.25  : 0.5  * 0.75  # 1"


def test_bars_have_their_number_and_wide_words_their_room() -> None:
    console = screen(40)
    show_bars(console, torch.tensor([2.0, -1.0, 0.5]), ["漢字", "film", "a"], "owed")
    lines = written(console)
    assert lines[0] == "owed"
    assert lines[1] == f"漢字   2.000 {'█' * 24}"
    assert lines[2] == f"film  -1.000 {'█' * 12}"
    assert lines[3] == f"   a   0.500 {'█' * 6}"


def test_heights_stand_below_their_letters() -> None:
    console = screen(5)
    show_heights(console, ["a", "b", "⏎", "c"], torch.tensor([0.0, 1.0, 0.5, 0.25]))
    assert written(console) == ["ab⏎", " █▄", "c", "▂"]
    console = screen(12)
    show_heights(console, ["one", "two", "three"], torch.tensor([1.0, 0.0, 1.0]))
    assert [line.rstrip() for line in written(console)] == ["one two", "████", "three", "██████"]


def test_words_that_are_missing_are_one_sentence() -> None:
    with pytest.raises(ShapeError, match=r"shape \(3, 5\) does not fit 3 rows and 2 columns: give a label for each"):
        show_matrix(screen(), WEIGHTS, ROWS, ["a", "b"])
