"""Attention as it was learned: the same head at several evaluations of a run, side by side.

N evaluations, H heads, T queries, S keys
"""

from __future__ import annotations

from clearhead.errors import ProbeError
from clearhead.look.figures.heads import KINDS, wall
from clearhead.look.figures.sheet import NARROW, SLIDE, Figure
from clearhead.look.history import History
from clearhead.look.look import KINDS as ORDER
from clearhead.look.look import span


def history(
    found: History, layer: int = 0, head: int | None = None, kind: str | None = None, *, width: float = SLIDE
) -> Figure:
    """One head, or the mean of a layer's heads, from the first kept evaluation to the last; at most eight of them."""
    kind = first_kind(found) if kind is None else kind
    if kind not in found.weights:
        raise ProbeError(f"nothing was kept of {kind}; choose from: {', '.join(found.weights)}")
    for what, number, count in (
        ("layer", layer, len(found.weights[kind])),
        ("head", head or 0, found.weights[kind][0].size(1)),
    ):
        if not 0 <= number < count:
            raise ProbeError(f"{kind} of this run has no {what} {number}; choose from {span(count)}")
    weights = found.weights[kind][layer]  # (N, H, T, S)
    shown = weights.mean(1) if head is None else weights[:, head]  # (N, T, S)
    chosen = spread(len(found.steps), 8 if width > NARROW else 4)
    whose = "mean of its heads" if head is None else f"head {head}"
    rows, columns = found.edges[kind]
    return wall(
        [shown[number] for number in chosen],
        [f"step {found.steps[number]:,}" for number in chosen],
        rows=rows,
        columns=columns,
        title=f"{KINDS.get(kind, kind)}, layer {layer}, {whose}",
        width=width,
    )


def first_kind(found: History) -> str:
    """The kind of attention to show, if none is asked for."""
    return next((name for name in ORDER if name in found.weights), next(iter(found.weights)))


def spread(count: int, most: int) -> list[int]:
    """At most so many of `count` places, the first and the last among them.

    >>> spread(10, 4)
    [0, 3, 6, 9]
    """
    few = min(count, most)
    return sorted({round(place * (count - 1) / max(1, few - 1)) for place in range(few)})
