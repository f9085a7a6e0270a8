"""Who may use the service and how much they may send, decided before any route sees a request.

A page of another origin cannot use the service: its requests carry `Origin` or `Sec-Fetch-Site`, and no response allows
them (there is no CORS). Neither can a page whose host name was made to point at this machine (DNS rebinding): where no
token is required, `Host` must be a name of this machine.

Clients that send or read too slowly, and connections that stay idle, are closed.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.serve.errors import RequestError

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_PATHS = frozenset({"/health"})  # answered without a token


# --- who ---


@dataclass(frozen=True)
class Access:
    """The token that clients must send, or the host names that they must use."""

    token: str | None = None
    hosts: frozenset[str] = field(default=LOCAL_HOSTS)  # without a token, the allowed values of `Host`

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise a RequestError for a wrong host, another origin or a missing token."""
        host = headers.get("host", "")
        if self.token is None and _host_name(host) not in self.hosts:
            raise RequestError(403, "wrong_host", f"this service is not called {host[:60]!r}; use its own address")
        if _is_cross_origin(method, host, headers):
            raise RequestError(403, "other_origin", "a page of another origin cannot use this service")
        if self.token is not None and path not in PUBLIC_PATHS and not self._has_token(headers):
            raise RequestError(
                401,
                "no_token",
                "this service needs its token: send the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )

    def _has_token(self, headers: Headers) -> bool:
        sent = headers.get("authorization", "")
        return hmac.compare_digest(sent.encode(), f"Bearer {self.token}".encode())


def _host_name(host: str) -> str:
    """Return a Host header without its port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_cross_origin(method: str, host: str, headers: Headers) -> bool:
    """Tell whether a page of another origin sent the request; following a link to the service is allowed."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() != host.lower()
    follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not follows_link


# --- how much and how fast ---


@dataclass(frozen=True)
class Limits:
    """Every limit that keeps one client from taking the service away from the others."""

    rows: int = 64  # batch size: texts or images that a model computes together
    queue: int = 256  # texts or images that may wait for each model
    seconds: float = 60.0  # request timeout, from the complete request to the complete response
    patience: float = 10.0  # seconds for a client to send its request, and to read each part of the response
    connections: int = 1000  # open connections; one more closes the one that has been idle longest

    body: int = 8_000_000  # bytes of a request
    bodies: int = 256_000_000  # bytes of all requests in progress
    characters: int = 10_000  # of a text
    texts: int = 128  # in a request
    tokens: int = 8192  # generated for a request
    context: int = 2048  # tokens of a prompt and its continuation; less for a model with a shorter context
    seen: int = 200  # tokens of a text whose attention is returned
    pixels: int = 16_000_000  # of an image


class Guard:
    """ASGI middleware that checks access and reads the whole body within its limits before the app answers."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits):
        self.app, self.access, self.limits = app, access, limits
        self._held = 0  # bytes of all requests in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = b""
        try:
            headers = Headers(scope=scope)
            self.access.check(scope["method"], scope["path"], headers)
            body = await self._read(receive, headers)
            self._held += len(body)
            await self.app(scope, _replay(body, receive), self._with_timeout(send))
        except RequestError as error:
            await error.response()(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            self._held -= len(body)

    async def _read(self, receive: Receive, headers: Headers) -> bytes:
        try:
            async with asyncio.timeout(self.limits.patience):
                return await self._read_body(receive, headers.get("content-length", ""))
        except TimeoutError:
            message = f"the request did not arrive within {self.limits.patience:g} seconds"
            raise RequestError(408, "too_slow", message, {"Connection": "close"}) from None

    async def _read_body(self, receive: Receive, declared: str) -> bytes:
        self._check_size(int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else 0)
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._check_size(size)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _check_size(self, size: int) -> None:
        if size > self.limits.body:
            message = f"the request is larger than {self.limits.body:,} bytes; send less at a time"
            raise RequestError(413, "too_large", message, {"Connection": "close"})
        if self._held + size > self.limits.bodies:
            message = "the service holds as many requests as its memory allows; try again later"
            raise RequestError(429, "busy", message, {"Retry-After": "1"})

    def _with_timeout(self, send: Send) -> Send:
        """Give a client that reads slowly a limited time for each part of the response."""

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self.limits.patience):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        return send_in_time


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what the app receives from: the body that was read, then whatever follows."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return unread.pop() if unread else await receive()

    return receive_again


def idle_timeout_protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol with a timeout for idle connections and for unfinished request headers."""

    class IdleTimeoutProtocol(H11Protocol):
        """Closes a connection without a request in progress, after a while or when there are too many."""

        idle_since: float = 0.0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.idle_since = time.monotonic()
            if len(self.connections) > limits.connections:
                _close_longest_idle(self.connections)
            self.loop.call_later(limits.patience, self.close_if_idle, self.cycle)

        def close_if_idle(self, last_cycle: Any) -> None:
            """Close if no request came since the last check and none is in progress; else check again later."""
            if self.transport.is_closing():
                return
            if self.is_idle and self.cycle is last_cycle:
                self.transport.close()
                return
            self.loop.call_later(limits.patience, self.close_if_idle, self.cycle)

        def on_response_complete(self) -> None:
            self.idle_since = time.monotonic()
            super().on_response_complete()

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

    return IdleTimeoutProtocol


def _close_longest_idle(connections: Iterable[Any]) -> None:
    idle = [each for each in connections if getattr(each, "is_idle", False) and not each.transport.is_closing()]
    if idle:
        min(idle, key=lambda each: each.idle_since).transport.close()
