"""Access by origin, host name and token, and limits of the request body."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

HOST = "127.0.0.1:8000"


def ask(client: TestClient, method: str = "POST", **headers: str) -> tuple[int, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": "vectors", "question": "neighbours", "words": ["bread"]}
    if method == "POST":
        answer = client.post("/words", json=body, headers=named)
    else:
        answer = client.request(method, "/v1/models", headers=named)
    assert "access-control-allow-origin" not in answer.headers
    return answer.status_code, answer.json().get("error", {}).get("code", "")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:9000", "http://localhost:8000", ""],
)
def test_a_request_of_another_origin_is_refused(client: TestClient, origin: str) -> None:
    assert ask(client, origin=origin) == (403, "other_origin")
    assert ask(client, "GET", origin=origin) == (403, "other_origin")
    preflight = {"origin": origin, "access_control_request_method": "POST"}
    assert ask(client, "OPTIONS", **preflight) == (403, "other_origin")


def test_a_same_origin_request_is_allowed(client: TestClient) -> None:
    assert ask(client, origin=f"http://{HOST}", sec_fetch_site="same-origin") == (200, "")
    assert ask(client, "GET", sec_fetch_site="same-origin") == (200, "")


def test_a_cross_site_subresource_is_refused_and_a_cross_site_link_is_allowed(client: TestClient) -> None:
    assert ask(client, "GET", sec_fetch_site="cross-site", sec_fetch_mode="no-cors") == (403, "other_origin")
    assert ask(client, "GET", sec_fetch_site="same-site", sec_fetch_mode="cors") == (403, "other_origin")
    assert ask(client, "GET", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == (200, "")
    assert ask(client, "POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == (403, "other_origin")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "localhost@x"]
)
def test_a_foreign_host_name_is_refused(client: TestClient, host: str) -> None:
    assert ask(client, host=host) == (403, "wrong_host")
    assert ask(client, host=host, origin=f"http://{host}") == (403, "wrong_host")


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_every_local_host_name_is_accepted(client: TestClient, host: str) -> None:
    assert ask(client, host=host) == (200, "")


def test_a_host_name_can_be_allowed(service: Service) -> None:
    client = TestClient(
        create_app(service, Access(hosts=frozenset({"model.example"}))), base_url="http://model.example"
    )
    assert ask(client) == (200, "")
    assert ask(client, host="localhost") == (403, "wrong_host")


def test_every_route_but_health_requires_the_token(service: Service) -> None:
    client = TestClient(create_app(service, Access("open sesame")), base_url="http://any.example")
    assert ask(client) == (401, "no_token")
    assert ask(client, authorization="Bearer open sesam") == (401, "no_token")
    assert ask(client, authorization="Basic open sesame") == (401, "no_token")
    assert client.get("/v1/models", headers={"authorization": b"Bearer \xe9"}).status_code == 401
    assert ask(client, authorization="Bearer open sesame") == (200, "")
    assert ask(client, authorization="Bearer open sesame", origin="http://evil.example") == (403, "other_origin")
    assert client.get("/health").status_code == 200
    for path in ("/metrics", "/openapi.json", "/v1/models", "/nowhere"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_large_body_is_refused_by_its_header_and_by_its_bytes(service: Service) -> None:
    small = Service(service.models, Limits(body=1000))
    client = TestClient(create_app(small, Access()), base_url=f"http://{HOST}")
    answer = client.post("/translate", content=b"x" * 1001)
    assert answer.status_code == 413
    assert answer.json()["error"]["message"] == "the request is larger than 1,000 bytes; send less at a time"
    assert client.post("/translate", content=(b"x" * 100 for _ in range(11))).status_code == 413
    assert client.post("/translate", content=b"{" + b" " * 999).status_code == 400


def test_all_bodies_in_progress_share_a_limit(service: Service) -> None:
    small = Service(service.models, Limits(bodies=1000))
    client = TestClient(create_app(small, Access()), base_url=f"http://{HOST}")
    answer = client.post("/translate", content=b"x" * 1001)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    for _ in range(3):  # what was answered is not held any more
        assert client.post("/translate", content=b"x" * 900).status_code == 400
