"""The service on a port of this machine, until the process is stopped."""

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
from fastapi import FastAPI

from clearhead.errors import ConfigError
from clearhead.serve.app import create_app
from clearhead.serve.limits import Limits
from clearhead.serve.registry import Service
from clearhead.serve.security import LOCAL_HOSTS, Access, idle_timeout_protocol

RESERVED_FILES = 100  # files that the service itself may open, besides connections


@dataclass(frozen=True)
class Address:
    """Where the service listens, and who may use it."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 = any free port
    token: str | None = None
    hosts: Sequence[str] = ()  # further host names that clients may use

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.strip() == self.token != ""):
            raise ConfigError("the token is empty or has characters that an HTTP header cannot carry; choose another")
        if self.host not in LOCAL_HOSTS and self.token is None:
            raise ConfigError(
                f"--host {self.host} opens the service to other machines: give it a --token, or set CLEARHEAD_TOKEN"
            )

    @property
    def access(self) -> Access:
        return Access(self.token, LOCAL_HOSTS | frozenset(name.lower() for name in self.hosts))

    def url(self, listening: socket.socket) -> str:
        """Return the URL of the service, with the port that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{listening.getsockname()[1]}"

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


def run(service: Service, address: Address, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests in progress."""
    run_server(make_server(create_app(service, address.access), service.limits), service.limits, listening)


def make_server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """Return a uvicorn server for an app."""
    config = uvicorn.Config(
        app,
        http=idle_timeout_protocol(limits),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(limits.patience)),
    )
    return uvicorn.Server(config)


def run_server(server: uvicorn.Server, limits: Limits, listening: socket.socket) -> None:
    """Run a server on a bound port until SIGINT or SIGTERM."""
    allow_connections(limits.connections)
    _ignore_reraised_signals()
    server.run(sockets=[listening])


def _ignore_reraised_signals() -> None:
    """Let uvicorn raise the signal that stopped it again without killing the process: it has finished by then."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)


def allow_connections(count: int) -> None:
    """Raise this process' limit of open files for `count` connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
