"""`clearhead bench serve`: many clients at once, every answer checked.

The service is a process of its own, as a user starts it. First one client asks again and again, then 64 at the same
time, each with real sentences for `en-es`; every answer is compared with the translation that the model gives without
a service. `CLEARHEAD_BENCH_SECONDS` makes it shorter than five minutes.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from clearhead.bench.measure import Measurement
from clearhead.errors import ConfigError

MODEL, CLIENTS, SECONDS, SENTENCES = "en-es", 64, 300.0, 500
ALONE = 0.1  # of the time, for the one client
JSON = {"Content-Type": "application/json"}


def run(peers: bool) -> Iterator[Measurement]:  # noqa: ARG001 - there is no other service to compare with
    """Every figure, when all is measured."""
    seconds = _seconds()
    wanted = translations(MODEL, SENTENCES)
    with service(MODEL) as address:
        measured = measure(address, MODEL, wanted, CLIENTS, seconds)
    yield from figures(measured)


def _seconds() -> float:
    said = os.environ.get("CLEARHEAD_BENCH_SECONDS", str(SECONDS))
    try:
        return float(said)
    except ValueError:
        raise ConfigError(f"CLEARHEAD_BENCH_SECONDS={said} is not a number of seconds") from None


def translations(name: str, count: int) -> dict[str, frozenset[str]]:
    """Real sentences, and what the model makes of each without a service: alone, and among others.

    The two differ where two hypotheses are equally likely up to the last digit of a float.
    """
    from clearhead import load

    model, sentences = load(name), real_sentences(count)
    together = model.translate(sentences)
    alone = [model.translate(sentence) for sentence in sentences]
    return {s: frozenset(both) for s, *both in zip(sentences, together, alone, strict=True)}


def real_sentences(count: int) -> list[str]:
    """Different sentences of Tatoeba, or of the pairs that come with the package where it is not at hand."""
    from clearhead.data import catalogue, read
    from clearhead.data.hub import locate, origin

    here = origin(catalogue.find("tatoeba-en-es")) is not None
    pairs = list(read(locate("tatoeba-en-es") if here else "builtin", kind="pairs", validation=0.0).train)
    step = max(1, len(pairs) // (2 * count))
    return list(islice(dict.fromkeys(pair.source for pair in pairs[::step]), count))


@contextmanager
def service(*models: str) -> Iterator[str]:
    """The address of a service that runs as long as it is needed."""
    command = [sys.executable, "-m", "clearhead", "serve", *models, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        if not line:
            raise ConfigError("the service did not start; its message is above")
        said += line
    try:
        yield json.loads(said)["address"]
    finally:
        process.terminate()
        process.wait()


@dataclass
class Heard:
    """What one or more clients got."""

    times: list[float] = field(default_factory=list)  # seconds of each answer
    wrong: list[tuple[str, str]] = field(default_factory=list)  # sentences, and what was answered instead
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """One client, then all of them."""

    alone: Heard
    alone_seconds: float
    together: Heard
    together_seconds: float
    clients: int
    memory: tuple[float, float]  # bytes of the service when it is warm, and at the end, each the median of some samples


def measure(address: str, model: str, wanted: Mapping[str, frozenset[str]], clients: int, seconds: float) -> Measured:
    """Ask for so many seconds in all."""
    alone, alone_seconds = crowd(address, model, wanted, 1, ALONE * seconds)
    warm, warm_seconds = crowd(address, model, wanted, clients, ALONE * seconds)
    with sampled(address) as samples:
        rest, rest_seconds = crowd(address, model, wanted, clients, (1 - 2 * ALONE) * seconds)
    together = Heard(warm.times + rest.times, warm.wrong + rest.wrong, warm.errors + rest.errors)
    return Measured(alone, alone_seconds, together, warm_seconds + rest_seconds, clients, begin_and_end(samples))


@contextmanager
def sampled(address: str, every: float = 1.0) -> Iterator[list[float]]:
    """The memory of the service again and again: it goes up and down with what is being computed."""
    samples, over = [memory(address)], threading.Event()

    def sample() -> None:
        while not over.wait(every):
            samples.append(memory(address))

    watching = threading.Thread(target=sample)
    watching.start()
    try:
        yield samples
    finally:
        over.set()
        watching.join()


def begin_and_end(samples: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and of the last fifth."""
    some = max(1, len(samples) // 5)
    return statistics.median(samples[:some]), statistics.median(samples[-some:])


def crowd(
    address: str, model: str, wanted: Mapping[str, frozenset[str]], clients: int, seconds: float
) -> tuple[Heard, float]:
    """Clients that ask as fast as they are answered, each with sentences in an order of its own; and their seconds."""
    heard, begin, sentences = Heard(), time.monotonic(), list(wanted)
    end = begin + seconds

    def client(number: int) -> None:
        place = number * len(sentences) // clients
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
            while time.monotonic() < end:
                ask(connection, model, sentences[place % len(sentences)], wanted, heard)
                place += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard, time.monotonic() - begin


def ask(
    connection: http.client.HTTPConnection,
    model: str,
    sentence: str,
    wanted: Mapping[str, frozenset[str]],
    heard: Heard,
) -> None:
    """One sentence, and whether its answer is right."""
    begin = time.monotonic()
    try:
        connection.request("POST", "/translate", json.dumps({"model": model, "text": sentence}), JSON)
        answer = connection.getresponse()
        said: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as problem:
        heard.errors.append(f"{type(problem).__name__}: {problem}")
        connection.close()
        return
    heard.times.append(time.monotonic() - begin)
    if answer.status != 200:
        heard.errors.append(f"{answer.status}: {said}")
    elif said["translation"] not in wanted[sentence]:
        heard.wrong.append((sentence, said["translation"]))


def memory(address: str) -> float:
    """Bytes that the service holds, by its own metrics."""
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_resident_memory_bytes "))


def figures(measured: Measured) -> Iterator[Measurement]:
    """What was heard, against what should be."""
    of = f"{measured.clients} clients"
    alone, together = measured.alone, measured.together
    faults = alone.errors + together.errors
    wrong = alone.wrong + together.wrong
    yield Measurement(f"{of}: errors", len(faults), "", 0, {"first": faults[:5]})
    yield Measurement(f"{of}: wrong answers", len(wrong), "", 0, {"first": wrong[:5]})
    one, many = (len(h.times) / s for h, s in _both(measured))
    yield Measurement("one client: answers a second", one, "/s", None, {"answers": len(alone.times)})
    yield Measurement(f"{of}: answers a second", many, "/s", None, {"answers": len(together.times)})
    yield Measurement(f"{of} / one client", many / one, "×", 3.0, bound="at least")
    yield Measurement(f"{of}: half are answered within", quantile(together.times, 50), "ms")
    yield Measurement(f"{of}: 99 of 100 are answered within", quantile(together.times, 99), "ms")
    begin, end = measured.memory
    growth = 100 * (end / begin - 1)
    yield Measurement("memory of the service: growth", growth, "%", 5.0, {"MB": [begin / 1e6, end / 1e6]})


def _both(measured: Measured) -> Sequence[tuple[Heard, float]]:
    return (measured.alone, measured.alone_seconds), (measured.together, measured.together_seconds)


def quantile(times: Sequence[float], percent: int) -> float:
    """Milliseconds that so many of a hundred took at most."""
    return 1000 * statistics.quantiles(times, n=100, method="inclusive")[percent - 1]
