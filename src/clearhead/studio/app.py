"""The page at `/studio/`, its routes at `/studio/api/`, and a server for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from clearhead.look.render.html import FOLDER as VIEWS
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.serve.server import Address, create_app, make_server, run_server
from clearhead.studio import chat, lessons, models, patch, play, runs, views, what_if, xray
from clearhead.studio.runs import Runs

API = "/studio/api"
ROUTERS = tuple(module.router for module in (xray, models, play, chat, views, what_if, patch, lessons, runs))
PAGE = Path(__file__).parent / "page"
HEADERS = {
    # Scripts and styles only from files of this package; figures are saved through data: and blob:.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}  # not left to the system's table


class PageFiles(StaticFiles):
    """A folder of static files, sent with the headers of the page."""

    def file_response(self, full_path: Any, *args: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *args, **options)
        response.headers.update(HEADERS)
        if kind := TYPES.get(Path(full_path).suffix):
            response.headers["Content-Type"] = kind
        return response


def make_app(service: Service, runs: Runs, access: Access) -> FastAPI:
    """Return the app of a service with the Studio added; `/` leads to the page."""
    app = create_app(service, access)
    app.state.runs = runs
    for router in ROUTERS:
        app.include_router(router, prefix=API, tags=["studio"])
    app.mount("/studio/views", PageFiles(directory=VIEWS), name="views")
    app.mount("/studio", PageFiles(directory=PAGE, html=True), name="studio")

    @app.get("/", include_in_schema=False)
    async def _root() -> RedirectResponse:
        return RedirectResponse("/studio/")

    return app


def make_studio(service: Service, runs: Runs, address: Address, cookie: str | None = None) -> uvicorn.Server:
    """Return a uvicorn server for the Studio; with a `cookie` the token of the address may come in a link."""
    return make_server(make_app(service, runs, replace(address.access, cookie=cookie)), service.limits)


def open_studio(service: Service, runs: Runs, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the Studio to this machine until SIGINT or SIGTERM; `on_ready` gets its link when it can be opened.

    The link has the token of the runs: the page starts programs, and other users of this machine can reach the port.
    """
    address = Address(port=port, token=runs.token())
    listening = address.listen()
    url = address.url(listening)
    on_ready(f"{url}/studio/?token={address.token}")
    cookie = f"clearhead-{urlsplit(url).port}"  # browsers send cookies to all ports of a host
    run_server(make_studio(service, runs, address, cookie), service.limits, listening)
