"""What 1/√d_k does before anything is learned: how sharp attention is and how much it can learn, against d_k."""

from __future__ import annotations

from matplotlib.axes import Axes

from clearhead.look.figures.sheet import COLOURS, SLIDE, Figure, panels
from clearhead.look.scaling import Scaling

SHOWN = {
    "variance": "variance of scores",
    "largest": "largest weight",
    "gradient": "gradient",
}


def scaling(found: Scaling, *, width: float = SLIDE) -> Figure:
    """The same queries and keys with the scale and without it; d_k grows by doubling."""
    title = f"attention over {found.keys} keys before training"
    with panels(len(SHOWN), width, title) as (page, places):
        for axes, (name, label) in zip(places, SHOWN.items(), strict=True):
            _draw(axes, found, name)
            axes.set_title(label)
        places[0].set_yscale("log", base=10)
        places[0].yaxis.set_major_formatter("{x:g}")
        handles, labels = places[0].get_legend_handles_labels()
        page.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return Figure(page)


def _draw(axes: Axes, found: Scaling, name: str) -> None:
    for each, label, mark, colour in (
        (found.plain, "q · k", "o", COLOURS[4]),
        (found.scaled, "q · k / √d_k", "s", COLOURS[0]),
    ):
        axes.plot(
            [one.size for one in each], [getattr(one, name) for one in each], label=label, marker=mark, color=colour
        )
    axes.set_xscale("log", base=2)
    sizes = [one.size for one in found.plain]
    few = sizes[:: max(1, len(sizes) // 4)]
    axes.set_xticks(few, [str(size) for size in few])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("d_k")
    axes.grid(alpha=0.25)
