"""Connections: uvicorn's protocol with limits for clients that are idle, slow or do not read, and how the server ends.

A connection without a request in progress is closed after a while. One whose client does not read is aborted: a closed
transport waits for its buffer to be sent, and would wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.serve.errors import RequestError
from clearhead.serve.security import Limits

NO_HTTP = "this is not an HTTP/1.1 request that can be read; for HTTPS the service needs --tls-cert and --tls-key"
MIN_RATE = 1000  # bytes a second that a client must read of a response


def timeout_protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol with timeouts for idle connections, unfinished headers and unread responses."""

    class TimeoutProtocol(H11Protocol):
        """Closes a connection without a request, and aborts one that does not take its response."""

        idle_since: float = 0.0
        unsent: int = 0  # bytes of responses, at the last check
        reading: asyncio.TimerHandle | None = None  # the next check whether the client reads

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.idle_since = time.monotonic()
            if len(self.connections) > limits.connections:
                _close_longest_idle(self.connections)
            self.loop.call_later(limits.patience, self.close_if_idle, self.cycle)

        def connection_lost(self, exc: Exception | None) -> None:
            self.resume_writing()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self.watch()

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.reading is not None:
                self.reading.cancel()
                self.reading = None

        def shutdown(self) -> None:
            super().shutdown()
            if self.transport.is_closing():
                self.watch()

        def _unsupported_upgrade_warning(self) -> None:
            """Such a request, for a web socket or HTTP/2, is answered like any other: the log need not say so."""

        def send_400_response(self, msg: str) -> None:
            """Answer what is not HTTP like any other mistake; where a response has begun there is no place for it."""
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                body = bytes(RequestError(400, "invalid_http", NO_HTTP).response().body)
                headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
                head = h11.Response(status_code=400, headers=[*headers, ("connection", "close")], reason="Bad Request")
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def close_if_idle(self, last_cycle: Any) -> None:
            """Close if no request came since the last check and none is in progress; else check again later."""
            if self.transport.is_closing():
                self.watch()
                return
            if self.is_idle and self.cycle is last_cycle:
                self.transport.close()
            self.loop.call_later(limits.patience, self.close_if_idle, self.cycle)

        def watch(self) -> None:
            """Check later how much the client has read of what is there now."""
            self.unsent = self.transport.get_write_buffer_size()
            if self.unsent and self.reading is None:
                self.reading = self.loop.call_later(limits.patience, self.abort_if_unread)

        def abort_if_unread(self) -> None:
            self.reading = None
            if self.transport.get_write_buffer_size() > self.unsent - MIN_RATE * limits.patience:
                self.abort()
            else:
                self.watch()

        def on_response_complete(self) -> None:
            self.idle_since = time.monotonic()
            super().on_response_complete()

        def abort(self) -> None:
            """End the connection now, and drop what is not sent: neither this process nor the system keeps it."""
            with suppress(OSError, AttributeError):
                opened = self.transport.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

    return TimeoutProtocol


def _close_longest_idle(connections: Iterable[Any]) -> None:
    idle = [each for each in connections if getattr(each, "is_idle", False) and not each.transport.is_closing()]
    if idle:
        min(idle, key=lambda each: each.idle_since).transport.close()


class Server(uvicorn.Server):
    """Ends after the requests in progress at the first signal, and at once at the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)
