"""The service as one ASGI app: routes, errors, access and metrics; and the port that it listens on, until it stops."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as METRICS_TYPE
from pydantic import BaseModel
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from clearhead import __version__
from clearhead.errors import ConfigError
from clearhead.serve import chat, completions, openai_models, tasks
from clearhead.serve.connections import Server, timeout_protocol
from clearhead.serve.errors import ERROR_RESPONSES, RequestError, add_error_handlers
from clearhead.serve.inputs import ServiceDep
from clearhead.serve.metrics import MeasureRequests
from clearhead.serve.registry import Service
from clearhead.serve.security import LOCAL_HOSTS, Access, Guard, Limits

router = APIRouter(tags=["Service"], responses=ERROR_RESPONSES)

DESCRIPTION = """Trained models over HTTP: OpenAI's API for language models, and a route for each other task.

Every error has one sentence that says what is wrong. A full queue answers 429 with `Retry-After`."""
CLOSING_SECONDS = 5.0  # for the thread of a model to end
SWITCH_SECONDS = 0.0005  # that a thread waits for another one's Python: a request is answered in many short parts
GARBAGE = (20_000, 20, 20)  # thresholds of Python's collector: requests make many objects and few cycles
RESERVED_FILES = 100  # files that the service itself may open, besides connections


# --- the app ---


class Health(BaseModel):
    """The service is running."""

    status: Literal["ok"] = "ok"
    version: str = __version__


@router.get("/health", summary="Check that the service is running")
async def health() -> Health:
    """Needs no token."""
    return Health()


class Ready(BaseModel):
    """The service answers requests with these models."""

    status: Literal["ready"] = "ready"
    models: list[str]


@router.get("/ready", summary="Check that every model answers")
async def ready(service: ServiceDep) -> Ready:
    """503 while the service stops, or if the thread of a model has ended. Needs no token."""
    if not service.ready:
        raise RequestError(503, "not_ready", "the service is stopping, or a model has failed; its log says more")
    return Ready(models=list(service.models))


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def metrics(service: ServiceDep) -> PlainTextResponse:
    """Requests, times, batches, queues, tokens and memory, as text."""
    waiting = [(name, served.worker.waiting) for name, served in service.models.items()]
    running = [(name, served.worker.running) for name, served in service.models.items()]
    return PlainTextResponse(service.metrics.text(waiting, running), media_type=METRICS_TYPE)


class App(FastAPI):
    """An app whose OpenAPI document lists the request bodies, which are read by dependencies, by their names."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HEAD, which load balancers send, is GET whose answer the server sends without its body."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        schemas = document["components"]["schemas"]
        operations = [each for path in document["paths"].values() for each in path.values()]
        for content in (each.get("requestBody", {}).get("content", {}) for each in operations):
            body = content.get("application/json", {})
            if name := body.get("schema", {}).get("title"):
                schemas[name], body["schema"] = body["schema"], {"$ref": f"#/components/schemas/{name}"}
        return document


def create_app(service: Service, access: Access) -> FastAPI:
    """Return an app that serves models to clients that have access."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        # No request is left: what still computes ends at its next step, and a step that does not end is not waited for.
        await asyncio.to_thread(service.close, CLOSING_SECONDS)

    app = App(
        title="Clearhead",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from other machines
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    parts = (router, completions.router, chat.router, openai_models.router, tasks.router)
    add_error_handlers(app, {route.path for part in parts for route in part.routes if isinstance(route, Route)})
    for part in parts:
        app.include_router(part)
    app.add_middleware(Guard, access=access, limits=service.limits)
    app.add_middleware(MeasureRequests, metrics=service.metrics)
    return app


# --- the port ---


@dataclass(frozen=True)
class Address:
    """Where the service listens, and who may use it."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 = any free port
    token: str | None = None
    hosts: Sequence[str] = ()  # further host names that clients may use
    keys: Mapping[str, str] = field(default_factory=dict)  # further tokens -> the names of their clients
    certificate: Path | None = None  # PEM files for TLS
    private_key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("TLS needs both files: give --tls-cert and --tls-key")
        if self.certificate is not None and self.private_key is not None:
            _check_tls(self.certificate, self.private_key)
        if self.token is not None and not (self.token.isascii() and self.token.strip() == self.token != ""):
            raise ConfigError("the token is empty or has characters that an HTTP header cannot carry; choose another")
        if self.host not in LOCAL_HOSTS and self.token is None and not self.keys:
            raise ConfigError(
                f"--host {self.host} opens the service to other machines: give it a --token or an --api-key-file, "
                "or set CLEARHEAD_TOKEN"
            )

    @property
    def access(self) -> Access:
        return Access(self.token, LOCAL_HOSTS | frozenset(name.lower() for name in self.hosts), self.keys)

    def url(self, listening: socket.socket) -> str:
        """Return the URL of the service, with the port that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{listening.getsockname()[1]}"

    def listen(self) -> socket.socket:
        """Bind the port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listening = socket.create_server((self.host, self.port), family=family, backlog=2048)
        except OSError as problem:
            number = problem.errno or 0
            reason = os.strerror(number) if number > 0 else "there is no such address"
            raise ConfigError(f"cannot listen on {self.host}, port {self.port}: {reason}; choose another") from None
        # Connections inherit this; without it the body of a short response waits 40 ms for an acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening


def _check_tls(certificate: Path, private_key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as problem:
        reason = problem.reason if isinstance(problem, ssl.SSLError) else problem.strerror
        raise ConfigError(f"cannot use {certificate} and {private_key} for TLS: {reason}") from None


def run(service: Service, address: Address, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests in progress."""
    server = make_server(create_app(service, address.access), service.limits, address)
    run_server(server, service.limits, listening)


def make_server(app: FastAPI, limits: Limits, address: Address | None = None) -> Server:
    """Return a uvicorn server for an app."""
    tls = {} if address is None else {"ssl_certfile": address.certificate, "ssl_keyfile": address.private_key}
    config = uvicorn.Config(
        app,
        http=timeout_protocol(limits),
        ws="none",
        log_config=None,  # whoever starts the service decides how it logs
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(limits.patience)),
        timeout_graceful_shutdown=limits.grace,  # type: ignore[arg-type]  # any number of seconds
        **tls,  # type: ignore[arg-type]
    )
    return Server(config)


def run_server(server: uvicorn.Server, limits: Limits, listening: socket.socket) -> None:
    """Run a server on a bound port until SIGINT or SIGTERM."""
    allow_connections(limits.connections)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GARBAGE)
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal that stopped it again: it has finished by then, and the process need not die of it
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


def allow_connections(count: int) -> None:
    """Raise this process' limit of open files for `count` connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
