"""Figures: attention as a heatmap, with its words at the edges; for slides and papers, text stays text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import ConfigError

FORMATS = (".svg", ".pdf", ".png")


def save_heatmap(path: Path, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = "") -> None:
    """weights (T, S) with a word for each row and column, as SVG, PDF or PNG."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot draw {path}: choose a name that ends in {', '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "font.size": 11}):
        figure = Figure(figsize=(1.6 + 0.5 * len(columns), 1.3 + 0.42 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(weights.float().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(columns)), columns, rotation=45, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        _write_numbers(axes, weights)
        figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8)
        if title:
            axes.set_title(title, loc="left")
        _save(figure, path)


def _write_numbers(axes: Any, weights: Tensor) -> None:
    """The larger weights as numbers, in a colour that can be read on its cell."""
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.1:
                axes.text(j, i, f"{weight:.2f}", ha="center", va="center", color="white" if weight > 0.6 else "black")


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path)
    except OSError as problem:
        raise ConfigError(f"cannot write {path}: {problem.strerror or problem}") from None
