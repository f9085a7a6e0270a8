"""The service as one ASGI app: routes, error handling, access and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from fastapi import APIRouter, FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead import __version__
from clearhead.serve import chat, completions, errors, openai_models, tasks
from clearhead.serve.metrics import CONTENT_TYPE, Metrics
from clearhead.serve.registry import Service
from clearhead.serve.schemas import ServiceDep
from clearhead.serve.security import Access, Guard

router = APIRouter(tags=["Service"], responses=errors.ERROR_RESPONSES)

DESCRIPTION = """Trained models over HTTP: OpenAI's API for language models, and a route for each other task.

Every error has one sentence that says what is wrong. A full queue answers 429 with `Retry-After`."""


class Health(BaseModel):
    """The service is running."""

    status: Literal["ok"] = "ok"
    version: str = __version__


@router.get("/health", summary="Check that the service is running")
async def health() -> Health:
    """Needs no token."""
    return Health()


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def metrics(service: ServiceDep) -> PlainTextResponse:
    """Requests, times, batches, queues, tokens and memory, as text."""
    waiting = [(name, served.worker.waiting) for name, served in service.models.items()]
    return PlainTextResponse(service.metrics.text(waiting), media_type=CONTENT_TYPE)


def create_app(service: Service, access: Access) -> FastAPI:
    """Return an app that serves models to clients that have access."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Clearhead",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from other machines
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    errors.install(app)
    for part in (router, completions.router, chat.router, openai_models.router, tasks.router):
        app.include_router(part)
    app.add_middleware(Guard, access=access, limits=service.limits)
    app.add_middleware(MeasureRequests, metrics=service.metrics)
    return app


class MeasureRequests:
    """ASGI middleware that counts responses and their time by route; unknown addresses count as one route."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), errors.CLIENT_CLOSED_REQUEST

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note_status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route=route, status=str(status)).inc()
            self.metrics.seconds.labels(route=route).observe(time.perf_counter() - start)
