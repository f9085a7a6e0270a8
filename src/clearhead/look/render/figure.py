"""A figure: its size, fonts and colours, and how it is saved as SVG, PDF or PNG.

    with new_figure(SLIDE, 5.6) as fig:
        fig.add_subplot().imshow(...)
    Figure(fig).save("head.svg")

Fonts grow with the width, so that one figure is readable on a slide and in the column of a paper. Text stays text in
SVG and PDF, dollar signs are not parsed as math, and the same numbers give the same bytes. matplotlib is imported when
the first figure is drawn.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

SLIDE, PAGE, COLUMN = 10.0, 6.5, 3.3  # inches: a slide, the text of a page, one of its two columns
WIDTHS = {"slide": SLIDE, "page": PAGE, "column": COLUMN}
WIDE, NARROW = 8.0, 5.0  # inches: wider is a slide; narrower, and plots stand below instead of beside each other
FORMATS = (".svg", ".pdf", ".png")
SLIDE_HEIGHT = 0.56  # of the width
LETTER = 0.6  # mean width of a letter, in font sizes

# Okabe and Ito: distinguishable by colour-blind readers, in this order.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C7A00", "#000000")
INK, GREY, PALE = "#1a1a1a", "#6b6b6b", "#ececec"

# The first font that has a letter draws it; those that are not installed are skipped.
FONTS = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "WenQuanYi Zen Hei", "Hiragino Sans", "PingFang SC",
    "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Arial Unicode MS",
)  # fmt: skip

UNSEEN = ("Cc", "Cf", "Mn", "Zl", "Zp", "Zs")  # categories of Unicode that no font needs to draw
NO_FONT = "Boxes are letters that no font on this machine has: install one, or save as .svg."


class Figure:
    """A drawn figure; a notebook shows it, `save` writes it."""

    def __init__(self, fig: MplFigure):
        self.fig = fig

    def save(self, path: str | Path, dpi: int = 200) -> Path:
        """Write SVG, PDF or PNG, by the suffix of the file name."""
        file, suffix = Path(path), Path(path).suffix.lower()
        if suffix not in FORMATS:
            raise ConfigError(f"cannot draw {file}: choose a name that ends in {', '.join(FORMATS)}")
        no_date: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        try:
            with _font_settings(self.fig), _missing_letters(warn=suffix != ".svg"), _drawn_letters(self.fig, suffix):
                self.fig.savefig(file, dpi=dpi, metadata=no_date.get(suffix))
        except OSError as problem:
            raise ConfigError(f"cannot write {file}: {problem.strerror or problem}") from None
        return file

    def svg(self) -> str:
        written = io.StringIO()
        with _font_settings(self.fig), _missing_letters(warn=False):
            self.fig.savefig(written, format="svg", metadata={"Date": None})
        return written.getvalue()

    _repr_svg_ = svg  # what a notebook shows


@contextmanager
def new_figure(width: float, height: float) -> Iterator[MplFigure]:
    """An empty matplotlib figure of this size in inches, with fonts to match while it is drawn on."""
    from matplotlib.figure import Figure as MplFigure

    if not 1 <= width <= 40:
        raise ConfigError(f"a figure cannot be {width:g} inches wide: choose from 1 to 40, for example {SLIDE:g}")
    fig = MplFigure(figsize=(width, height))
    with _font_settings(fig), _missing_letters(warn=False):
        fig.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
        yield fig


@contextmanager
def panels(count: int, width: float, title: str = "") -> Iterator[tuple[MplFigure, list[Axes]]]:
    """A figure with `count` plots beside each other; below each other in the column of a paper."""
    beside = width > NARROW
    height = 0.62 * width * count + 0.3
    with new_figure(width, min(SLIDE_HEIGHT, 1.15 / count) * width if beside else height) as fig:
        fig.suptitle(title, x=0.01, ha="left")
        plots = fig.subplots(1 if beside else count, count if beside else 1, squeeze=False)
        for axes in plots.flat:
            axes.spines[["top", "right"]].set_visible(False)
        yield fig, list(plots.flat)


def max_height(width: float, narrow: float) -> float:
    """The largest height of a figure: that of a slide, or `narrow` times its width in a paper."""
    return width * (SLIDE_HEIGHT if width > WIDE else narrow)


# --- text ---


def fit_title(title: str, width: float, caption: str = "") -> str:
    """A title in one line of a figure this wide, and below it the caption in another; what does not fit is cut.

    >>> fit_title("cross-attention", COLUMN, caption="en-es: She has a red car.")
    'cross-attention\\nen-es: She has a red car.'
    >>> len(fit_title("a" * 500, SLIDE))
    83
    """
    room = int(0.97 * width * 72 / (LETTER * font_size(width)))
    lines = [" ".join(line.split()) for line in (title, caption) if line]
    return "\n".join(line if len(line) <= room else line[: room - 1].rstrip() + "…" for line in lines)


def font_size(width: float) -> float:
    """The font size in points: 14 on a slide, 7 in a column.

    >>> font_size(SLIDE), font_size(COLUMN)
    (14.0, 7.0)
    """
    return round(min(16.0, max(6.5, 7 + 7 * (width - COLUMN) / (SLIDE - COLUMN))), 2)


def axes_size(axes: Axes) -> tuple[float, float]:
    """Width and height of a plot in points, after the layout of its figure is computed."""
    figure_of(axes).draw_without_rendering()
    return drawn_size(axes)


def drawn_size(axes: Axes) -> tuple[float, float]:
    """Width and height of a plot in points, by the layout computed last."""
    box, dpi = axes.get_window_extent(), figure_of(axes).dpi
    return box.width / dpi * 72, box.height / dpi * 72


def axes_font_size(axes: Axes) -> float:
    """The font size in points of the figure that a plot is on."""
    return font_size(figure_of(axes).get_figwidth())


def figure_of(axes: Axes) -> MplFigure:
    """The figure that a plot is on."""
    fig = axes.get_figure(root=True)
    assert fig is not None
    return fig


@cache
def installed_fonts() -> tuple[str, ...]:
    """Those of `FONTS` that this machine has, the first choice first."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in FONTS if name in installed)


