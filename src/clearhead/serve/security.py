"""Who may use the service and how much they may send, decided before any route sees a request.

A page of another origin cannot use the service: its requests carry `Origin` or `Sec-Fetch-Site`, and no response allows
them (there is no CORS). Neither can a page whose host name was made to point at this machine (DNS rebinding): where no
token is required, `Host` must be a name of this machine.

Sizes are checked before contents: the bytes of a body, then the number of its JSON values. What remains is little work.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.errors import ConfigError
from clearhead.serve.errors import RequestError

T = TypeVar("T")

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_PATHS = frozenset({"/health", "/ready"})  # answered without a token
QUOTE = ord('"')
READERS = ThreadPoolExecutor(2, "clearhead bodies")
SMALL_BODY = 16_000  # bytes that are read in the event loop: to pass them to a thread takes longer
NEED_TOKEN = "this service needs its token: send the header Authorization: Bearer TOKEN"
NEED_LINK = "this page needs its token: open the link that clearhead studio has printed"


# --- who ---


@dataclass(frozen=True)
class Access:
    """The token or the keys that clients must send, or the host names that they must use."""

    token: str | None = None
    hosts: frozenset[str] = field(default=LOCAL_HOSTS)  # without a token, the allowed values of `Host`
    keys: Mapping[str, str] = field(default_factory=dict)  # further tokens -> the names of the clients that have them
    cookie: str | None = None  # where a link may carry the token: the cookie that keeps it, and `hosts` hold as well

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return self.token is None and not self.keys

    def check(self, method: str, path: str, headers: Headers) -> str | None:
        """Raise a RequestError for a wrong host, another origin or a missing token; return the name of a key."""
        host = headers.get("host", "")
        if (self.is_open or self.cookie is not None) and _host_name(host) not in self.hosts:
            advice = "use its own address" + (", or start it with --allow-host" if self.is_open else "")
            raise RequestError(403, "wrong_host", f"this service is not called {host[:60]!r}; {advice}")
        if _is_cross_origin(method, host, headers):
            raise RequestError(403, "other_origin", "a page of another origin cannot use this service")
        if self.is_open or path in PUBLIC_PATHS:
            return None
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        name = self._holder(sent.strip()) if scheme.lower() == "bearer" else None
        if name is None and self.cookie is not None:
            name = self._holder(_cookie(headers.get("cookie", ""), self.cookie))
        if name is None:
            message = NEED_TOKEN if self.cookie is None else NEED_LINK
            raise RequestError(401, "no_token", message, {"WWW-Authenticate": "Bearer"})
        return name or None

    def log_in(self, method: str, path: str, query: bytes) -> Response | None:
        """What answers a link with the right token: the same address without it, and the cookie."""
        if self.cookie is None or method != "GET":
            return None
        fields = dict(parse_qsl(query.decode("latin-1")))
        if self._holder(fields.pop("token", "")) is None:
            return None
        there = RedirectResponse("/" + path.lstrip("/") + ("?" + urlencode(fields) if fields else ""), 303)
        there.set_cookie(self.cookie, self.token or "", path="/", httponly=True, samesite="lax")
        return there

    def _holder(self, sent: str) -> str | None:
        """The name of whoever has a token, empty for the service's own; None for no valid one.

        Digests are compared, so that the time says nothing about how much of a token was right.
        """
        digest = _digest(sent)
        if self.token is not None and digest == _digest(self.token):
            return ""
        return next((name for key, name in self.keys.items() if digest == _digest(key)), None)


def read_keys(path: Path) -> dict[str, str]:
    """The keys of a file, one in each line, after the name of its client if there is one; `#` begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"cannot read the keys in {path}: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or not words[-1].isascii():
            raise ConfigError(f"{path}, line {number}: a line has a key, or a name and a key, in ASCII without spaces")
        if words[-1] in keys:
            raise ConfigError(f"{path}, line {number}: this key is there twice; give every client its own")
        keys[words[-1]] = words[0] if len(words) == 2 else f"key {number}"
    if not keys:
        raise ConfigError(f"{path} has no key; write one in each line")
    return keys


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _cookie(header: str, name: str) -> str:
    try:
        cookies = SimpleCookie(header)
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


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
    grace: float = 30.0  # seconds for requests in progress when the service stops

    body: int = 8_000_000  # bytes of a request
    bodies: int = 256_000_000  # bytes of all requests in progress
    items: int = 300_000  # JSON values in a request
    strings: int = 10_000  # JSON strings in a request, names of fields included
    characters: int = 10_000  # of a text
    texts: int = 128  # in a request
    tokens: int = 8192  # generated for a request
    work: int = 32_768  # tokens × beams of all translations of a request
    read: int = 65_536  # tokens of all other texts of a request
    context: int = 2048  # tokens of a prompt and its continuation; less for a model with a shorter context
    prefixes: int = 4096  # tokens of earlier prompts whose keys and values a model keeps
    seen: int = 200  # tokens of a text whose attention is returned
    numbers: int = 300_000  # of inner tensors that are returned beside an answer: writing them holds up all others
    pixels: int = 16_000_000  # of an image

    client_requests: int = 0  # requests in progress of one client (its key, or its address); 0 = any number
    client_rate: int = 0  # requests of one client in a minute; 0 = any number


