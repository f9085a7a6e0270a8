"""The whole service as one ASGI app: routes, what they answer to mistakes, and who may ask."""

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
from clearhead.serve import chat, completions, failures, openai_models, tasks
from clearhead.serve.asking import Serving
from clearhead.serve.guard import Access, Guard
from clearhead.serve.metrics import Metrics, labels
from clearhead.serve.registry import Service

router = APIRouter(tags=["Service"], responses=failures.FAILURES)

DESCRIPTION = """Trained models behind HTTP: OpenAI's API for language models, and a route for each other task.

Every mistake is answered with one sentence. A queue that is full answers 429 with `Retry-After`."""


class Health(BaseModel):
    """Whether the service is there."""

    status: Literal["ok"] = "ok"
    version: str = __version__


@router.get("/health", summary="Whether the service is there")
async def health() -> Health:
    """Needs no token."""
    return Health()


@router.get("/metrics", summary="Numbers for Prometheus", response_class=PlainTextResponse)
async def metrics(service: Serving) -> PlainTextResponse:
    """Requests, times, batches, queues, tokens and memory, as text."""
    waiting = [(name, served.worker.waiting) for name, served in service.models.items()]
    return PlainTextResponse(service.metrics.text(waiting), media_type="text/plain; version=0.0.4")


def create_app(service: Service, access: Access) -> FastAPI:
    """An app that serves these models to those who have access."""

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
    failures.install(app)
    for part in (router, completions.router, chat.router, openai_models.router, tasks.router):
        app.include_router(part)
    app.add_middleware(Guard, access=access, limits=service.limits)
    app.add_middleware(Measured, metrics=service.metrics)
    return app


class Measured:
    """Counts every answer and its time; addresses that do not exist count as one."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), failures.GONE

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.add(1, labels(route=route, status=str(status)))
            self.metrics.seconds.observe(time.perf_counter() - begin, labels(route=route))
