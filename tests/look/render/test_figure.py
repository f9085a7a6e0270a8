"""Figures by their content: words, cells, ranges, lines; and that nothing is cut off or overlaps at any width."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from clearhead.errors import ConfigError, ProbeError, ShapeError
from clearhead.look.look import Look
from clearhead.look.record import AttentionRecord
from clearhead.look.render.figure import COLUMN, NO_FONT, PAGE, SLIDE, Figure, other_fonts
from clearhead.look.render.image import image_overlays, pattern_grid
from clearhead.look.render.labels import label_step, token_label
from clearhead.look.render.matrix import Scale, heatmap, window_slice
from clearhead.look.render.text import coloured_text, place_tokens
from clearhead.look.views.beam import BEST, Beam, BeamTree, Node
from clearhead.look.views.history import History, evenly_spaced
from clearhead.look.views.importance import Importance
from clearhead.look.views.lens import Lens
from clearhead.look.views.lines import FAINTEST
from clearhead.look.views.positions import Positions
from clearhead.look.views.scaling import scaling
from clearhead.look.views.steps import Step, Steps
from clearhead.look.views.words import WordMap

L, H, T, S, D = 3, 2, 5, 7, 11
ROWS = ["el", "coche", "rojo", "costó", "$5"]
COLUMNS = ["the", "red", "car", "costs", "5", "dollars", "[STOP]"]


def weights(*shape: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=random).mul(2).softmax(-1)


def a_look() -> Look:
    visible = torch.ones(T, S, dtype=torch.bool)
    visible[1, 6] = False
    seen = AttentionRecord(
        ROWS, COLUMNS, False, visible, [weights(H, T, S) + layer / 100 for layer in range(L)], [], [], [], []
    )
    return Look("en-es", "translate", "the red car", {"decoder.cross": seen}, {}, {}, None, "el coche rojo")


def a_tree() -> BeamTree:
    nodes = [
        Node(0, None, 0, "[START]", 0.0, 0.0, 0.0, "kept"),
        Node(1, 0, 1, "el", -0.5, -0.5, -0.5, "kept"),
        Node(2, 0, 1, "un", -1.5, -1.5, -1.5, "kept"),
        Node(3, 0, 1, "la", -4.0, -4.0, -4.0, "dropped"),
        Node(4, 2, 2, "pan", -0.25, -1.75, -0.875, "finished"),
        Node(5, 1, 2, "coche", -2.0, -2.5, -2.5, "kept"),
    ]
    return BeamTree(nodes, "bread", 4)


def some_steps() -> Steps:
    scores = torch.tensor([12.5, -3.0, 0.5, 7.0, -math.inf])
    found = [
        Step("mask", "s_j + L_j", scores, ROWS, "nn/attention.py", 3),
        Step("weight", "a_j v_j", weights(T, D) - 0.1, ROWS, "nn/attention.py", 5),
        Step("sum", "z = Σ_j a_j v_j", torch.linspace(-1, 1, D), None, "nn/attention.py", 7),
    ]
    return Steps("decoder.self", 1, 0, 2, found, ROWS, ROWS)


def a_history() -> History:
    steps = [100 * number for number in range(1, 12)]
    return History(steps, {"decoder.cross": (ROWS, COLUMNS)}, {"decoder.cross": [weights(11, H, T, S)]})


TEXT = list("ROMEO:\nBut, soft! what light through yonder window breaks?\n")
MAKERS: dict[str, Callable[[float], Figure]] = {
    "head": lambda width: a_look().heads(1, 0, width=width),
    "layer": lambda width: a_look().heads(1, width=width),
    "all": lambda width: a_look().heads(width=width),
    "lines": lambda width: a_look().view("lines", layer=2).figure(width),
    "steps": lambda width: some_steps().figure(width),
    "beam": lambda width: Beam(a_tree()).figure(width),
    "text": lambda width: coloured_text(TEXT, torch.linspace(-1, 1, len(TEXT)), label="unit", width=width),
    "image": lambda width: image_overlays(an_image(), {"layer 0": weights(7, 7)}, title="rollout", width=width),
    "components": lambda width: pattern_grid(torch.randn(5, 4, 4, 3), torch.rand(5), title="parts", width=width),
    "positions": lambda width: Positions("alibi", -weights(H, 13, 13), weights(13, D)).figure(width),
    "words": lambda width: WordMap(COLUMNS, torch.randn(S, 2), "pca", {"red": []}).figure(width),
    "lens": lambda width: Lens(torch.randn(L, T, S), ROWS, COLUMNS).figure(width),
    "importance": lambda width: Importance("ablation", 1.0, {"encoder.0.self": torch.tensor([0.5, -0.25])}).figure(
        width
    ),
    "history": lambda width: a_history().figure(width),
    "scaling": lambda width: scaling((2, 8, 32), keys=5, queries=17).figure(width),
}


def an_image() -> torch.Tensor:
    image = torch.zeros(28, 28, 1, dtype=torch.uint8)
    image[4:24, 12:16] = 255
    return image


def strings(figure: Figure) -> list[str]:
    """Everything that can be read."""
    figure.fig.draw_without_rendering()
    return [each.get_text() for each in figure.fig.findobj(Text) if each.get_text() and each.get_visible()]


def cells_of(figure: Figure, place: int = 0) -> np.ndarray[Any, Any]:
    """The numbers of a matrix, nan where it is grey."""
    shown = [axes.images[0] for axes in figure.fig.axes if axes.images and axes.get_visible()]
    return np.ma.filled(shown[place].get_array(), np.nan)


# --- all of them ---


@pytest.mark.parametrize("width", [SLIDE, PAGE, COLUMN])
@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_cut_off_and_no_label_covers_another(name: str, width: float) -> None:
    figure = MAKERS[name](width)
    figure.fig.draw_without_rendering()
    page = figure.fig.bbox.padded(1)
    drawn = [axes for axes in figure.fig.axes if axes.get_visible()]
    words = [text for axes in drawn for text in axes.texts] + figure.fig.texts
    for box in [axes.get_tightbbox() for axes in drawn] + [word.get_window_extent() for word in words]:
        assert box is not None
        assert page.containsx(box.x0), name
        assert page.containsx(box.x1), name
        assert page.containsy(box.y0), name
        assert page.containsy(box.y1), name
    for axes in drawn:
        for labels, low, high in ((axes.get_yticklabels(), "y0", "y1"), (axes.get_xticklabels(), "x0", "x1")):
            upright = [label for label in labels if label.get_text() and label.get_rotation() in (0, 90)]
            boxes = [label.get_window_extent() for label in upright]
            ends = sorted((getattr(box, low), getattr(box, high)) for box in boxes)
            assert all(one[1] <= other[0] + 1 for one, other in pairwise(ends)), axes.get_title()


@pytest.mark.parametrize("name", ["head", "beam", "text", "steps"])
def test_a_slide_is_a_slide_and_the_same_numbers_give_the_same_file(name: str, tmp_path: Path) -> None:
    width, height = MAKERS[name](SLIDE).fig.get_size_inches()
    assert width == SLIDE
    assert height <= 5.6 + 1e-6
    files = [MAKERS[name](COLUMN).save(tmp_path / f"{number}.svg").read_bytes() for number in range(2)]
    assert files[0] == files[1]


def test_every_format_is_written_and_text_stays_text(tmp_path: Path) -> None:
    figure = MAKERS["head"](SLIDE)
    svg = figure.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in svg for word in ROWS + COLUMNS)  # $5 too, which is no formula
    assert figure.save(str(tmp_path / "a.PDF")).read_bytes().startswith(b"%PDF")
    assert figure.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in figure._repr_svg_()


def test_a_figure_that_cannot_be_drawn_is_one_sentence(tmp_path: Path) -> None:
    figure = heatmap(torch.ones(1, 1), ["a"], ["b"])
    with pytest.raises(ConfigError, match=r"cannot draw .*a\.gif: choose a name that ends in \.svg, \.pdf, \.png"):
        figure.save(tmp_path / "a.gif")
    with pytest.raises(ConfigError, match=r"cannot write .*a\.svg: No such file or directory"):
        figure.save(tmp_path / "no" / "a.svg")
    with pytest.raises(ConfigError, match=r"cannot be 0\.5 inches wide: choose from 1 to 40, for example 10"):
        heatmap(torch.ones(1, 1), ["a"], ["b"], width=0.5)
    with pytest.raises(ShapeError, match=r"shape \(2, 3\) cannot be drawn with 2 row and 2 column names"):
        heatmap(torch.ones(2, 3), ["a", "b"], ["c", "d"])


def test_right_to_left_and_wide_letters_are_kept(tmp_path: Path) -> None:
    words = ["שלום", "مرحبا", "\U000f0000\U000f0001"]  # the last are letters of no font
    figure = heatmap(torch.eye(3), words, words)
    svg = figure.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in svg for word in words)
    with pytest.warns(UserWarning, match="no font on this machine has \U000f0000\U000f0001: boxes are drawn instead"):
        figure.save(tmp_path / "a.png")


def test_letters_that_no_font_has_are_explained_on_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []
    figure = heatmap(torch.eye(2), ["a", "\U000f0000"], ["b", "é"])
    save = figure.fig.savefig
    monkeypatch.setattr(figure.fig, "savefig", lambda *a, **b: (drawn.append(strings(figure)), save(*a, **b)))
    with pytest.warns(UserWarning, match="no font on this machine has \U000f0000"):
        figure.save(tmp_path / "a.png")
    figure.save(tmp_path / "a.svg")
    assert [NO_FONT in each for each in drawn] == [True, False]
    assert NO_FONT not in [text.get_text() for text in figure.fig.findobj(Text)]


def test_a_letter_is_drawn_with_any_font_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.look.render.figure.installed_fonts", lambda: ("cmr10",))  # Latin letters only
    fonts, missing = other_fonts({"a", "ж", "√", "\U000f0000"})
    assert missing == {"\U000f0000"}
    assert fonts
    assert other_fonts({"a"}) == ([], set())


# --- matrices ---


def test_a_matrix_shows_its_numbers_and_greys_what_cannot_be_seen() -> None:
    look = a_look()
    figure = look.heads(1, 0)
    seen = look.attention["decoder.cross"]
    expected = seen.weights[1][0].masked_fill(~seen.visible, torch.nan).numpy()
    np.testing.assert_array_equal(cells_of(figure), expected)
    image = figure.fig.axes[0].images[0]
    assert image.get_clim() == (0.0, pytest.approx(float(seen.weights[1][0].max())))
    assert image.get_cmap().name == "Blues"
    assert f"cross-attention, layer 1, head 0\n{look.model}: {look.text}" in strings(figure)


def test_only_the_larger_numbers_are_written() -> None:
    figure = heatmap(torch.tensor([[0.9, 0.1, 0.0], [0.05, 0.15, 0.8]]), ROWS[:2], COLUMNS[:3])
    written = {text.get_position(): text.get_text() for text in figure.fig.axes[0].texts}
    assert written == {(0, 0): "0.90", (1, 0): "0.10", (1, 1): "0.15", (2, 1): "0.80"}


def test_signed_numbers_have_white_in_the_middle() -> None:
    scale = Scale.of(torch.tensor([-3.0, 1.0, -math.inf]))
    assert (scale.low, scale.high) == (-3.0, 3.0)
    assert min(scale.colormap(0.5)[:3]) > 0.9
    assert scale.text_colour(3.0) == scale.text_colour(-3.0) == "white"
    assert scale.text_colour(0.0) != "white"


def test_labels_thin_out_and_stay_with_their_rows() -> None:
    words = [f"word{number}" for number in range(97)]
    figure = heatmap(weights(97, 97), words, words, width=COLUMN)
    axes = figure.fig.axes[0]
    for places, labels in ((axes.get_yticks(), axes.get_yticklabels()), (axes.get_xticks(), axes.get_xticklabels())):
        assert 10 < len(labels) < 97
        assert [label.get_text() for label in labels] == [words[int(place)] for place in places]


def test_above_200_tokens_there_is_a_warning_and_a_window() -> None:
    with pytest.warns(
        UserWarning, match=r"211 rows are more than can be told apart: show some of them, for example rows=10:40"
    ):
        window_slice(None, 211, "rows")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert window_slice((10, 40), 211, "rows") == slice(10, 40)
        assert window_slice((190, 10**9), 211, "rows") == slice(190, 211)
        assert window_slice(None, 200, "rows") == slice(0, 200)
    with pytest.raises(ConfigError, match=r"there are no rows 5:9: there are 5, counted from 0"):
        window_slice((5, 9), 5, "rows")


def test_a_window_shows_a_part() -> None:
    look = a_look()
    figure = look.heads(2, 1, rows=(1, 4), columns=(2, 7))
    seen = look.attention["decoder.cross"]
    expected = seen.weights[2][1].masked_fill(~seen.visible, torch.nan)[1:4, 2:7].numpy()
    np.testing.assert_array_equal(cells_of(figure), expected)
    assert {"coche", "[STOP]"} <= set(strings(figure))
    assert not {"el", "the"} & set(strings(figure))


def test_blank_and_long_words_are_readable() -> None:
    assert [token_label(word) for word in ("\n", " ", "", "▁the", "a\tb")] == ["⏎", "␣", "␣", "the", "a⇥b"]
    assert token_label("x" * 30) == "x" * 17 + "…"
    assert label_step(10, 100, 10) == 1


def test_a_layer_has_all_its_heads_and_a_model_all_its_layers() -> None:
    look = a_look()
    seen = look.attention["decoder.cross"]
    layer, whole, head = look.heads(1), look.heads(), look.heads(head=1)
    for number in range(H):
        expected = seen.weights[1][number].masked_fill(~seen.visible, torch.nan).numpy()
        np.testing.assert_array_equal(cells_of(layer, number), expected)
    for number in range(L * H):
        expected = seen.weights[number // H][number % H].masked_fill(~seen.visible, torch.nan).numpy()
        np.testing.assert_array_equal(cells_of(whole, number), expected)
    expected = seen.weights[2][1].masked_fill(~seen.visible, torch.nan).numpy()
    np.testing.assert_array_equal(cells_of(head, 2), expected)
    assert {"head 0", "head 1", *ROWS} <= set(strings(layer))
    assert {"head 0", "layer 2"} <= set(strings(whole))
    with pytest.raises(ProbeError, match=r"decoder\.cross of en-es has no head 2; choose from 0 to 1"):
        look.heads(1, 2)


# --- the other views ---


def test_lines_join_each_query_with_what_it_looks_at() -> None:
    look = a_look()
    [bundle] = look.view("lines", layer=1, head=1, query=2).figure().fig.axes[0].collections
    ends = {(round(first[1]), round(last[1])) for first, last in bundle.get_segments()}
    seen = look.weights["decoder.cross"][1][1, 2]
    assert ends == {(2 + (S - T) // 2, key) for key in range(S) if seen[key] > FAINTEST}
    assert len(look.view("lines", layer=1).figure().fig.axes[0].collections) == H


def test_steps_are_strips_with_names_and_equations() -> None:
    figure = some_steps().figure()
    assert {"1 mask", "2 weight", "3 sum", "z = Σ_j a_j v_j", *ROWS} <= set(strings(figure))
    assert "decoder self-attention, layer 1, head 0: the query of “rojo”" in strings(figure)
    np.testing.assert_array_equal(cells_of(figure, 0), np.array([[12.5, -3.0, 0.5, 7.0, np.nan]], dtype=np.float32))
    np.testing.assert_array_equal(cells_of(figure, 1), some_steps()["weight"].T.numpy())


def test_the_beam_has_every_token_the_likeliest_at_the_top() -> None:
    figure = Beam(a_tree()).figure()
    heights = {text.get_text(): text.get_position() for text in figure.fig.axes[0].texts}
    assert heights["el"][1] < heights["un"][1] < heights["la"][1]
    assert heights["pan"][1] < heights["coche"][1]
    assert [heights[word][0] for word in ("start", "el", "pan")] == [0, 1, 2]
    assert {"-0.50", "-1.75", "-4.00"} <= set(strings(figure))
    best = figure.fig.axes[0].texts[[text.get_text() for text in figure.fig.axes[0].texts].index("pan")]
    assert best.get_color() == BEST
    assert "start" not in strings(Beam(a_tree(), steps=(1, 3)).figure())
    with pytest.raises(ProbeError, match=r"this beam search generated nothing, so there is no tree to draw"):
        Beam(BeamTree(a_tree().nodes[:1], "", 0)).figure()


def test_text_flows_in_lines() -> None:
    placed = place_tokens(["Be", "⏎", "longer", "word"], across=11)
    assert [(each.column, each.line) for each in placed] == [(0, 0), (3, 0), (0, 1), (7, 1)]
    placed = place_tokens(["one", "漢字", "seven"], across=9)
    assert [(each.column, each.line, each.width) for each in placed] == [(0, 0, 3), (4, 0, 4), (0, 1, 5)]
    assert [each.column for each in place_tokens(list("a b"), across=9)] == [0, 1, 2]


def test_tokens_have_the_colour_of_their_number() -> None:
    values = torch.tensor([-1.0, 0.0, 1.0])
    figure = coloured_text(["a", "b", "c"], values)
    scale = Scale(-1.0, 1.0)
    colours = [patch.get_facecolor() for patch in figure.fig.axes[0].patches]
    np.testing.assert_allclose(colours, [scale.colormap(0.0), scale.colormap(0.5), scale.colormap(1.0)])
    with pytest.raises(ShapeError, match=r"\(2,\) numbers cannot colour 3 tokens: give one for each"):
        coloured_text(["a", "b", "c"], values[:2])


def test_a_map_covers_the_image_it_lies_on() -> None:
    maps = {"layer 0": weights(7, 7), "layer 1": weights(7, 7) ** 2}
    figure = image_overlays(an_image(), maps)
    first, second, third = figure.fig.axes[:3]
    np.testing.assert_array_equal(first.images[0].get_array(), an_image().expand(-1, -1, 3).numpy())
    for axes, shares in ((second, maps["layer 0"]), (third, maps["layer 1"])):
        np.testing.assert_array_equal(axes.images[1].get_array(), shares.numpy())
        assert axes.images[1].get_extent() == [-0.5, 27.5, 27.5, -0.5]
        assert axes.images[1].get_clim() == (0.0, pytest.approx(float(shares.max())))
    with pytest.raises(ShapeError, match=r"there is nothing to lay over the image"):
        image_overlays(an_image(), {})


def test_patterns_have_their_share() -> None:
    patterns = torch.randn(3, 4, 4, 1)
    figure = pattern_grid(patterns, torch.tensor([0.5, 0.3, 0.2]))
    assert {"50%", "30%", "20%"} <= set(strings(figure))
    np.testing.assert_array_equal(cells_of(figure, 1), patterns[1, :, :, 0].numpy())
    with pytest.raises(ShapeError, match=r"patterns do not fit 2 shares"):
        pattern_grid(patterns, torch.tensor([0.5, 0.3]))


def test_positions_are_a_heatmap_products_and_a_curve() -> None:
    found = Positions("sinusoidal", weights(1, 13, 13), weights(13, D))
    figure = found.figure()
    np.testing.assert_array_equal(cells_of(figure, 0), weights(13, D).numpy())
    np.testing.assert_array_equal(cells_of(figure, 1), weights(1, 13, 13)[0].numpy())
    curves = [axes.lines for axes in figure.fig.axes if axes.lines]
    np.testing.assert_allclose(curves[0][0].get_ydata(), found.by_distance[0].numpy(), rtol=1e-6)
    assert "vectors" not in strings(Positions("alibi", -weights(H, 13, 13)).figure())


def test_names_on_a_map_do_not_overlap_and_marked_words_are_always_named() -> None:
    points = torch.tensor(
        [[0.0, 0.0], [0.0, 0.001], [0.001, 0.0], [1.0, 1.0], [0.0005, 0.0005], [0.5, 0.5], [1.0, 0.0]]
    )
    figure = WordMap(COLUMNS, points, "tsne", {"red": []}).figure(COLUMN)
    names = figure.fig.axes[0].texts
    assert "red" in [name.get_text() for name in names]
    assert 4 <= len(names) < S
    boxes = [name.get_window_extent() for name in names]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_the_lens_names_the_likeliest_answer_of_each_cell() -> None:
    logits = torch.randn(L, T, S, generator=torch.Generator().manual_seed(3))
    figure = Lens(logits, ROWS, COLUMNS).figure()
    np.testing.assert_array_equal(cells_of(figure), logits.softmax(-1).amax(-1).flip(0).numpy())
    said = {(text.get_position()): text.get_text() for text in figure.fig.axes[0].texts}
    assert said == {(j, i): COLUMNS[int(logits[L - 1 - i, j].argmax())] for i in range(L) for j in range(T)}
    assert {"embedded", "layer 0", "layer 1"} <= set(strings(figure))
    with pytest.raises(ShapeError, match=r"2 names? .*do not fit|2 tokens do not fit"):
        Lens(logits, ROWS[:2], COLUMNS).figure()


def test_importance_is_a_matrix_for_each_kind() -> None:
    heads = {"encoder.0.self": torch.tensor([1.0, 2.0]), "encoder.1.self": torch.tensor([3.0, -4.0])}
    cross = {"decoder.0.cross": torch.tensor([5.0, 6.0])}
    found = Importance("ablation", 1.0, heads | cross)
    torch.testing.assert_close(found.by_kind()["encoder.self"], torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
    figure = found.figure()
    np.testing.assert_array_equal(cells_of(figure, 0), [[1.0, 2.0], [3.0, -4.0]])
    np.testing.assert_array_equal(cells_of(figure, 1), [[5.0, 6.0]])
    assert figure.fig.axes[1].images[0].get_clim() == (-6.0, 6.0)


def test_history_shows_some_evaluations_among_them_the_first_and_last() -> None:
    found = a_history()
    figure = replace(found, layer=0, head=1).figure()
    assert {"step 100", "step 1,100", "cross-attention, layer 0, head 1"} <= set(strings(figure))
    np.testing.assert_array_equal(cells_of(figure, 7), found.weights["decoder.cross"][0][10, 1].numpy())
    np.testing.assert_allclose(cells_of(found.figure()), found.weights["decoder.cross"][0][0].mean(0).numpy())
    assert evenly_spaced(3, 8) == [0, 1, 2]
    assert evenly_spaced(1, 8) == [0]
    with pytest.raises(ProbeError, match=r"decoder\.cross of this run has no layer 1; choose from 0"):
        replace(found, layer=1).figure()
    with pytest.raises(ProbeError, match=r"nothing was kept of encoder\.self; choose from: decoder\.cross"):
        replace(found, kind="encoder.self").figure()


def test_scaling_draws_both_curves() -> None:
    found = scaling((2, 8, 32), keys=5, queries=17)
    figure = found.figure()
    for axes, name in zip(figure.fig.axes, ("variance", "largest", "gradient"), strict=True):
        for line, each in zip(axes.lines, (found.plain, found.scaled), strict=True):
            np.testing.assert_allclose(line.get_xdata(), [2, 8, 32])
            np.testing.assert_allclose(line.get_ydata(), [getattr(one, name) for one in each])