class Clients:
    """How much each client asks at the moment."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._running: Counter[str] = Counter()
        self._left: dict[str, tuple[float, float]] = {}  # requests that a client may still send, and when that was so

    @contextmanager
    def admit(self, client: str) -> Iterator[None]:
        """Count a request while it is open; 429 for a client that sends too many."""
        most = self.limits.client_requests
        if most and self._running[client] >= most:
            message = f"this client has {most} requests in progress, which is the limit; wait for one of them"
            raise RequestError(429, "too_many_requests", message, {"Retry-After": "1"})
        self._take(client)
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]

    def _take(self, client: str) -> None:
        """One of the requests of this minute: they come back evenly, one after the other."""
        rate, now = self.limits.client_rate, time.monotonic()
        if not rate:
            return
        left, then = self._left.get(client, (float(rate), now))
        left = min(float(rate), left + (now - then) * rate / 60)
        if left < 1:
            seconds = max(1, round((1 - left) * 60 / rate))
            message = f"this client has sent {rate} requests in a minute, which is the limit; wait {seconds} seconds"
            raise RequestError(429, "too_many_requests", message, {"Retry-After": str(seconds)})
        if client not in self._left and len(self._left) >= self.limits.connections:  # forget who has waited longest
            del self._left[min(self._left, key=lambda each: self._left[each][1])]
        self._left[client] = left - 1, now


class Guard:
    """ASGI middleware that checks access and reads the whole body within its limits before the app answers."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits):
        self.app, self.access, self.limits = app, access, limits
        self.clients = Clients(limits)
        self._held = 0  # bytes of all requests in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            if logged_in := self.access.log_in(scope["method"], scope["path"], scope["query_string"]):
                await logged_in(scope, receive, send)
                return
            headers = Headers(scope=scope)
            name = self.access.check(scope["method"], scope["path"], headers)
            scope["clearhead.client"] = client = name or (scope.get("client") or ("",))[0]
            if scope["path"] in PUBLIC_PATHS:
                await self.app(scope, receive, send)
                return
            with self.clients.admit(client):
                await self._answer(scope, headers, receive, send)
        except RequestError as error:
            await error.response()(scope, receive, send)
        except ClientDisconnect:
            return

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        body = await self._read(receive, headers)
        encoding = headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            message = f"Content-Encoding: {encoding[:30]} is not supported; send the body without compression"
            raise RequestError(415, "unsupported_encoding", message)
        self._held += len(body)
        try:
            is_form = headers.get("content-type", "").startswith("multipart/form-data")
            if len(body) > SMALL_BODY and scope["method"] == "POST" and not is_form:  # it is read as JSON
                await in_thread(check_items, body, self.limits.items, self.limits.strings)
            await self.app(scope, _replay(body, receive), send)
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


async def in_thread(read: Callable[..., T], *arguments: Any) -> T:
    """What a function returns that reads a large body; few at a time, so that many of them do not delay other work."""
    return await asyncio.get_running_loop().run_in_executor(READERS, read, *arguments)


# A string (group 1 is its end), or what stands before a value. Possessive, so that a long string takes no memory.
# During a match no other thread runs: so of a string with many escapes it is only the beginning.
_VALUES = re.compile(rb'"(?:[^"\\]++|\\.){0,2000}+("?)|[\[{,]', re.DOTALL)
_REST = re.compile(rb'(?:[^"\\]++|\\.){0,2000}+', re.DOTALL)


def check_items(body: bytes, most: int, most_strings: int) -> None:
    """Refuse JSON with too many values or strings, before any of them takes memory."""
    values = strings = at = 0
    while True:
        for found in _VALUES.finditer(body, at):
            if body[found.start()] != QUOTE:
                values += 1
            else:
                strings += 1
                if not found[1]:
                    at = _end_of_string(body, found.end())
                    break
            if values > most or strings > most_strings:
                counted = f"{most:,} values" if values > most else f"{most_strings:,} strings"
                raise RequestError(413, "too_large", f"the request has more than {counted}; send less at a time")
        else:
            return


def _end_of_string(body: bytes, at: int) -> int:
    """The place after the quote that ends the string around `at`, or the end of the body."""
    while at < len(body) and body[at] != QUOTE:
        rest = _REST.match(body, at)
        at = len(body) if rest is None or rest.end() == at else rest.end()
    return at + 1


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what the app receives from: the body that was read, then whatever follows."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return unread.pop() if unread else await receive()

    return receive_again
