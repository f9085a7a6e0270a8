"""One file over HTTP: goes on where an earlier try stopped, and tries again a few times before it gives up."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.errors import DownloadError

Report = Callable[[str, int, int | None], None]  # what is under way, bytes done, bytes in all where known

TRIES = 5  # in a row without a new byte, before giving up
BACKOFF = 1.0  # seconds after the first failure; doubles
TIMEOUT = 30.0  # seconds without a sign from the server
CHUNK = 1 << 16
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses that may be gone at the next try
# Some servers turn away Python's own name; compression would change the bytes that are summed.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; clearhead)", "Accept-Encoding": "identity"}


class _CutError(Exception):
    """A try that ended early; the next one may go further."""


def download(address: str, part: Path, report: Report, size: int | None = None) -> None:
    """Fill `part` up to the whole file; what is there already is not asked for again."""
    etag, furthest, idle = "", _length(part), 0
    while True:
        try:
            with _answer(address, _length(part), etag) as response:
                etag = _strong_etag(response)
                _save(response, part, report, size)
            return
        except _CutError as cut:
            idle = idle + 1 if _length(part) <= furthest else 0
            furthest = max(furthest, _length(part))
            if idle >= TRIES:
                raise DownloadError(_given_up(address, part, str(cut))) from cut
        time.sleep(BACKOFF * 2 ** (idle - 1))


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """A file's sum as the catalogue writes it: `sha256:…`."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _answer(address: str, start: int, etag: str) -> Any:
    """The server's answer to a request for the bytes from `start` on; 416, "there are none", is one too."""
    headers = dict(_HEADERS)
    if start:
        headers["Range"] = f"bytes={start}-"
        if etag:  # if the file has changed meanwhile, it is sent whole
            headers["If-Range"] = etag
    try:
        with _line():
            return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as refusal:
        if refusal.code == 416:
            return refusal
        refusal.close()
        sentence = f"the server answered {refusal.code} {refusal.reason}"
        if refusal.code in _PASSING:
            raise _CutError(sentence) from refusal
        raise DownloadError(
            f"cannot download {address}: {sentence}; get the data in another way and put it below $CLEARHEAD_DATA"
        ) from refusal


@contextmanager
def _line() -> Iterator[None]:
    """Trouble on the line becomes _CutError: wraps what talks to the server, never what talks to the disk."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as problem:
        reason = getattr(problem, "reason", problem)  # URLError wraps the true one
        raise _CutError(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__) from problem


def _save(response: Any, part: Path, report: Report, size: int | None) -> None:
    """Append the answer to `part`, or begin anew when it is not the continuation that was asked for."""
    have = _length(part)
    start, total = _span(response, size)
    if response.status == 416 and total == have:
        return  # the part is already the whole file
    if start not in (0, have):
        part.unlink(missing_ok=True)
        raise _CutError(f"the {have} bytes already here do not fit the file on the server")
    with part.open("ab" if start else "wb") as out:
        while chunk := _read(response):
            out.write(chunk)
            report(part.stem, out.tell(), total)
        out.flush()
        os.fsync(out.fileno())
    if total is not None and _length(part) < total:
        raise _CutError(f"the connection was cut after {_length(part)} of {total} bytes")


def _read(response: Any) -> bytes:
    with _line():
        chunk: bytes = response.read(CHUNK)
        return chunk


def _span(response: Any, size: int | None) -> tuple[int, int | None]:
    """Where the answer begins in the file (-1: nowhere), and how long the whole file is."""
    if response.status == 200:
        return 0, size if response.length is None else response.length
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not found:
        return -1, None
    return int(found[1] or -1), size if found[2] == "*" else int(found[2])


def _strong_etag(response: Any) -> str:
    """The server's name for this version of the file; a weak one does not promise the same bytes."""
    etag: str = response.headers.get("ETag", "")
    return "" if etag.startswith("W/") else etag


def _given_up(address: str, part: Path, reason: str) -> str:
    kept = f" to go on after the {_length(part)} bytes already here" if _length(part) else ""
    return (
        f"cannot download {address}: {reason} ({TRIES} tries brought nothing more); "
        f"check the connection and run the same command again{kept}"
    )
