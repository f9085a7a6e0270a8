"""The routes of the Studio over the small models of the service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.serve.conftest import model, runs, service

from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs

__all__ = ["model", "runs", "service"]  # fixtures

Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def studio(service: Service, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    app = make_app(service, Runs(tmp_path_factory.mktemp("trainings")), Access())
    return TestClient(app, base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="session")
def ask(studio: TestClient) -> Ask:
    """A question to a route; the answer, or the sentence of a to_request_error."""

    def ask(route: str, **body: Any) -> Any:
        response = studio.post(f"/studio/api/{route}", json=body)
        found = response.json()
        return found if response.status_code == 200 else (response.status_code, found["error"]["message"])

    return ask


@pytest.fixture(scope="session")
def lines(studio: TestClient) -> Ask:
    """The lines of an answer that streams."""

    def lines(**body: Any) -> list[dict[str, Any]]:
        response = studio.post("/studio/api/play", json=body)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]

    return lines


@pytest.fixture
def trainings(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
