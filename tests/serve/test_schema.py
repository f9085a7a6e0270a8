"""The OpenAPI document is complete, its examples work, and no request that it allows is a server error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

ROUTES = {
    "/health",
    "/metrics",
    "/v1/models",
    "/v1/models/{name}",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/translate",
    "/classify",
    "/tag",
    "/caption",
    "/words",
    "/look",
    "/predict",
}
MODELS = {
    "/v1/completions": "writer",
    "/v1/chat/completions": "writer",
    "/v1/embeddings": "critic",
    "/translate": "translator",
    "/classify": "critic",
    "/tag": "tagger",
    "/caption": "painter",
    "/words": "vectors",
    "/look": "translator",
    "/predict": "critic",
}


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_route_is_described_with_its_errors(document: dict[str, Any]) -> None:
    assert document["paths"].keys() >= ROUTES
    for path in ROUTES:
        for operation in document["paths"][path].values():
            assert operation["summary"]
            assert operation["description"]
            assert {"200", "4XX"} <= operation["responses"].keys()
            assert "422" not in operation["responses"]


def test_every_request_body_has_an_example(document: dict[str, Any]) -> None:
    for path in ROUTES:
        for method, operation in document["paths"][path].items():
            if method == "post":
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                name = schema.get("$ref", "").rpartition("/")[2]
                whole = document["components"]["schemas"][name] if name else schema
                assert whole["examples"], path


def test_the_examples_for_bundled_models_are_answered(document: dict[str, Any]) -> None:
    service = Service.load(["en-es", "words"], Limits())
    client = TestClient(create_app(service, Access()), base_url="http://localhost")
    schemas = document["components"]["schemas"]
    for path, name in (("/translate", "TranslateRequest"), ("/words", "WordsRequest")):
        for example in schemas[name]["examples"]:
            assert client.post(path, json=example).status_code == 200
    service.close()


@pytest.fixture(scope="module")
def app(runs: list[str]) -> Iterator[Any]:
    """A service that writes little, so that many cases are quick."""
    service = Service.load(runs, Limits(tokens=30, context=40, texts=5))
    yield create_app(service, Access())
    service.close()


def run_cases(app: Any, count: int) -> Counter[int]:
    """Ask so many cases of each operation, as the document allows and as it does not; how often came which status."""
    import schemathesis  # here, since it takes a second
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})
    answered: Counter[int] = Counter()

    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = MODELS[case.operation.path]  # a drawn name would never be one
        response = case.call(headers={"Host": "localhost"})
        case.validate_response(response, checks=[not_a_server_error])
        answered[response.status_code] += 1

    for found in schema.get_all_operations():
        for mode in GenerationMode:
            _ask_many(found.ok().as_strategy(generation_mode=mode), ask, count)
    return answered


def _ask_many(strategy: Any, ask: Callable[[Any], None], count: int) -> None:
    quick = settings(
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    with suppress(Unsatisfiable):  # a route without input has no invalid requests
        quick(given(case=strategy)(lambda case: ask(case)))()


def test_no_generated_request_is_a_server_error(app: Any) -> None:
    answered = run_cases(app, 6)
    assert answered[200] > 20
    assert answered[400] > 20


@pytest.mark.slow
def test_none_of_ten_thousand_generated_requests_is_a_server_error(app: Any) -> None:
    assert run_cases(app, 600).total() >= 10_000
