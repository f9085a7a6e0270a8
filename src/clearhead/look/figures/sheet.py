"""The sheet a figure is drawn on: its size, its letters, and how it is saved.

    with sheet(SLIDE, 5.6) as page:
        page.add_subplot().imshow(...)
    Figure(page).save("head.svg")

Letters grow with the width, so that one figure is readable on a slide and in the column of a paper. Text stays text
in SVG and PDF, a dollar sign is a dollar sign, and the same numbers give the same file.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Page

from clearhead.errors import ConfigError

SLIDE, PAGE, COLUMN = 10.0, 6.5, 3.3  # inches: a slide, the text of a page, one of its two columns
WIDTHS = {"slide": SLIDE, "page": PAGE, "column": COLUMN}
WIDE, NARROW = 8.0, 5.0  # inches: wider is a slide; narrower, and plots stand below instead of beside each other
FORMATS = (".svg", ".pdf", ".png")
SLIDE_HEIGHT = 0.56  # of the width

# Okabe and Ito: told apart by every reader, in this order.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C7A00", "#000000")
INK, GREY, PALE = "#1a1a1a", "#6b6b6b", "#ececec"

# The first family that has a letter draws it; only those that are installed are asked.
FAMILIES = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Nirmala UI",
    "Arial Unicode MS",
)


class Figure:
    """A drawn figure; a notebook shows it, `save` writes it."""

    def __init__(self, page: Page):
        self.page = page

    def save(self, path: str | Path, dpi: int = 200) -> Path:
        """Write it as SVG, PDF or PNG, by the end of its name."""
        place = checked(Path(path))
        undated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        try:
            with _lettered(self.page), _naming_missing_letters(shown=place.suffix.lower() != ".svg"):
                self.page.savefig(place, dpi=dpi, metadata=undated.get(place.suffix.lower()))
        except OSError as problem:
            raise ConfigError(f"cannot write {place}: {problem.strerror or problem}") from None
        return place

    def _repr_svg_(self) -> str:
        written = io.StringIO()
        with _lettered(self.page), _naming_missing_letters(shown=False):
            self.page.savefig(written, format="svg", metadata={"Date": None})
        return written.getvalue()


def checked(path: Path) -> Path:
    """A name that says how a figure is to be saved, or the sentence that says which do."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot draw {path}: choose a name that ends in {', '.join(FORMATS)}")
    return path


@contextmanager
def sheet(width: float, height: float) -> Iterator[Page]:
    """An empty page of so many inches, with letters to its size while it is drawn on."""
    if not 1 <= width <= 40:
        raise ConfigError(f"a figure cannot be {width:g} inches wide: choose from 1 to 40, for one slide {SLIDE:g}")
    page = Page(figsize=(width, height))
    with _lettered(page), _naming_missing_letters(shown=False):
        page.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
        yield page


def tallest(width: float, narrow: float) -> float:
    """How high a figure may be: within the slide, and in a paper so many times its width."""
    return width * (SLIDE_HEIGHT if width > WIDE else narrow)


@contextmanager
def panels(count: int, width: float, title: str = "") -> Iterator[tuple[Page, list[Axes]]]:
    """A page with plots beside each other, in the column of a paper below each other."""
    beside = width > NARROW
    height = 0.62 * width * count + 0.3
    with sheet(width, min(SLIDE_HEIGHT, 1.15 / count) * width if beside else height) as page:
        page.suptitle(title, x=0.01, ha="left")
        places = page.subplots(1 if beside else count, count if beside else 1, squeeze=False)
        for axes in places.flat:
            axes.spines[["top", "right"]].set_visible(False)
        yield page, list(places.flat)


def letter_size(width: float) -> float:
    """The size of the letters in points: 14 on a slide, 7 in a column.

    >>> letter_size(SLIDE), letter_size(COLUMN)
    (14.0, 7.0)
    """
    return round(min(16.0, max(6.5, 7 + 7 * (width - COLUMN) / (SLIDE - COLUMN))), 2)


def _lettered(page: Page) -> Any:
    size = letter_size(page.get_figwidth())
    settings: dict[Any, Any] = {
        "font.size": size,
        "axes.titlesize": size,
        "figure.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": size * 0.9,
        "ytick.labelsize": size * 0.9,
        "legend.fontsize": size * 0.9,
        "font.family": list(families()),
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


@cache
def families() -> tuple[str, ...]:
    """The families of letters that this machine has, the first choice first."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return tuple(name for name in FAMILIES if name in installed)


@contextmanager
def _naming_missing_letters(shown: bool) -> Iterator[None]:
    """One warning for all letters that no font has, where they would be drawn as boxes; other warnings pass."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    missing = []
    for each in said:
        text = str(each.message)
        if "missing from font" in text:
            missing.append(chr(int(text.split()[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing and shown:
        letters = "".join(dict.fromkeys(missing))[:10]
        warnings.warn(
            f"no font on this machine has {letters}: boxes are drawn instead; install one that has them "
            f"(Noto Sans CJK for one), or save as .svg, which keeps the text",
            stacklevel=4,
        )
