"""Malformed requests get a 4xx status and one sentence, and the service keeps running."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image
from starlette.testclient import TestClient

from .setting import png

JSON = {"content-type": "application/json"}
ROUTES = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/translate",
    "/classify",
    "/caption",
    "/words",
    "/predict",
]


@pytest.fixture
def safe_client(client: TestClient) -> TestClient:
    """A client that gets a 500 instead of the exception."""
    return TestClient(client.app, base_url=str(client.base_url), raise_server_exceptions=False)


def refused(client: TestClient, route: str, content: bytes, headers: dict[str, str] = JSON) -> str:
    answer = client.post(route, content=content, headers=headers)
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    sentence = answer.json()["error"]["message"]
    assert sentence
    assert "\n" not in sentence
    assert client.get("/health").status_code == 200
    return str(sentence)


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "broken UTF-8": b'{"model": "writer", "prompt": "\xff\xfe", "text": "\xc3"}',
    "half a character": b'{"model": "translator", "text": "\\ud800", "prompt": "\\ud800", "words": ["\\udfff"]}',
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"text":' * 50_000 + b"1" + b"}" * 50_000,
    "less deep lists": b'{"model": "writer", "prompt": ' + b"[" * 700 + b"]" * 700 + b"}",
    "a number of 5,000 digits": b'{"model": "writer", "prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}",
    "no number": b'{"model": "writer", "prompt": "a", "temperature": NaN}',
    "no finite number": b'{"model": "writer", "prompt": "a", "temperature": 1e999}',
    "a list": b"[1, 2, 3]",
    "a text": b'"text"',
    "null": b"null",
    "null inside": b'{"model": null, "text": null}',
    "wrong types": b'{"model": {}, "text": 3, "prompt": {}, "messages": 1, "input": false, "image": []}',
    "zeros": b"\0" * 1000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("route", [*ROUTES, "/look"])
def test_a_malformed_body_is_refused(safe_client: TestClient, route: str, body: bytes) -> None:
    refused(safe_client, route, body)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", "multipart/form-data; boundary=x", "x"])
def test_another_content_type_is_refused(safe_client: TestClient, kind: str) -> None:
    for route in (*ROUTES, "/look"):
        refused(safe_client, route, b'{"model": "nobody"}', {"content-type": kind})


@pytest.mark.parametrize(
    "name",
    [
        "../writer",
        "/etc/passwd",
        "writer/",
        "writer\0",
        "./writer",
        "..%2fwriter",
        "C:\\writer",
        "~",
        "a" * 200,
        "",
        "=x",
    ],
)
def test_a_name_is_never_a_path(safe_client: TestClient, name: str) -> None:
    answer = safe_client.post("/translate", json={"model": name, "text": "a"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("there is no model called ")
    assert name == "" or safe_client.get("/v1/models/" + quote(name, safe="")).status_code == 404


def test_no_error_reveals_the_folder_of_a_model(safe_client: TestClient, runs: list[str]) -> None:
    folder = runs[0].rpartition("/")[0]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/translate", {"model": "writer", "text": "a"}),
        ("/look", {"model": "vectors", "text": "a"}),
        ("/look", {"model": "critic", "text": "a", "target": "b"}),
        ("/classify", {"model": "eyes", "image": base64.b64encode(b"x").decode()}),
        ("/v1/completions", {"model": "eyes", "prompt": "a"}),
        ("/v1/embeddings", {"model": "learned", "input": "bread" * 50}),
    ]
    for route, body in requests:
        answer = safe_client.post(route, json=body)
        assert answer.status_code == 400
        assert folder not in answer.text
        assert "/tmp" not in answer.text


# --- images ---


def claimed(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is large."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def saved(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (7, 5)).save(stream, kind)
    return stream.getvalue()


IMAGES = {
    "no image": (b"GIF89a", "image: this is not one of PNG, JPEG, WEBP, GIF, BMP"),
    "nothing": (b"", "image: this is not one of PNG, JPEG, WEBP, GIF, BMP"),
    "a bomb": (claimed(60_000, 60_000), "image: it has too many pixels; the limit is 16,000,000: scale it down"),
    "a large one": (
        claimed(5000, 5000),
        "image: it has 5,000 × 5,000 pixels; the limit is 16,000,000: scale it down",
    ),
    "cut off": (png(300, 300)[:5000], "image: the file is damaged"),
    "damaged": (claimed(300, 300), "image: the file is damaged"),
    "a format that starts other programs": (saved("EPS"), "image: this is not one of PNG, JPEG, WEBP, GIF, BMP"),
    "a text": (b"<svg onload=alert(1)>", "image: this is not one of PNG, JPEG, WEBP, GIF, BMP"),
}


@pytest.mark.parametrize(("content", "sentence"), IMAGES.values(), ids=IMAGES)
def test_a_malformed_image_is_refused(safe_client: TestClient, content: bytes, sentence: str) -> None:
    body = json.dumps({"model": "eyes", "image": base64.b64encode(content).decode()}).encode()
    assert refused(safe_client, "/classify", body).startswith(sentence)
    form = safe_client.post("/classify", data={"model": "eyes"}, files={"image": ("a.png", content, "image/png")})
    assert form.status_code == 400


def test_invalid_base64_is_refused(safe_client: TestClient) -> None:
    for image in ("*", "abc", "é", "data:image/png;base64", "\n"):
        body = json.dumps({"model": "eyes", "image": image}).encode()
        assert refused(safe_client, "/classify", body).startswith("image: this is not")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_every_supported_image_format_is_read(safe_client: TestClient, kind: str) -> None:
    image = base64.b64encode(saved(kind)).decode()
    assert safe_client.post("/classify", json={"model": "eyes", "image": image}).status_code == 200


def test_a_damaged_form_is_refused_and_writes_nothing_into_the_log(
    safe_client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    kind = {"content-type": "multipart/form-data; boundary=edge"}
    for body in (b"--hedge", b"--edge\r\na\x07b: c\r\n\r\n--edge--", b"{}"):
        assert refused(safe_client, "/classify", body, kind)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("python_multipart")] == []


def test_a_form_with_too_many_parts_is_refused(safe_client: TestClient) -> None:
    many = {f"field{number}": "x" for number in range(50)}
    assert safe_client.post("/classify", data=many, files={"image": ("a.png", png())}).status_code == 400
    two = [("image", ("a.png", png())), ("image", ("b.png", png()))]
    assert safe_client.post("/classify", data={"model": "eyes"}, files=two).status_code == 400


# --- addresses ---


@pytest.mark.parametrize("path", ["/nowhere", "/../etc/passwd", "/%00", "/v1/models/%2e%2e", "/%ff", "/docs", "/redoc"])
def test_an_unknown_address_is_a_404(safe_client: TestClient, path: str) -> None:
    answer = safe_client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


def test_a_wrong_method_is_a_405(safe_client: TestClient) -> None:
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        answer = safe_client.request(method, "/translate")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
    assert (
        safe_client.get("/translate")
        .json()["error"]["message"]
        .startswith("this address answers another method: POST;")
    )


def test_an_error_that_quotes_the_request_is_one_line(safe_client: TestClient) -> None:
    body = {"model": "writer", "prompt": "a", "look": {"probes": ["de\nco\u2028der"]}}
    answer = refused(safe_client, "/v1/completions", json.dumps(body).encode())
    assert answer.startswith("this model has no de co der: a name begins with decoder, logits")


def test_markup_in_a_name_comes_back_only_as_json(safe_client: TestClient) -> None:
    answer = safe_client.post("/translate", json={"model": "<script>alert(1)</script>", "text": "<img onerror=x>"})
    assert answer.headers["content-type"] == "application/json"
