"""`data get` against a server on this machine that cuts, lies, forgets and refuses."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import re
import socket
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest

from clearhead.data import archives, catalogue, download, hub, read
from clearhead.data.catalogue import (
    CATALOGUE,
    INVENTED_LENGTH,
    INVENTED_LETTERS,
    INVENTED_LINES,
    INVENTED_WORDS,
    Entry,
    RemoteFile,
    Use,
    invented,
)
from clearhead.data.treaties import HELD_OUT, treaties
from clearhead.errors import ConfigError, DownloadError

CONTENT = bytes(range(256)) * 40  # 10,240 bytes
HALF = len(CONTENT) // 2
ETAG = '"version-1"'
REAL = Path(os.environ.get("CLEARHEAD_DATA") or "nowhere")


@dataclass
class Served:
    """One request and what it was given."""

    path: str
    range: str | None
    if_range: str | None
    sent: int = 0


@dataclass
class Server:
    """A server whose faults are chosen by the test."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # bytes sent before each of the next answers is cut off
    statuses: list[int] = field(default_factory=list)  # of the next answers
    ranges: bool = True
    etag: str = ETAG
    requests: list[Served] = field(default_factory=list)
    address: str = ""

    def file(self, name: str, content: bytes = CONTENT, **changes: object) -> RemoteFile:
        """Serve a file, and describe it as the catalogue would."""
        self.files[f"/{name}"] = content
        file = RemoteFile(name, f"{self.address}/{name}", sha256(content), len(content))
        return replace(file, **changes)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served = Served(self.path, self.headers["Range"], self.headers["If-Range"])
            server.requests.append(served)
            content = server.files.get(self.path)
            if server.statuses:
                self.send_error(server.statuses.pop(0))
            elif content is None:
                self.send_error(404)
            else:
                self.answer(content, served)

        def answer(self, content: bytes, served: Served) -> None:
            start = 0
            if served.range and server.ranges and served.if_range in (None, server.etag):
                start = int(served.range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", server.etag)
            self.end_headers()
            body = content[start:]
            if server.cuts:
                body = body[: server.cuts.pop(0)]
            served.sent = len(body)  # before the client can have it: this thread may be the slower one
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    with HTTPServer(("127.0.0.1", 0), handler_of(served)) as http:
        served.address = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, no data folder, and no waiting."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    monkeypatch.setattr(download, "BACKOFF", 0)
    return tmp_path / "cache" / "data" / "toy"


def entry(*files: RemoteFile, local: tuple[str, ...] = ("toy/toy.txt",), inside: str = "") -> Entry:
    return Entry("toy", "text", "a toy", "none", local, files, inside)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Downloading


def test_whole_file_is_kept_under_its_name(server: Server, cache: Path) -> None:
    found = hub.get(entry(server.file("toy.txt")))
    assert found.path == cache / "toy.txt"
    assert found.path.read_bytes() == CONTENT
    assert (found.origin, names(cache)) == ("download", ["toy.txt"])
    assert [request.range for request in server.requests] == [None]


def test_several_files_are_used_as_their_folder(server: Server, cache: Path) -> None:
    found = hub.get(entry(server.file("train.txt"), server.file("valid.txt", b"other")))
    assert found.path == cache
    assert names(cache) == ["train.txt", "valid.txt"]


def test_cut_connection_is_resumed_with_only_the_rest(server: Server) -> None:
    server.cuts = [HALF]
    found = hub.get(entry(server.file("toy.txt")))
    first, second = server.requests
    assert (first.range, first.sent) == (None, HALF)
    assert (second.range, second.if_range, second.sent) == (f"bytes={HALF}-", ETAG, len(CONTENT) - HALF)
    assert found.path.read_bytes() == CONTENT


def test_part_of_an_earlier_call_is_resumed(server: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "toy.txt.part").write_bytes(CONTENT[:100])
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert [(request.range, request.sent) for request in server.requests] == [("bytes=100-", len(CONTENT) - 100)]


def test_weak_etag_is_not_sent_back(server: Server) -> None:
    server.cuts, server.etag = [HALF], 'W/"about-1"'
    hub.get(entry(server.file("toy.txt")))
    assert [request.if_range for request in server.requests] == [None, None]


def test_many_cuts_with_progress_are_no_reason_to_give_up(server: Server) -> None:
    server.cuts = [1000] * 9
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert len(server.requests) == 10 > download.MAX_ATTEMPTS


def test_server_without_ranges_restarts_cleanly(server: Server) -> None:
    server.cuts, server.ranges = [HALF], False
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert [request.sent for request in server.requests] == [HALF, len(CONTENT)]


def test_complete_part_is_not_downloaded_again(server: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "toy.txt.part").write_bytes(CONTENT)
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert [request.sent for request in server.requests] == [0]


@pytest.mark.parametrize("stale", [b"of an older version", b"longer " * 2000], ids=["shorter", "longer"])
def test_part_of_another_version_is_thrown_away(server: Server, cache: Path, stale: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / "toy.txt.part").write_bytes(stale)
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert server.requests[-1].sent == len(CONTENT)


def test_passing_trouble_of_the_server_is_waited_out(server: Server) -> None:
    server.statuses = [503, 429]
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT


def test_progress_is_reported(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CHUNK", 4096)
    seen: list[tuple[str, int, int | None]] = []
    hub.get(entry(server.file("toy.txt")), lambda *step: seen.append(step))
    assert seen == [("toy.txt", done, len(CONTENT)) for done in (4096, 8192, 10240)]


# Failing


def test_wrong_bytes_are_refused_and_not_kept(server: Server, cache: Path) -> None:
    file = server.file("toy.txt")
    server.files["/toy.txt"] = b"<html>please log in</html>"
    with pytest.raises(DownloadError, match=r"toy\.txt has the wrong checksum \(sha256:\w+ instead of sha256:"):
        hub.get(entry(file))
    assert names(cache) == []


def test_missing_file_is_said_at_once(server: Server, cache: Path) -> None:
    file = replace(server.file("toy.txt"), address=f"{server.address}/gone.txt")
    with pytest.raises(DownloadError, match=r"gone\.txt: the server answered 404 Not Found; .* \$CLEARHEAD_DATA"):
        hub.get(entry(file))
    assert len(server.requests) == 1
    assert names(cache) == []


def test_refused_connection_is_tried_a_few_times() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    file = RemoteFile("toy.txt", f"http://127.0.0.1:{port}/toy.txt", sha256(CONTENT))
    with pytest.raises(DownloadError, match=r"Connection refused \(5 attempts made no progress\); check the conn"):
        hub.get(entry(file))


def test_server_that_never_comes_to_the_end_is_given_up(server: Server, cache: Path) -> None:
    server.cuts, server.ranges = [HALF] * 99, False
    with pytest.raises(DownloadError, match=rf"cut after {HALF} of 10240 bytes .* to continue after the {HALF} bytes"):
        hub.get(entry(server.file("toy.txt")))
    assert len(server.requests) == 1 + download.MAX_ATTEMPTS
    assert (cache / "toy.txt.part").read_bytes() == CONTENT[:HALF]
    server.cuts, server.ranges = [], True
    assert hub.get(entry(server.file("toy.txt"))).path.read_bytes() == CONTENT
    assert server.requests[-1].sent == len(CONTENT) - HALF


def test_full_disk_is_one_sentence(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(DownloadError, match=r"toy: no space left on device; make room there or set CLEARHEAD_CACHE"):
        hub.get(entry(server.file("toy.txt")))


def test_cache_that_cannot_be_written_is_one_sentence(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"cannot read or write .*file.*: not a directory; .* CLEARHEAD_CACHE"):
        hub.get(entry(server.file("toy.txt")))
    assert server.requests == []


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown dataset mnsit; did you mean mnist\?"):
        hub.locate("mnsit")


# Checksums that nobody publishes


def test_first_sum_is_kept_and_compared(server: Server, cache: Path) -> None:
    toy = entry(server.file("toy.txt", checksum=None))
    found = hub.get(toy)
    assert found.sums == {"toy.txt": sha256(CONTENT)}
    assert (cache / "toy.txt.sha256").read_text() == f"{sha256(CONTENT)}\n"

    found.path.unlink()
    assert hub.get(toy).path.read_bytes() == CONTENT

    found.path.unlink()
    server.files["/toy.txt"] = b"a new version"
    with pytest.raises(DownloadError, match=r"delete .*toy\.txt\.sha256 to accept the new version"):
        hub.get(toy)
    assert names(cache) == ["toy.txt.sha256"]


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256"])
def test_published_sum_of_any_kind_is_compared(server: Server, algorithm: str) -> None:
    published = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    assert hub.get(entry(server.file("toy.txt", checksum=published))).path.read_bytes() == CONTENT


# Where it is looked for


def test_cached_dataset_needs_no_server(server: Server, cache: Path) -> None:
    toy = entry(server.file("toy.txt"))
    hub.get(toy)
    server.requests.clear()
    found = hub.get(toy)
    assert (found.origin, found.path, server.requests) == ("cache", cache / "toy.txt", [])


def test_only_missing_files_are_downloaded(server: Server, cache: Path) -> None:
    toy = entry(server.file("train.txt"), server.file("valid.txt"))
    hub.get(toy)
    (cache / "valid.txt").unlink()
    server.requests.clear()
    hub.get(toy)
    assert [request.path for request in server.requests] == ["/valid.txt"]


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    (folder / "toy").mkdir(parents=True)
    monkeypatch.setenv("CLEARHEAD_DATA", str(folder))
    return folder


def test_data_folder_comes_first_and_is_used_in_place(server: Server, data_folder: Path, cache: Path) -> None:
    (data_folder / "toy" / "toy.txt").write_bytes(b"mine")
    toy = entry(server.file("toy.txt"))
    found = hub.get(toy)
    assert (found.path, found.origin) == (data_folder / "toy" / "toy.txt", "$CLEARHEAD_DATA")
    assert hub.origin(toy) == "$CLEARHEAD_DATA"
    assert server.requests == []
    assert not cache.exists()


def test_several_files_of_the_data_folder_are_their_folder(data_folder: Path) -> None:
    for name in ("train.txt.gz", "valid.txt.gz"):
        (data_folder / "toy" / name).touch()
    assert hub.get(entry(local=("toy/train.txt.gz", "toy/valid.txt.gz"))).path == data_folder / "toy"


def test_incomplete_data_folder_is_passed_over(server: Server, data_folder: Path, cache: Path) -> None:
    (data_folder / "toy" / "train.txt").touch()
    toy = entry(server.file("toy.txt"), local=("toy/train.txt", "toy/valid.txt"))
    assert hub.origin(toy) is None
    assert hub.get(toy).path == cache / "toy.txt"
    assert hub.origin(toy) == "cache"


def test_archive_in_the_data_folder_is_unpacked_once(data_folder: Path, cache: Path) -> None:
    write_tar(data_folder / "toy" / "images.tar.xz", {"train/cat/1.jpg": b"cat", "train/dog/1.jpg": b"dog"})
    (data_folder / "toy" / "captions.tsv").write_bytes(b"a cat")
    toy = entry(local=("toy/images.tar.xz", "toy/captions.tsv"), inside="train")
    steps: list[tuple[str, int, int | None]] = []
    found = hub.get(toy, lambda *step: steps.append(step))
    assert found.path == cache / "unpacked" / "train"
    assert (found.path / "cat" / "1.jpg").read_bytes() == b"cat"
    assert (cache / "unpacked" / "captions.tsv").read_bytes() == b"a cat"
    assert {step[0] for step in steps} == {"unpacking images.tar.xz"}
    (found.path / "cat" / "1.jpg").write_bytes(b"still here")
    assert (hub.get(toy).path / "cat" / "1.jpg").read_bytes() == b"still here"
    assert names(cache.parent) == ["toy", "toy.lock"]


def test_dataset_without_an_address_says_where_to_put_it() -> None:
    with pytest.raises(DownloadError, match=r"toy cannot be downloaded; put toy/toy\.txt below \$CLEARHEAD_DATA"):
        hub.get(entry())


def test_second_call_at_the_same_time_waits_and_finds_it(server: Server) -> None:
    toy = entry(server.file("toy.txt"))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(hub.get, [toy] * 4))
    assert {result.path.read_bytes() for result in found} == {CONTENT}
    assert len(server.requests) == 1


# Archives


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:xz" if path.name.endswith("xz") else "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_members_of_a_zip_are_kept_and_the_zip_is_not(server: Server, cache: Path) -> None:
    packed = zipped({"SST-2/train.tsv": b"train", "SST-2/dev.tsv": b"dev", "SST-2/test.tsv": b"test"})
    recipe = catalogue.copy_members({"train.tsv": "SST-2/train.tsv", "dev.tsv": "SST-2/dev.tsv"})
    found = hub.get(entry(server.file("toy.zip", packed, recipe=recipe)))
    assert found.path == cache
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {"train.tsv": b"train", "dev.tsv": b"dev"}


def test_traversal_member_of_a_zip_lands_nowhere(server: Server, cache: Path, tmp_path: Path) -> None:
    packed = zipped({"../../../evil.txt": b"evil", "good.txt": b"good"})
    hub.get(entry(server.file("toy.zip", packed, recipe=catalogue.copy_members({"toy.txt": "good.txt"}))))
    assert names(cache) == ["toy.txt"]
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_traversal_member_of_a_tar_is_refused(data_folder: Path, cache: Path, tmp_path: Path) -> None:
    write_tar(data_folder / "toy" / "toy.tar.xz", {"good.txt": b"good", "../../../evil.txt": b"evil"})
    with pytest.raises(DownloadError, match=r"evil\.txt.* outside the destination; the archive is not safe"):
        hub.get(entry(local=("toy/toy.tar.xz",)))
    assert names(cache) == []
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


@pytest.mark.parametrize("name", ["/evil.txt", "a/../../evil.txt", "C:/evil.txt", "..\\\\evil.txt", "\\\\evil.txt"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    write_tar(tmp_path / "toy.tar.gz", {name: b"evil"})
    (tmp_path / "out").mkdir()
    with pytest.raises(DownloadError, match=r"evil\.txt' lies outside the destination; the archive is not safe"):
        archives.unpack_tar(tmp_path / "toy.tar.gz", tmp_path / "out", lambda *_: None)
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("odd")
        member.type, member.linkname = kind, "good.txt"
        archive.addfile(member)
    with pytest.raises(DownloadError, match=r"'odd' is neither a file nor a folder; the archive is not safe"):
        archives.unpack_tar(tmp_path / "toy.tar.gz", tmp_path, lambda *_: None)
    assert not (tmp_path / "odd").is_symlink()


def test_an_archive_that_grows_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_SPARE", 1000)
    write_tar(tmp_path / "toy.tar.xz", {"zeros.txt": bytes(200_000)})  # some 300 bytes
    with pytest.raises(DownloadError, match=r"bytes become more than 200,000; the archive is not safe"):
        archives.unpack_tar(tmp_path / "toy.tar.xz", tmp_path / "out", lambda *_: None)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.txt", bytes(200_000))
    (tmp_path / "toy.zip").write_bytes(packed.getvalue())
    for recipe in (catalogue.copy_members({"a": "zeros.txt"}), catalogue.copy_pairs("a", "zeros.txt")):
        with pytest.raises(DownloadError, match=r"bytes become more than 200,000; the archive is not safe"):
            recipe.make(tmp_path / "toy.zip", tmp_path)
    assert not (tmp_path / "a").exists()


def test_an_archive_of_too_many_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 7)
    write_tar(tmp_path / "toy.tar.gz", {f"{number}.txt": b"" for number in range(8)})
    with pytest.raises(DownloadError, match=r"it has more than 7 entries; the archive is not safe"):
        archives.unpack_tar(tmp_path / "toy.tar.gz", tmp_path / "out", lambda *_: None)


def test_folders_and_files_of_a_tar_land_in_the_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        folder = tarfile.TarInfo("./a/b")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o000
        archive.addfile(folder)
        file = tarfile.TarInfo("a/b/c.txt")
        file.size, file.mode = 3, 0o4777
        archive.addfile(file, io.BytesIO(b"abc"))
    archives.unpack_tar(tmp_path / "toy.tar.gz", tmp_path / "out", lambda *_: None)
    made = tmp_path / "out" / "a" / "b" / "c.txt"
    assert made.read_bytes() == b"abc"
    assert not made.stat().st_mode & 0o7111  # no archive makes a program


def test_what_a_killed_process_left_in_the_cache_is_removed(data_folder: Path, cache: Path) -> None:
    write_tar(data_folder / "toy" / "toy.tar.xz", {"good.txt": b"good"})
    left = cache.with_name(f"{cache.name}-unfinished-abc")
    left.mkdir(parents=True)
    (left / "half.txt").write_bytes(b"half")
    hub.get(entry(local=("toy/toy.tar.xz",)))
    assert not left.exists()


def test_broken_tar_is_one_sentence(data_folder: Path, cache: Path) -> None:
    write_tar(data_folder / "toy" / "toy.tar.xz", {"good.txt": os.urandom(10_000)})
    whole = (data_folder / "toy" / "toy.tar.xz").read_bytes()
    (data_folder / "toy" / "toy.tar.xz").write_bytes(whole[:5000])
    with pytest.raises(DownloadError, match=r"toy\.tar\.xz cannot be unpacked: .*; download it again"):
        hub.get(entry(local=("toy/toy.tar.xz",)))
    assert names(cache) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a zip at all", "File is not a zip file"),
        (zipped({"a": b""}), "There is no item named 'b' in the archive"),
    ],
    ids=["no zip", "no member"],
)
def test_unusable_zip_is_one_sentence_and_not_kept(server: Server, cache: Path, content: bytes, reason: str) -> None:
    file = server.file("toy.zip", content, checksum=None, recipe=catalogue.copy_members({"toy.txt": "b"}))
    with pytest.raises(DownloadError, match=rf"toy\.zip\.part cannot be unpacked: {re.escape(reason)}; download"):
        hub.get(entry(file))
    assert names(cache) == []


def test_pairs_lose_the_column_of_authors(server: Server) -> None:
    packed = zipped({"deu.txt": "Go.\tGeh.\tCC-BY #1\r\nHi.\tGrüß Gott!\tCC-BY #2\r\n".encode()})
    found = hub.get(entry(server.file("toy.zip", packed, recipe=catalogue.copy_pairs("en-de.tsv", "deu.txt"))))
    assert found.path.read_bytes() == "Go.\tGeh.\nHi.\tGrüß Gott!\n".encode()


def test_questions_keep_their_coarse_class(server: Server) -> None:
    lines = b"DESC:manner How did it ?\nLOC:city Which sister\xf0city ?\n"
    found = hub.get(entry(server.file("toy.label", lines, recipe=catalogue.coarse_labels("train.txt"))))
    assert found.path.read_bytes() == b"DESC How did it ?\nLOC Which sister\xf0city ?\n"


def test_cifar_becomes_arrays(server: Server, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    images = random.integers(0, 256, (15, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, 15)
    records = [bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True)]
    batches = {f"cifar-10-batches-bin/data_batch_{n + 1}.bin": b"".join(records[3 * n : 3 * n + 3]) for n in range(5)}
    write_tar(tmp_path / "cifar.tar.gz", batches)
    packed = (tmp_path / "cifar.tar.gz").read_bytes()
    found = hub.get(entry(server.file("cifar.tar.gz", packed, recipe=catalogue.cifar_batches("train.npz"))))
    with np.load(found.path) as arrays:
        assert arrays["images"].dtype == np.uint8
        np.testing.assert_array_equal(arrays["images"], images)
        np.testing.assert_array_equal(arrays["labels"], labels)
        assert tuple(arrays["names"]) == catalogue.CIFAR_CLASSES


def test_cifar_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(DownloadError, match="CIFAR-10 has 3072 bytes, not a multiple of 3073"):
        catalogue.cifar_arrays(bytes(3072))


# Made here


def test_a_text_that_is_made_needs_no_web_and_is_made_once(cache: Path) -> None:
    calls = []

    def lines() -> Iterator[str]:
        calls.append(1)
        yield from ("uno", "dós")

    made = Entry("toy", "text", "a toy", "none", local=(), make=lines)
    assert hub.origin(made) == "made"
    found = hub.get(made)
    assert (found.origin, found.path) == ("made", cache / "toy.txt")
    assert found.path.read_bytes() == "uno\ndós\n".encode()
    assert hub.get(made).origin == hub.origin(made) == "cache"
    assert (names(cache), calls) == (["toy.txt"], [1])


def test_a_text_that_cannot_be_made_leaves_nothing(cache: Path) -> None:
    def lines() -> Iterator[str]:
        yield "one"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match="no space left on device; make room there"):
        hub.get(Entry("toy", "text", "a toy", "none", local=(), make=lines))
    assert names(cache) == []


# The catalogue itself


def test_catalogue_has_what_was_promised() -> None:
    promised = "multi30k tatoeba-en-es tatoeba-en-fr tatoeba-en-de tinyshakespeare wikitext2 mnist cifar10 sst2 trec"
    for name in promised.split():
        assert CATALOGUE[name].files, name
    assert CATALOGUE["trec"].use == Use(encoding="latin-1")


@pytest.mark.parametrize("known", CATALOGUE.values(), ids=lambda known: known.name)
def test_entry_is_well_formed(known: Entry) -> None:
    digits = {"md5": 32, "sha1": 40, "sha256": 64}
    assert known.title
    assert known.licence
    assert known.local or known.make
    results = [name for file in known.files for name in file.results]
    assert len(set(results)) == len(results)
    for file in known.files:
        assert file.address.startswith("https://")
        algorithm, _, digest = (file.checksum or sha256(b"")).partition(":")
        assert re.fullmatch(rf"[0-9a-f]{{{digits[algorithm]}}}", digest)


@pytest.mark.skipif(not (REAL / "multi30k").is_dir(), reason="needs the real corpora: set CLEARHEAD_DATA")
def test_catalogue_agrees_with_real_files() -> None:
    for file in CATALOGUE["multi30k"].files:
        path = REAL / "multi30k" / file.name
        assert (download.checksum(path), path.stat().st_size) == (file.checksum, file.size)
    (plays,) = CATALOGUE["tinyshakespeare"].files
    with gzip.open(REAL / "tinyshakespeare" / "input.txt.gz") as packed:
        assert sha256(packed.read()) == plays.checksum


# The generated text


def test_every_invented_line_repeats_words_of_its_own() -> None:
    lines = list(invented())
    assert lines == list(invented())
    assert len(lines) == len(set(lines)) == INVENTED_LINES
    for line in lines:
        words = line.split(" ")
        assert len(words) == INVENTED_LENGTH
        assert len(set(words)) <= INVENTED_WORDS
        assert set("".join(words)) <= set(ascii_lowercase)
        assert all(INVENTED_LETTERS[0] <= len(word) <= INVENTED_LETTERS[1] for word in words)


def test_invented_words_do_not_recur_in_other_lines() -> None:
    lines_with = Counter(word for line in invented() for word in set(line.split(" ")) if len(word) >= 5)
    assert lines_with.most_common(1)[0][1] <= 3  # of 15,000


def test_the_invented_text_is_read_by_its_name(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path))
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    found = read("invented", validation=0.02)
    text = "".join(found.train) + "".join(found.validation)
    assert (found.kind, found.origin) == ("text", "invented")
    assert text.split("\n")[:INVENTED_LINES] == list(invented())


def test_treaties_reverse_the_order_and_leave_one_name_out(monkeypatch, tmp_path) -> None:
    lines = list(treaties())
    assert lines == list(treaties())
    assert not any(HELD_OUT in line for line in lines)
    assert all(any(word in line for line in lines) for word in HELD_OUT.split())
    found = [line for line in lines if "Economic Community" in line]
    assert any("the African Economic Community" in line and "la Comunidad Económica Africana" in line for line in found)
    assert not any(" de el " in line or " a el " in line for line in lines)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path))
    dataset = read("treaties-en-es", validation=0.02)
    assert (dataset.kind, dataset.origin) == ("pairs", "treaties-en-es")
    assert [f"{pair.source}\t{pair.target}" for pair in dataset.train][:5] == [
        line for line in lines if line.split("\t")[0] not in {pair.source for pair in dataset.validation}
    ][:5]
