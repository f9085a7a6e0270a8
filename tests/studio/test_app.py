"""The page has a policy under which no text becomes a script, and no other file is served."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from clearhead.studio.app import PAGE


def test_the_root_leads_to_the_page(studio: TestClient) -> None:
    answer = studio.get("/")
    assert str(answer.url).endswith("/studio/")
    assert "Clearhead Studio" in answer.text


@pytest.mark.parametrize("path", ["/studio/", "/studio/main.js", "/studio/studio.css", "/studio/views/heads.js"])
def test_every_file_has_the_policy(studio: TestClient, path: str) -> None:
    answer = studio.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_modules_are_scripts(studio: TestClient) -> None:
    assert studio.get("/studio/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/studio/..%2fapp.py", "/studio/views/..%2fhtml.py", "/studio/%2e%2e/app.py", "/studio/nothing.js"]
)
def test_no_other_file_is_served(studio: TestClient, path: str) -> None:
    assert studio.get(path).status_code == 404


MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
INLINE = r"<script(?![^>]*src=)|<style| on\w+=| style="


def test_the_page_creates_no_markup_from_text_and_loads_nothing_external() -> None:
    for file in PAGE.iterdir():
        assert not re.search(rf"{MARKUP}|https?://", file.read_text(encoding="utf-8")), file.name
    assert not re.search(INLINE, (PAGE / "index.html").read_text(encoding="utf-8"))


def test_another_origin_cannot_use_it(studio: TestClient) -> None:
    answer = studio.post("/studio/api/play", json={}, headers={"Origin": "http://evil.test"})
    assert answer.status_code == 403


def test_the_page_asks_the_server_what_a_model_can_do_instead_of_knowing_tasks() -> None:
    known = r"""\btask [!=]==|["'](?:lm|masked_lm|classify|tag|vision|caption)["']"""
    for file in PAGE.glob("*.js"):
        assert not re.search(known, file.read_text(encoding="utf-8")), file.name
