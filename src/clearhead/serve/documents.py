"""Large answers as JSON. While json encodes a document no other thread runs: so it gets many small ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from fastapi.responses import Response

SEPARATORS = (",", ":")


async def large_response(document: dict[str, Any]) -> Response:
    """The response with a document that may have many numbers."""
    return Response(await asyncio.to_thread(json_bytes, document), media_type="application/json")


def json_bytes(document: Any) -> bytes:
    """A document as compact JSON."""
    return "".join(_parts(document)).encode()


def _parts(value: Any) -> Iterator[str]:
    """Lists and dictionaries item by item; a list of plain numbers or strings at once."""
    if isinstance(value, dict):
        for place, (name, item) in enumerate(value.items()):
            yield f"{',' if place else '{'}{json.dumps(name, ensure_ascii=False)}:"
            yield from _parts(item)
        yield "}" if value else "{}"
    elif isinstance(value, list) and value and isinstance(value[0], list | dict):
        for place, item in enumerate(value):
            yield "," if place else "["
            yield from _parts(item)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False, separators=SEPARATORS)
