"""`clearhead bench serve`: a load test with 64 clients, every response checked.

The service runs in a separate process, as a user starts it. First one client sends requests in sequence, then 64 in
parallel, all with real sentences for `en-es`; every response is compared with the translation that the model gives
without a service. `CLEARHEAD_BENCH_SECONDS` shortens the five minutes.

Then 1, 8 and 32 clients stream texts of `shakespeare`, which the service generates in one batch: the tokens of all
clients in a second, and the time to the first token; the longer texts once more with keys and values in float16.
`--peers` serves a GGUF file with other servers too (servers.py); `--faults` is another run (faults.py).
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from clearhead.bench import servers
from clearhead.bench.measure import Measurement, at_once
from clearhead.errors import ConfigError

MODEL, CLIENTS, SECONDS, SENTENCES = "en-es", 64, 300.0, 500
ONE_CLIENT = 0.1  # share of the time with one client
WRITER, STREAMED = "shakespeare", (64, 200)  # tokens of a text
STREAMS = {1: 1.0, 8: 3.0, 32: 5.0}  # clients -> how many times the tokens a second of one client they must get
ONE_STREAM = 0.05  # share of the time for each number of clients
FIRST_TOKEN = 500.0  # ms, for 99 of 100 texts and 8 clients
JSON = {"Content-Type": "application/json"}


def run(peers: bool) -> Iterator[Measurement]:
    """Yield every figure when all is measured."""
    seconds = _seconds()
    expected = translations(MODEL, SENTENCES)
    with service(MODEL) as address:
        measured = measure(address, MODEL, expected, CLIENTS, seconds)
    yield from figures(measured)
    with service(WRITER) as address:
        for tokens in STREAMED:
            yield from stream_figures(all_streams(address, tokens, seconds), f"of {tokens} tokens")
    with service(WRITER, "--cache-type", "f16") as address:
        longest = max(STREAMED)
        yield from stream_figures(all_streams(address, longest, seconds), f"of {longest} tokens in float16")
    if peers:
        yield from servers.run()


def _seconds() -> float:
    value = os.environ.get("CLEARHEAD_BENCH_SECONDS", str(SECONDS))
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"CLEARHEAD_BENCH_SECONDS={value} is not a number of seconds") from None


def translations(name: str, count: int) -> dict[str, frozenset[str]]:
    """Return real sentences, each with its translations without a service: alone and in a batch.

    The two differ where two hypotheses have the same probability up to the last digit of a float.
    """
    from clearhead import load

    model, sentences = load(name), real_sentences(count)
    together = model.translate(sentences)
    alone = [model.translate(sentence) for sentence in sentences]
    return {s: frozenset(both) for s, *both in zip(sentences, together, alone, strict=True)}


def real_sentences(count: int) -> list[str]:
    """Return different sentences of Tatoeba; of the built-in pairs if Tatoeba is not available."""
    from clearhead.data import catalogue, read
    from clearhead.data.hub import locate, origin

    here = origin(catalogue.find("tatoeba-en-es")) is not None
    pairs = list(read(locate("tatoeba-en-es") if here else "builtin", kind="pairs", validation=0.0).train)
    step = max(1, len(pairs) // (2 * count))
    return list(islice(dict.fromkeys(pair.source for pair in pairs[::step]), count))


def service(*arguments: str) -> AbstractContextManager[str]:
    """Run a service of some models, with options, and yield its address."""
    return servers.started(["-m", "clearhead", "serve", *arguments, "--port", "0", "--json"])


@dataclass
class Responses:
    """The responses to one or more clients."""

    times: list[float] = field(default_factory=list)  # seconds of each response
    wrong: list[tuple[str, str]] = field(default_factory=list)  # sentences with their wrong translations
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LoadTest:
    """The responses to one client, then to many at once."""

    alone: Responses
    alone_seconds: float
    together: Responses
    together_seconds: float
    clients: int
    memory: tuple[float, float]  # bytes of the warm service at the start and at the end, medians of some samples


def measure(address: str, model: str, expected: Mapping[str, frozenset[str]], clients: int, seconds: float) -> LoadTest:
    """Send requests for `seconds` in total."""
    alone, alone_seconds = run_clients(address, model, expected, 1, ONE_CLIENT * seconds)
    warm, warm_seconds = run_clients(address, model, expected, clients, ONE_CLIENT * seconds)
    with sampled_memory(address) as samples:
        rest, rest_seconds = run_clients(address, model, expected, clients, (1 - 2 * ONE_CLIENT) * seconds)
    together = Responses(warm.times + rest.times, warm.wrong + rest.wrong, warm.errors + rest.errors)
    return LoadTest(alone, alone_seconds, together, warm_seconds + rest_seconds, clients, first_and_last(samples))


@contextmanager
def sampled_memory(address: str, every: float = 1.0) -> Iterator[list[float]]:
    """Sample the memory of the service in the background: it varies with the batches in progress."""
    samples, done = [memory(address)], threading.Event()

    def sample() -> None:
        while not done.wait(every):
            samples.append(memory(address))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        done.set()
        sampler.join()


def first_and_last(samples: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and of the last fifth."""
    count = max(1, len(samples) // 5)
    return statistics.median(samples[:count]), statistics.median(samples[-count:])


def run_clients(
    address: str, model: str, expected: Mapping[str, frozenset[str]], clients: int, seconds: float
) -> tuple[Responses, float]:
    """Run clients that send a request as soon as the last is answered, each from another sentence on."""
    responses, start, sentences = Responses(), time.monotonic(), list(expected)
    end = start + seconds

    def client(number: int) -> None:
        index = number * len(sentences) // clients
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
            while time.monotonic() < end:
                translate(connection, model, sentences[index % len(sentences)], expected, responses)
                index += 1

    at_once(clients, client)
    return responses, time.monotonic() - start


def translate(
    connection: http.client.HTTPConnection,
    model: str,
    sentence: str,
    expected: Mapping[str, frozenset[str]],
    responses: Responses,
) -> None:
    """Translate one sentence and check the response."""
    start = time.monotonic()
    try:
        connection.request("POST", "/translate", json.dumps({"model": model, "text": sentence}), JSON)
        response = connection.getresponse()
        body: dict[str, Any] = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as problem:
        responses.errors.append(f"{type(problem).__name__}: {problem}")
        connection.close()
        return
    responses.times.append(time.monotonic() - start)
    if response.status != 200:
        responses.errors.append(f"{response.status}: {body}")
    elif body["translation"] not in expected[sentence]:
        responses.wrong.append((sentence, body["translation"]))


def memory(address: str) -> float:
    """Return the resident bytes of the service, from its metrics."""
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_resident_memory_bytes "))


def figures(measured: LoadTest) -> Iterator[Measurement]:
    """Yield the measured figures with their bounds."""
    of = f"{measured.clients} clients"
    alone, together = measured.alone, measured.together
    faults = alone.errors + together.errors
    wrong = alone.wrong + together.wrong
    yield Measurement(f"{of}: errors", len(faults), "", 0, {"first": faults[:5]})
    yield Measurement(f"{of}: wrong answers", len(wrong), "", 0, {"first": wrong[:5]})
    one = len(alone.times) / measured.alone_seconds
    many = len(together.times) / measured.together_seconds
    yield Measurement("one client: answers a second", one, "/s", None, {"answers": len(alone.times)})
    yield Measurement(f"{of}: answers a second", many, "/s", None, {"answers": len(together.times)})
    yield Measurement(f"{of} / one client", many / one, "×", 3.0, bound="at least")
    yield Measurement(f"{of}: half are answered within", quantile(together.times, 50), "ms")
    yield Measurement(f"{of}: 99 of 100 are answered within", quantile(together.times, 99), "ms")
    start, end = measured.memory
    growth = 100 * (end / start - 1)
    yield Measurement("memory of the service: growth", growth, "%", 5.0, {"MB": [start / 1e6, end / 1e6]})


# --- streams ---


@dataclass
class Streams:
    """The texts that some clients have streamed."""

    tokens: int = 0
    firsts: list[float] = field(default_factory=list)  # seconds to the first token of each
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second of all clients together."""
        return self.tokens / self.seconds


def all_streams(address: str, tokens: int, seconds: float) -> dict[int, Streams]:
    """The streams of each number of clients, after some to warm up."""
    stream_texts(address, WRITER, 1, tokens, seconds * ONE_STREAM)
    return {count: stream_texts(address, WRITER, count, tokens, seconds * ONE_STREAM) for count in STREAMS}


def stream_texts(address: str, model: str, clients: int, tokens: int, seconds: float) -> Streams:
    """Run clients that stream a text as soon as the last has ended; each at least one."""
    found, start = Streams(), time.monotonic()

    def client(number: int) -> None:
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
            seed = number
            while seed == number or time.monotonic() < start + seconds:
                found.firsts.append(_stream(connection, model, tokens, seed))
                found.tokens += tokens
                seed += clients

    at_once(clients, client)
    found.seconds = time.monotonic() - start
    return found


def _stream(connection: http.client.HTTPConnection, model: str, tokens: int, seed: int) -> float:
    """Stream one text, and return the seconds to its first token."""
    body = {"model": model, "prompt": "ROMEO:\nI am ", "max_tokens": tokens, "temperature": 0.8, "seed": seed}
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), JSON)
    response = connection.getresponse()
    response.readline()
    first = time.monotonic() - start
    if not response.read().endswith(b"data: [DONE]\n\n"):
        raise ConfigError(f"a stream of {model} did not end; the service's message is above")
    return first


def stream_figures(streams: Mapping[int, Streams], what: str) -> Iterator[Measurement]:
    """Yield the figures of streams of one kind with their bounds."""
    one = streams[1].rate
    for clients, found in streams.items():
        of = f"{clients} {'stream' if clients == 1 else 'streams'} {what}"
        yield Measurement(f"{of}: tokens a second", found.rate, "/s", None, {"texts": len(found.firsts)})
        if clients > 1:
            yield Measurement(f"{of} / one stream", found.rate / one, "×", STREAMS.get(clients), bound="at least")
        limit = FIRST_TOKEN if clients == 8 else None
        yield Measurement(f"{of}: 99 of 100 begin within", quantile(found.firsts, 99), "ms", limit)


def quantile(times: Sequence[float], percent: int) -> float:
    """Return a percentile of some times, in milliseconds."""
    several = times if len(times) > 1 else [*times, *times]
    return 1000 * statistics.quantiles(several, n=100, method="inclusive")[percent - 1]
