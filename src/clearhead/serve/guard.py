"""Who may ask, and how much may be sent: decided before any route sees a request.

A page of another origin cannot use the service: its requests carry `Origin` or `Sec-Fetch-Site`, and there is no answer
that would allow them. Nor can a page whose name was made to point at this machine (DNS rebinding): where no token is
needed, `Host` has to be a name of this machine.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.serve.failures import Refused
from clearhead.serve.limits import Limits

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/health"})  # what can be asked without a token


@dataclass(frozen=True)
class Access:
    """What a client has to know or to be."""

    token: str | None = None
    hosts: frozenset[str] = field(default=LOCAL)  # names that clients without a token may call the service by

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse other origins, and those who do not have the token."""
        host = headers.get("host", "")
        if self.token is None and _name(host) not in self.hosts:
            raise Refused(403, "wrong_host", f"this service is not called {_shown(host)}; use its own address")
        if _foreign(method, host, headers):
            raise Refused(403, "other_origin", "a page of another origin cannot use this service")
        if self.token is not None and path not in OPEN and not self._knows(headers.get("authorization", "")):
            raise Refused(
                401,
                "no_token",
                "this service needs its token: send the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )

    def _knows(self, said: str) -> bool:
        return hmac.compare_digest(said.encode(), f"Bearer {self.token}".encode())


def _name(host: str) -> str:
    """A host without its port; nothing if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _shown(host: str) -> str:
    return repr(host[:60])


def _foreign(method: str, host: str, headers: Headers) -> bool:
    """Whether a page of another origin asks; following a link is no use of the service."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() != host.lower()
    follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not follows_link


class Guard:
    """Reads the whole request within its limits, then lets the app answer."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits):
        self.app, self.access, self.limits = app, access, limits
        self._held = 0  # bytes of all requests that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        body = b""
        try:
            headers = Headers(scope=scope)
            self.access.check(scope["method"], scope["path"], headers)
            body = await self._read(receive, headers)
            self._held += len(body)
            await self.app(scope, _after(body, receive), self._patient(send))
        except Refused as refused:
            await refused.response()(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            self._held -= len(body)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app's own start and end; there are no websockets."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _read(self, receive: Receive, headers: Headers) -> bytes:
        """The body, unless it is too large or does not come."""
        try:
            async with asyncio.timeout(self.limits.patience):
                return await self._whole(receive, headers.get("content-length", ""))
        except TimeoutError:
            sentence = f"the request did not arrive within {self.limits.patience:g} seconds"
            raise Refused(408, "too_slow", sentence, {"Connection": "close"}) from None

    async def _whole(self, receive: Receive, said: str) -> bytes:
        self._check_size(int(said) if said.isascii() and said.isdigit() and len(said) < 20 else 0)
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
            sentence = f"the request is larger than {self.limits.body:,} bytes; send less at a time"
            raise Refused(413, "too_large", sentence, {"Connection": "close"})
        if self._held + size > self.limits.bodies:
            raise Refused(429, "busy", "the service holds as much as it can; ask again", {"Retry-After": "1"})

    def _patient(self, send: Send) -> Send:
        """Wait for a client that reads slowly, but not for ever."""

        async def patient(message: Message) -> None:
            try:
                async with asyncio.timeout(self.limits.patience):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        return patient


def _after(body: bytes, receive: Receive) -> Receive:
    """What the app receives: the body that was read, then whatever comes."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return unread.pop() if unread else await receive()

    return again
