"""The Studio on a port of this machine: an address that can be opened as soon as the models are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvicorn

from clearhead.serve.registry import Service
from clearhead.serve.server import Place, make_server, run_until_told
from clearhead.serve.studio import Runs, add_studio


def open_studio(service: Service, runs: Runs, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the Studio to this machine until the process is told to stop; `on_ready` is told the address."""
    place = Place(port=port)
    listening = place.listen()
    on_ready(f"{place.address(listening)}/studio/")
    run_until_told(make_studio(service, runs, place), service, listening)


def make_studio(service: Service, runs: Runs, place: Place) -> uvicorn.Server:
    """uvicorn with the Studio in it, ready to run."""
    server = make_server(service, place)
    app: Any = server.config.app
    add_studio(app, runs)
    return server
