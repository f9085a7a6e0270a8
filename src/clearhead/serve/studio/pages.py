"""The page and the modules of the views, as files of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from clearhead.look.render.html import FOLDER as VIEWS

PAGE = Path(__file__).parent / "page"
HEADERS = {
    # Script and style only from files of ours; drawings are saved through data: and blob:.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}  # whatever the system believes


class Files(StaticFiles):
    """A folder of files, each with the headers of the page."""

    def file_response(self, full_path: Any, *given: Any, **named: Any) -> Response:
        """One file."""
        response = super().file_response(full_path, *given, **named)
        response.headers.update(HEADERS)
        if kind := TYPES.get(Path(full_path).suffix):
            response.headers["Content-Type"] = kind
        return response


def install(app: FastAPI) -> None:
    """The page at /studio/, the views at /studio/views/, and the way there."""
    app.mount("/studio/views", Files(directory=VIEWS), name="views")
    app.mount("/studio", Files(directory=PAGE, html=True), name="studio")

    @app.get("/", include_in_schema=False)
    async def _root() -> RedirectResponse:
        return RedirectResponse("/studio/")