def other_fonts(letters: set[str]) -> tuple[list[str], set[str]]:
    """Fonts of this machine that have letters which `FONTS` lack, and the letters that none has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    def lacking(path: str, wanted: set[str]) -> set[str]:
        font = get_font(path)
        return {letter for letter in wanted if not font.get_char_index(ord(letter))}

    for name in installed_fonts():
        letters = lacking(findfont(FontProperties(family=name)), letters) if letters else letters
    found = []
    for entry in sorted(fontManager.ttflist, key=lambda each: (each.style != "normal", each.weight != 400, each.name)):
        if not letters:
            break
        if "LastResort" not in entry.fname and (rest := lacking(entry.fname, letters)) != letters:
            found.append(entry.name)
            letters = rest
    return found, letters


@contextmanager
def _drawn_letters(fig: MplFigure, suffix: str) -> Iterator[None]:
    """Draw letters with whatever font has them; a note on the figure says what the boxes of others are."""
    texts: list[Any] = []
    if suffix != ".svg":  # an SVG keeps the text, and its reader has the fonts
        texts = fig.findobj(lambda artist: hasattr(artist, "set_fontfamily"))
    letters = {
        letter for text in texts for letter in text.get_text() if letter > "~" and category(letter) not in UNSEEN
    }
    fonts, missing = other_fonts(letters)
    for text in texts if fonts else ():
        text.set_fontfamily([*text.get_fontfamily(), *fonts])
    note = None
    if missing:
        size = 0.7 * font_size(fig.get_figwidth())
        note = fig.text(0.99, 0.005, NO_FONT, ha="right", va="bottom", fontsize=size, color=GREY, in_layout=False)
    try:
        yield
    finally:
        if note is not None:
            note.remove()


def _font_settings(fig: MplFigure) -> AbstractContextManager[None]:
    from matplotlib import rc_context

    size = font_size(fig.get_figwidth())
    settings: dict[Any, Any] = {
        "font.size": size,
        "axes.titlesize": size,
        "figure.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": size * 0.9,
        "ytick.labelsize": size * 0.9,
        "legend.fontsize": size * 0.9,
        "font.family": list(installed_fonts()),
        "axes.linewidth": size / 16,
        "axes.edgecolor": GREY,
        "text.color": INK,
        "axes.labelcolor": INK,
        "text.parse_math": False,
        "axes.unicode_minus": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "clearhead",
        "pdf.fonttype": 42,
        "lines.linewidth": size / 7,
        "lines.markersize": size / 2.5,
    }
    return rc_context(settings)


@contextmanager
def _missing_letters(warn: bool) -> Iterator[None]:
    """Collect matplotlib's warnings about letters that no font has into one, or none; other warnings pass."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = []
    for each in caught:
        text = str(each.message)
        if "missing from font" in text:
            missing.append(chr(int(text.split()[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing and warn:
        letters = "".join(dict.fromkeys(missing))[:10]
        warnings.warn(
            f"no font on this machine has {letters}: boxes are drawn instead; install one that has them "
            f"(for example Noto Sans CJK), or save as .svg, which keeps the text",
            stacklevel=4,
        )
