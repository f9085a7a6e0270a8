"""Looking inside models: everything that a model computes on the way to its answer.

probes            named probes, and `capture` for any tensor of any layer
attention         weights and scores of one attention call by the explicit equation
inputs            `PreparedInput`: one item as a network reads it
build             from a network and an input to a `Look`, of a given text or during generation
look, record      `Look`: tokens, weights, scores, queries, keys, values, hidden states; its data and file format
foreign           the same for torch and transformers modules
interventions     switch off, average or patch parts of a model, and measure what that changes
view, views/      `VIEWS`: one file per view, with its analysis, JSON, figure and terminal output
units             units and directions that follow a feature of the text
render/           figures, terminal output, HTML pages, notebook widgets

The names below can be imported from `clearhead.look`; they load what they need (torch) when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearhead.registry import lazy_exports

if TYPE_CHECKING:
    from clearhead.look.foreign import look_at
    from clearhead.look.interventions import heads_off, layers_off, mask_off, patched, positions_off, scale_off, trace
    from clearhead.look.look import Look
    from clearhead.look.probes import capture
    from clearhead.look.record import AttentionRecord, LookRecord
    from clearhead.look.render.figure import COLUMN, PAGE, SLIDE, Figure
    from clearhead.look.render.matrix import heatmap
    from clearhead.look.render.terminal import head_labels, show_bars, show_heads, show_matrix
    from clearhead.look.render.text import coloured_text
    from clearhead.look.view import VIEWS, LookView, Model, View, ViewOptions, show
    from clearhead.look.views.beam import BeamTree

_MODULES = {
    "AttentionRecord": "record",
    "BeamTree": "views.beam",
    "COLUMN": "render.figure",
    "Figure": "render.figure",
    "Look": "look",
    "LookRecord": "record",
    "LookView": "view",
    "Model": "view",
    "PAGE": "render.figure",
    "SLIDE": "render.figure",
    "VIEWS": "view",
    "View": "view",
    "ViewOptions": "view",
    "capture": "probes",
    "coloured_text": "render.text",
    "head_labels": "render.terminal",
    "heads_off": "interventions",
    "heatmap": "render.matrix",
    "layers_off": "interventions",
    "look_at": "foreign",
    "mask_off": "interventions",
    "patched": "interventions",
    "positions_off": "interventions",
    "scale_off": "interventions",
    "show": "view",
    "show_bars": "render.terminal",
    "show_heads": "render.terminal",
    "show_matrix": "render.terminal",
    "trace": "interventions",
}


__getattr__, __dir__ = lazy_exports(__name__, _MODULES)

__all__ = [
    "COLUMN",
    "PAGE",
    "SLIDE",
    "VIEWS",
    "AttentionRecord",
    "BeamTree",
    "Figure",
    "Look",
    "LookRecord",
    "LookView",
    "Model",
    "View",
    "ViewOptions",
    "capture",
    "coloured_text",
    "head_labels",
    "heads_off",
    "heatmap",
    "layers_off",
    "look_at",
    "mask_off",
    "patched",
    "positions_off",
    "scale_off",
    "show",
    "show_bars",
    "show_heads",
    "show_matrix",
    "trace",
]
