"""Counts and times of a service, for Prometheus.

clearhead_requests_total{route="/translate",status="200"} 17.0
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.serve.errors import CLIENT_CLOSED_REQUEST, request_id, stopping, to_request_error

STATM = Path("/proc/self/statm")
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

access_log = logging.getLogger("clearhead.serve.access")


class Metrics:
    """The metrics of one service, in a registry of their own: two services in one process do not mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "clearhead_requests_total", "Requests answered.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "clearhead_request_seconds",
            "Time from a request to its response.",
            ["route"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=registry,
        )
        self.batches = Histogram(
            "clearhead_batch_rows",
            "Texts or images computed together.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.steps = Histogram(
            "clearhead_step_rows",
            "Rows of each step of the token loop.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.first_token = Histogram(
            "clearhead_first_token_seconds",
            "Time from a request to its first generated text.",
            ["model"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=registry,
        )
        self.tokens = Counter("clearhead_tokens_total", "Tokens generated.", ["model"], registry=registry)
        self.queue = Gauge("clearhead_queue_rows", "Texts or images waiting for a model.", ["model"], registry=registry)
        self.running = Gauge(
            "clearhead_running_rows", "Texts or images that a model computes.", ["model"], registry=registry
        )
        memory = Gauge("process_resident_memory_bytes", "Resident memory of the process.", registry=registry)
        memory.set_function(resident_memory)

    def text(self, waiting: Iterable[tuple[str, int]], running: Iterable[tuple[str, int]] = ()) -> bytes:
        """Return all metrics in Prometheus' text format; of each model what waits, and what is being computed."""
        for model, count in waiting:
            self.queue.labels(model=model).set(count)
        for model, count in running:
            self.running.labels(model=model).set(count)
        return generate_latest(self.registry)


def resident_memory() -> float:
    """Return the bytes of this process that are in memory now; its peak where there is no /proc."""
    if STATM.exists():
        return float(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


class MeasureRequests:
    """ASGI middleware that gives each request an id, and counts and logs its response.

    Unknown addresses count as one route. A client may send the id in `X-Request-ID`; the response has it there, too.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), CLIENT_CLOSED_REQUEST
        sent = dict(scope["headers"]).get(b"x-request-id", b"")
        name = sent.decode() if REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
        request_id.set(name)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", name.encode())]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception as problem:
            if status != CLIENT_CLOSED_REQUEST:  # the response has begun: only its connection can be closed
                raise
            await to_request_error(problem).response()(scope, receive, send_with_id)
        except asyncio.CancelledError:  # the service ends, and its grace period is over
            if status == CLIENT_CLOSED_REQUEST:
                await stopping().response()(scope, receive, send_with_id)
        finally:
            seconds, route = time.perf_counter() - start, getattr(scope.get("route"), "path_format", "other")
            self.metrics.requests.labels(route=route, status=str(status)).inc()
            self.metrics.seconds.labels(route=route).observe(seconds)
            if access_log.isEnabledFor(logging.INFO):
                _log(scope, name, status, seconds)


def _log(scope: Scope, name: str, status: int, seconds: float) -> None:
    method, path = scope["method"], scope["path"]
    fields = {"request": name, "client": scope.get("clearhead.client"), "method": method, "path": path}
    fields |= {"status": status, "seconds": round(seconds, 4)}
    access_log.info("%s %s %s", method, path, status, extra={"fields": fields})
