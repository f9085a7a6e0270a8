"""Connections that ask for nothing are closed, after a while or when there are too many."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.serve.limits import Limits


def patient_protocol(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol, which by itself would wait for ever for the rest of a request's head."""

    class Patient(H11Protocol):
        """A connection that has to ask for something."""

        since: float = 0.0  # when it was first seen silent

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """A new client; if there are too many, one that is silent has to go."""
            super().connection_made(transport)
            self.since = time.monotonic()
            if len(self.connections) > limits.connections:
                _close_most_silent(self.connections)
            self.loop.call_later(limits.patience, self.watch, self.cycle)

        def watch(self, last: Any) -> None:
            """Close if there was no new request since the last look, and none is being answered."""
            if self.transport.is_closing():
                return
            if self.silent and self.cycle is last:
                self.transport.close()
                return
            self.loop.call_later(limits.patience, self.watch, self.cycle)

        def on_response_complete(self) -> None:
            """An answer is sent; silence begins."""
            self.since = time.monotonic()
            super().on_response_complete()

        @property
        def silent(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

    return Patient


def _close_most_silent(connections: Any) -> None:
    silent = [each for each in connections if getattr(each, "silent", False) and not each.transport.is_closing()]
    if silent:
        min(silent, key=lambda each: each.since).transport.close()
