"""Figures of long sentences stay readable, say what they leave out, and name the model and the text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.look.record import LookRecord
from clearhead.look.render.figure import COLUMN, SLIDE, Figure, fit_title
from clearhead.look.render.matrix import Scale, heatmap, layer_head_grid
from clearhead.look.views.beam import Beam, BeamTree, Node
from clearhead.look.views.flow import Flow
from clearhead.look.views.lens import Lens
from clearhead.look.views.rollout import Rollout

WORDS = [f"word{number}" for number in range(67)]


def left_title(figure: Figure) -> Any:
    """The title of the first plot as matplotlib's text."""
    axes: Any = figure.fig.axes[0]
    return axes._left_title


def test_the_rows_of_a_sentence_of_25_tokens_are_all_labelled() -> None:
    axes = heatmap(torch.rand(25, 25), WORDS[:25], WORDS[:25]).fig.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == WORDS[:25]
    assert [label.get_text() for label in axes.get_xticklabels()] == WORDS[:25]


def test_blue_is_positive_and_red_is_negative() -> None:
    colormap = Scale(-1.0, 1.0).colormap
    (red, _, blue, _), (low_red, _, low_blue, _) = colormap(1.0), colormap(0.0)
    assert blue > red
    assert low_red > low_blue


def test_a_beam_of_a_long_sentence_shows_the_steps_that_can_be_read_and_says_so() -> None:
    nodes = [Node(0, None, 0, "[START]", 0.0, 0.0, 0.0, "kept")]
    nodes += [Node(step, step - 1, step, f"word{step}", -0.1, -0.1 * step, -0.1, "kept") for step in range(1, 68)]
    view = Beam(BeamTree(nodes, " ".join(WORDS), 67), "en-es")
    with pytest.warns(UserWarning, match=r"steps 0:13 of 68 are drawn; columns=13: shows the others"):
        figure = view.figure()
    written = [text for text in figure.fig.axes[0].texts if text.get_text().startswith("word")]
    assert len(written) == 12
    assert min(float(text.get_fontsize()) for text in written) > 7
    assert left_title(figure).get_text().startswith("beam search\nen-es: word0 word1")


def test_a_lens_of_a_long_sentence_has_answers_and_a_note() -> None:
    lens = Lens(torch.randn(3, 67, 5), WORDS, ("uno", "dos", "tres", "cuatro", "cinco"))
    with pytest.warns(UserWarning, match=r"columns 0:22 of 67 are drawn; columns=22: shows the others"):
        figure = lens.figure()
    assert len(figure.fig.axes[0].texts) == 3 * 22


def test_a_title_never_runs_out_of_the_figure() -> None:
    for width in (COLUMN, SLIDE):
        figure = heatmap(
            torch.rand(2, 3),
            WORDS[:2],
            WORDS[:3],
            title=fit_title("the red car " * 50, width, "Where does it look? " * 50),
            width=width,
        )
        figure.fig.draw_without_rendering()
        drawn = left_title(figure)
        assert drawn.get_text().count("…") == 2
        assert drawn.get_window_extent().x1 <= figure.fig.bbox.x1


def test_all_heads_of_a_short_sentence_have_their_words() -> None:
    rows, columns = ["el", "coche", "rojo"], ["the", "red", "car", "[STOP]", "five"]
    figure = layer_head_grid([torch.rand(3, 3, 5)] * 2, rows=rows, columns=columns)
    plots = figure.fig.axes
    assert [label.get_text() for label in plots[0].get_yticklabels()] == rows
    assert [label.get_text() for label in plots[3].get_xticklabels()] == columns
    many = layer_head_grid([torch.rand(3, 67, 67)] * 2, rows=WORDS, columns=WORDS)
    assert not many.fig.axes[0].get_yticklabels()


def test_a_flow_is_not_called_a_share() -> None:
    assert (Rollout.label, Flow.label) == ("share of the input token", "maximum flow")


def test_a_look_is_shown_in_one_line() -> None:
    look = LookRecord("en-es", "translate", "we eat", {}, {}, {"encoder": [torch.rand(5, 7)]}, None, "comemos")
    assert repr(look) == "<LookRecord of en-es: 'we eat' -> 'comemos'; layers × heads: none>"
