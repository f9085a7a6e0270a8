"""An interactive view as one HTML file: it opens from disk and needs no network and no server.

The pages are ES modules in `js/`, one file for each: a page exports `FORMAT`, the format of the data that it shows, and
`mount(element, data, options)`. The Studio serves the modules as they are; a file or a notebook cannot import several
files, so there they are joined into one module.
"""

from __future__ import annotations

import html
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError, ProbeError, nearest

FOLDER = Path(__file__).parent / "js"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)
_FORMAT = re.compile(r'^export const FORMAT = "([\w-]+)";', re.MULTILINE)

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
{name}_js.mount(document.getElementById("view"), data);
</script>
</body>
</html>
"""


@cache
def pages() -> dict[str, str]:
    """The pages of this package, and the format of the data that each one shows."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.js"))}
    return {name: found[1] for name, text in texts.items() if (found := _FORMAT.search(text))}


def page(name: str, data: dict[str, Any], title: str) -> str:
    """A whole HTML page that shows `data`; `name` is one of `pages()` or the path of a .js file."""
    return _PAGE.format(
        title=html.escape(title),
        style=style(),
        module=_joined(name),
        data=json.dumps(page_data(name, data), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        name=_file(name).stem,
    )


def style() -> str:
    """The style sheet of all pages."""
    return (FOLDER / "style.css").read_text(encoding="utf-8")


def module(name: str) -> str:
    """A page and all it imports as one ES module that exports `mount` and, as default, the notebook widget."""
    constant = f"{_file(name).stem}_js"
    return f"{_joined(name)}\nexport const {{ mount }} = {constant};\nexport default {constant}.widget;\n"


def page_data(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data as a page reads it; refuses data of another format, and a model without attention."""
    expected = _FORMAT.search(_file(name).read_text(encoding="utf-8"))
    given = data.get("format", "data without a format")
    if expected is not None and given != expected[1]:
        raise ConfigError(f"the page {name} shows {expected[1]}, not {given}")
    if data.get("attention") == {}:
        raise ProbeError(f"{data['model']} has no attention, so the page {name} has nothing to show")
    found: dict[str, Any] = finite(data)
    return found


def finite(data: Any) -> Any:
    """The same data with infinite and undefined numbers as text: JSON has no numbers for them.

    >>> finite({"scores": [0.5, -math.inf]})
    {'scores': [0.5, '-Infinity']}
    """
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


def _file(name: str) -> Path:
    if name.endswith(".js"):
        return Path(name)
    if name not in pages():
        raise ConfigError(f"there is no page {name!r}: {nearest(name, pages())}")
    return FOLDER / f"{name}.js"


def _joined(name: str) -> str:
    """Each module as a constant `NAME_js` that holds its exports, after the modules that it imports."""
    parts: dict[str, str] = {}
    _collect(_file(name), parts)
    return "\n".join(parts.values())


def _collect(file: Path, parts: dict[str, str]) -> None:
    if file.stem in parts:
        return
    text = file.read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        beside = file.with_name(f"{found[2]}.js")  # a page from outside the package may import the modules of js/
        _collect(beside if beside.exists() else FOLDER / beside.name, parts)
    exports = [found[1] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub("", _IMPORT.sub(_constants, text))
    if "\nexport default " in text:
        text = text.replace("\nexport default ", "\nconst asWidget = ")
        exports.append("widget: asWidget")
    parts[file.stem] = f"const {file.stem}_js = (() => {{\n{text}return {{ {', '.join(exports)} }};\n}})();"


def _constants(found: re.Match[str]) -> str:
    """The names of an import, taken from the constant of its module."""
    return f"const {{{found[1].replace(' as ', ': ')}}} = {found[2]}_js;\n"
