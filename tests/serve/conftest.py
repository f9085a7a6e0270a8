"""One service for all tests, called in process, and one on a port where the network matters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import Address, create_app, make_server

from .setting import make_all

LIMITS = Limits(patience=60.0, characters=2000, seconds=120.0, context=500)  # of time, for a busy machine
Open = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_all(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def service(runs: list[str]) -> Iterator[Service]:
    service = Service.load(runs, LIMITS)
    yield service
    service.close()


@pytest.fixture(scope="session")
def client(service: Service) -> TestClient:
    return TestClient(create_app(service, Access()), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="session")
def model(service: Service) -> Callable[[str], Predictor]:
    return lambda name: service.models[name].model


@pytest.fixture(scope="session")
def address(runs: list[str]) -> Iterator[str]:
    """A service on a port."""
    with opened(runs, LIMITS) as address:
        yield address


@pytest.fixture
def open_service(runs: list[str]) -> Open:
    """A service on a port, with limits of its own and only the models that are named."""

    def open_service(*names: str, token: str | None = None, **limits: Any) -> AbstractContextManager[str]:
        return opened([run for run in runs if Path(run).name in names], Limits(**limits), token)

    return open_service


@contextmanager
def opened(runs: list[str], limits: Limits, token: str | None = None) -> Iterator[str]:
    place = Address(port=0, token=token)
    server, listening = make_server(create_app(Service.load(runs, limits), place.access), limits), place.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield place.url(listening)
    finally:
        server.should_exit = True
        thread.join()
