"""The service on a port of this machine, until it is told to stop."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import uvicorn

from clearhead.errors import ConfigError
from clearhead.serve.app import create_app
from clearhead.serve.connections import patient_protocol
from clearhead.serve.guard import LOCAL, Access
from clearhead.serve.registry import Service

OWN_FILES = 100  # that the service itself may have open, besides connections


@dataclass(frozen=True)
class Place:
    """Where the service listens, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 = any that is free
    token: str | None = None
    hosts: Sequence[str] = ()  # other names that clients may call it by

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.strip() == self.token != ""):
            raise ConfigError("the token is empty or has characters that no HTTP header carries; choose another")
        if self.host not in LOCAL and self.token is None:
            raise ConfigError(
                f"--host {self.host} opens the service to other machines: give it a --token, or set CLEARHEAD_TOKEN"
            )

    @property
    def access(self) -> Access:
        """What a client has to know or to be."""
        return Access(self.token, LOCAL | frozenset(name.lower() for name in self.hosts))

    def address(self, listening: socket.socket) -> str:
        """What clients call it by."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def listen(self) -> socket.socket:
        """The port, taken."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listening = socket.create_server((self.host, self.port), family=family, backlog=2048)
        except OSError as problem:
            number = problem.errno or 0
            reason = os.strerror(number) if number > 0 else "there is no such address"
            raise ConfigError(f"cannot listen on {self.host}, port {self.port}: {reason}; choose another") from None
        # Its connections inherit this; else the body of a short answer waits 40 ms until its head is acknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening


def run(service: Service, place: Place, listening: socket.socket) -> None:
    """Serve until the process is told to stop, then finish what was begun."""
    run_until_told(make_server(service, place), service, listening)


def run_until_told(server: uvicorn.Server, service: Service, listening: socket.socket) -> None:
    """The same for a server that is ready."""
    allow_connections(service.limits.connections)
    _being_told_is_no_failure()
    server.run(sockets=[listening])


def make_server(service: Service, place: Place) -> uvicorn.Server:
    """uvicorn, ready to run."""
    config = uvicorn.Config(
        create_app(service, place.access),
        http=patient_protocol(service.limits),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(service.limits.patience)),
    )
    return uvicorn.Server(config)


def _being_told_is_no_failure() -> None:
    """uvicorn raises the signal that stopped it again when all is done; by then there is nothing left to do."""
    if threading.current_thread() is threading.main_thread():
        for told in (signal.SIGINT, signal.SIGTERM):
            signal.signal(told, lambda *_: None)


def allow_connections(count: int) -> None:
    """Let this process have so many connections open, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OWN_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
