"""Download one file over HTTP: resumes where an earlier attempt stopped, and retries before it gives up.

Resuming by range is a promise to those who fetch hundreds of megabytes over a bad line; pooch, the usual library for
this, starts again from the first byte, so this file stays.
"""

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

Report = Callable[[str, int, int | None], None]  # name, bytes done, bytes in total if known

MAX_ATTEMPTS = 5  # in a row without a new byte
BACKOFF = 1.0  # seconds after the first failure; doubles each time
TIMEOUT = 30.0  # seconds without data from the server
CHUNK = 1 << 16
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}  # statuses worth another attempt
# Some servers reject Python's default name; compression would change the bytes of the checksum.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; clearhead)", "Accept-Encoding": "identity"}


class _InterruptedError(Exception):
    """An attempt that ended early; the next one may get further."""


def download(address: str, part: Path, report: Report, size: int | None = None) -> None:
    """Complete the file `part`; bytes that it already has are not requested again."""
    etag, furthest, idle = "", _length(part), 0
    while True:
        try:
            with _request(address, _length(part), etag) as response:
                etag = _strong_etag(response)
                _save(response, part, report, size)
            return
        except _InterruptedError as cut:
            idle = idle + 1 if _length(part) <= furthest else 0
            furthest = max(furthest, _length(part))
            if idle >= MAX_ATTEMPTS:
                raise DownloadError(_failure(address, part, str(cut))) from cut
        time.sleep(BACKOFF * 2 ** (idle - 1))


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file as the catalogue writes it: `sha256:…`."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _request(address: str, start: int, etag: str) -> Any:
    """The response with the bytes from `start` on; 416, "there are none", is a response too."""
    headers = dict(_HEADERS)
    if start:
        headers["Range"] = f"bytes={start}-"
        if etag:  # if the file has changed in the meantime, all of it is sent
            headers["If-Range"] = etag
    try:
        with _network_errors():
            return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as refusal:
        if refusal.code == 416:
            return refusal
        refusal.close()
        sentence = f"the server answered {refusal.code} {refusal.reason}"
        if refusal.code in _TEMPORARY:
            raise _InterruptedError(sentence) from refusal
        raise DownloadError(
            f"cannot download {address}: {sentence}; get the data elsewhere and put it below $CLEARHEAD_DATA"
        ) from refusal


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn network errors into _InterruptedError: wraps calls to the server, never to the disk."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as problem:
        reason = getattr(problem, "reason", problem)  # URLError wraps the real error
        raise _InterruptedError(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__) from problem


def _save(response: Any, part: Path, report: Report, size: int | None) -> None:
    """Append the response to `part`, or start again if it is not the requested range."""
    have = _length(part)
    start, total = _span(response, size)
    if response.status == 416 and total == have:
        return  # the part is already the whole file
    if start not in (0, have):
        part.unlink(missing_ok=True)
        raise _InterruptedError(f"the {have} bytes already downloaded do not match the file on the server")
    with part.open("ab" if start else "wb") as out:
        while chunk := _read(response):
            out.write(chunk)
            report(part.stem, out.tell(), total)
        out.flush()
        os.fsync(out.fileno())
    if total is not None and _length(part) < total:
        raise _InterruptedError(f"the connection was cut after {_length(part)} of {total} bytes")


def _read(response: Any) -> bytes:
    with _network_errors():
        chunk: bytes = response.read(CHUNK)
        return chunk


def _span(response: Any, size: int | None) -> tuple[int, int | None]:
    """Where the response begins in the file (-1 if unknown), and the size of the whole file."""
    if response.status == 200:
        return 0, size if response.length is None else response.length
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not found:
        return -1, None
    return int(found[1] or -1), size if found[2] == "*" else int(found[2])


def _strong_etag(response: Any) -> str:
    """The server's tag of this version of the file; a weak one does not guarantee the same bytes."""
    etag: str = response.headers.get("ETag", "")
    return "" if etag.startswith("W/") else etag


def _failure(address: str, part: Path, reason: str) -> str:
    kept = f" to continue after the {_length(part)} bytes already downloaded" if _length(part) else ""
    return (
        f"cannot download {address}: {reason} ({MAX_ATTEMPTS} attempts made no progress); "
        f"check the connection and run the same command again{kept}"
    )
