"""Who may use the Studio: whoever has its link; and what an uploaded file is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from clearhead.errors import RunError
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.serve.server import Address
from clearhead.studio.app import make_app, open_studio
from clearhead.studio.runs import Runs

TOKEN = "a-token_of-the-link"
NEED_LINK = "this page needs its token: open the link that clearhead studio has printed"


@pytest.fixture
def client(service: Service, tmp_path: Path) -> TestClient:
    access = replace(Address(token=TOKEN).access, cookie="clearhead-8765")
    app = make_app(service, Runs(tmp_path), access)
    return TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False)


def test_nothing_is_answered_without_the_token(client: TestClient) -> None:
    for path in ("/studio/", "/studio/main.js", "/studio/api/runs", "/v1/models", "/"):
        for more in ("", "?token=", "?token=another"):
            answer = client.get(path + more)
            assert (answer.status_code, answer.json()["error"]["message"]) == (401, NEED_LINK)
    assert client.post("/studio/api/runs", json={"task": "lm"}).status_code == 401
    assert client.put("/studio/api/runs/uploads/a.txt", content=b"a").status_code == 401
    assert client.get("/studio/", headers={"cookie": "clearhead-8765=another"}).status_code == 401
    assert client.get("/studio/", headers={"cookie": "clearhead-8765="}).status_code == 401
    assert client.get("/health").status_code == 200


def test_the_link_leads_to_the_page_once_and_a_cookie_keeps_the_token(client: TestClient) -> None:
    answer = client.get(f"/studio/?view=heads&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/studio/?view=heads")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"clearhead-8765={TOKEN};")
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    assert "Clearhead Studio" in client.get("/studio/").text  # the client has kept the cookie
    assert client.get("/studio/api/runs").json() == {"runs": [], "uploads": []}


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example/"])
def test_a_link_leads_to_this_host_only(path: str) -> None:
    answer = Access(TOKEN, cookie="x").log_in("GET", path, f"token={TOKEN}".encode())
    assert answer is not None
    assert answer.headers["location"] in ("/evil.example/", "/%5Cevil.example/")


def test_a_program_sends_the_token_as_a_header(client: TestClient) -> None:
    assert client.get("/studio/api/runs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/studio/api/runs", headers={"authorization": TOKEN}).status_code == 401


def test_the_token_does_not_open_it_to_other_hosts_or_origins(client: TestClient) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/studio/", headers={**bearer, "host": "evil.example"}).status_code == 403
    assert client.get("/studio/", headers={**bearer, "origin": "http://evil.example"}).status_code == 403


def test_a_service_without_a_page_takes_no_token_from_a_link(service: Service, tmp_path: Path) -> None:
    app = make_app(service, Runs(tmp_path), Access(TOKEN))
    client = TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False)
    assert client.get(f"/studio/?token={TOKEN}").status_code == 401
    assert client.get("/studio/", headers={"cookie": f"clearhead-8765={TOKEN}"}).status_code == 401


def test_every_folder_of_runs_has_a_token_of_its_own(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[str] = []
    monkeypatch.setattr("clearhead.studio.app.run_server", lambda _server, _limits, listening: listening.close())
    for folder in ("a", "b", "a"):
        open_studio(service, Runs(tmp_path / folder), 0, links.append)
    first, second, third = (link.partition("/studio/?token=")[2] for link in links)
    assert min(len(first), len(second)) >= 32
    assert first == third != second  # a page reconnects to a Studio that was started again
    file = tmp_path / "a/.studio/token"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert Runs(tmp_path / "a").token() != first  # others could have read it


# --- uploads ---


def test_no_upload_replaces_another(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    names = ["данные.tsv", "слова.tsv", "a+b.txt", "a,b.txt", "a b.txt", "a-b.txt", "a?b.txt"]
    kept = [runs.upload(name, name.encode()) for name in names]
    assert kept == ["данные.tsv", "слова.tsv", "a+b.txt", "a,b.txt", "a-b.txt", "a-b-2.txt", "a-b-3.txt"]
    assert [runs.uploaded(each).read_text(encoding="utf-8") for each in kept] == names
    assert runs.upload("a+b.txt", b"another") == "a+b-2.txt"
    assert runs.upload("a+b.txt", b"a+b.txt") == "a+b.txt"  # the same file once more
    assert sorted(runs.uploads()) == sorted([*kept, "a+b-2.txt"])


def test_an_upload_is_not_taken_for_json(client: TestClient) -> None:
    book = b'"Who is there?", he said, [and] waited.\n' * 20_011
    answer = client.put("/studio/api/runs/uploads/book.txt", content=book, headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.json()) == (200, {"name": "book.txt"})


@pytest.mark.parametrize("task", ["caption", "vision"])
def test_an_uploaded_table_cannot_name_images_of_this_machine(tmp_path: Path, task: str) -> None:
    runs = Runs(tmp_path)
    name = runs.upload("captions.tsv", b"/etc/secret.png\ta secret\n../other.png\tanother\n")
    with pytest.raises(RunError, match=f"{task} learns from a folder of images, which cannot be uploaded"):
        runs.start(task, "builtin", "tiny", 10, upload=name)
    with pytest.raises(RunError, match=f"{task} learns from a folder of images, which cannot be uploaded"):
        runs.check_upload(name, task)
    assert runs.names() == []
