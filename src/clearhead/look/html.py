"""An interactive view as one HTML file: opens from disk, needs no network and no server.

The views are plain ES modules in `views/`. A page served over HTTP imports them as they are; a file and a notebook
cannot, so there they are joined into one module.
"""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError, ProbeError, nearest

VIEWS = {  # and the format that each one reads
    "heads": "clearhead-look-1",
    "patches": "clearhead-look-1",
    "steps": "clearhead-steps-1",
    "beam": "clearhead-beam-1",
    "cells": "clearhead-cells-1",
}
FOLDER = Path(__file__).parent / "views"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
html {{ color-scheme: light dark; background: light-dark(#ffffff, #12151b); }}
body {{ margin: 0 auto; max-width: 90rem; }}
{style}
</style>
</head>
<body>
<main id="view"></main>
<script type="application/json" id="data">{data}</script>
<script type="module">
{module}
const data = JSON.parse(document.getElementById("data").textContent);
{view}_js.mount(document.getElementById("view"), data);
</script>
</body>
</html>
"""


def page(view: str, data: dict[str, Any], title: str) -> str:
    """A whole page that shows `data` (what the look's own `to_json` gives) in a view."""
    return _PAGE.format(
        title=html.escape(title),
        style=style(),
        module=_joined(view),
        data=json.dumps(readable(view, data), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        view=view,
    )


def style() -> str:
    """The style sheet of all views."""
    return (FOLDER / "style.css").read_text(encoding="utf-8")


def module(view: str) -> str:
    """A view and all it imports as one ES module, with the view's `mount` and its default export."""
    return f"{_joined(view)}\nexport const {{ mount }} = {view}_js;\nexport default {view}_js.widget;\n"


def readable(view: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data as a view reads it, after making sure that it is what this view shows."""
    given = data.get("format", "data without a format")
    if given != VIEWS[view]:
        raise ConfigError(f"the view {view} shows {VIEWS[view]}, not {given}")
    if data.get("attention") == {}:
        raise ProbeError(f"{data['model']} has no attention, so the view {view} has nothing to show")
    found: dict[str, Any] = plain(data)
    return found


def plain(data: Any) -> Any:
    """The same with every infinite or undefined number as text, which JSON has no number for.

    >>> plain({"scores": [0.5, -math.inf]})
    {'scores': [0.5, '-Infinity']}
    """
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


def _joined(view: str) -> str:
    """Each module as a constant, `NAME_js`, that holds what it exports, those it needs before it."""
    if view not in VIEWS:
        raise ConfigError(f"there is no view {view!r}: {nearest(view, VIEWS)}")
    parts: dict[str, str] = {}
    _collect(view, parts)
    return "\n".join(parts.values())


def _collect(name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
    for needed in _IMPORT.finditer(text):
        _collect(needed[2], parts)
    exports = [found[1] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub("", _IMPORT.sub(r"const {\1} = \2_js;\n", text))
    if "\nexport default " in text:
        text = text.replace("\nexport default ", "\nconst asWidget = ")
        exports.append("widget: asWidget")
    parts[name] = f"const {name}_js = (() => {{\n{text}return {{ {', '.join(exports)} }};\n}})();"
