"""`clearhead data get` as a user meets it: what it prints, and what a failure looks like."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearhead.cli import data, main
from clearhead.data import catalogue, download
from clearhead.data.catalogue import Entry, RemoteFile, Use

CONTENT = b"to be, or not to be\n" * 500


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteFile]:
    """A catalogue of one dataset, `toy`, served from this machine."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "toy.txt").write_bytes(CONTENT)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "my cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    monkeypatch.setattr(download, "BACKOFF", 0)
    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www"))) as http:
        checksum = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
        file = RemoteFile("toy.txt", f"http://127.0.0.1:{http.server_port}/toy.txt", checksum, len(CONTENT))
        known = Entry("toy", "text", "A toy", "free", ("toy/toy.txt",), (file,), use=Use(encoding="latin-1"))
        monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": known})
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield file
        http.shutdown()
        thread.join()


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main.main(["data", "get", *words])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.mark.usefixtures("toy")
def test_says_where_it_is_and_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("toy") == 0
    printed = capsys.readouterr()
    path = tmp_path / "my cache" / "data" / "toy" / "toy.txt"
    assert path.read_bytes() == CONTENT
    assert printed.out.splitlines() == [
        "toy      A toy",
        "kind     text",
        "licence  free",
        f"where    {path} (download)",
        f"try      clearhead data check '{path}' --encoding latin-1",
    ]
    assert printed.err.startswith("toy.txt: 0.0 of 0.0 MB, ")


@pytest.mark.usefixtures("toy")
def test_json_is_one_document_without_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("toy", "--json") == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert answer["path"] == str(tmp_path / "my cache" / "data" / "toy" / "toy.txt")
    assert (answer["name"], answer["here"], answer["encoding"], answer["sums"]) == ("toy", "download", "latin-1", {})
    assert printed.err == ""


@pytest.mark.usefixtures("toy")
def test_list_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    assert [(row["name"], row["here"]) for row in json.loads(capsys.readouterr().out)] == [("toy", None)]
    assert run("toy") == 0
    capsys.readouterr()
    assert run() == 0
    header, _, row = (line.split() for line in capsys.readouterr().out.strip().splitlines())
    assert header == ["name", "kind", "MB", "here", "what", "[licence]"]
    assert row == ["toy", "text", "0.0", "yes", "A", "toy", "[free]"]


def test_wrong_bytes_are_one_sentence_and_exit_2(
    toy: RemoteFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "www" / "toy.txt").write_bytes(b"<html>please log in</html>")
    assert run("toy", "--json") == 2
    assert f"{toy.address} has the wrong checksum" in json.loads(capsys.readouterr().err)["error"]
    assert list((tmp_path / "my cache" / "data" / "toy").iterdir()) == []


@pytest.mark.usefixtures("toy")
def test_unknown_name_is_one_sentence_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("toi") == 2
    assert capsys.readouterr().err == "clearhead: unknown dataset toi; did you mean toy?\n"


def test_lines_come_every_few_seconds_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(data, "time", SimpleNamespace(monotonic=lambda: next(clock)))  # not of other threads
    lines = data._Lines()
    for done in (0, 10_000_000, 40_000_000, 50_000_000, 60_000_000):
        lines("a.zip", done, 60_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "a.zip: 40.0 of 60.0 MB, 10.0 MB/s, 2 s left",
        "a.zip: 60.0 of 60.0 MB, 10.0 MB/s",
    ]


def test_bar_shows_each_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with data._bar() as report:
        report("a.zip", 500_000, 1_000_000)
        report("a.zip", 1_000_000, 1_000_000)
        report("b.zip", 10, None)
    printed = capsys.readouterr()
    assert "a.zip" in printed.err
    assert "b.zip" in printed.err
    assert printed.out == ""
