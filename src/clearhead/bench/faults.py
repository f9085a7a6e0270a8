"""`clearhead bench serve --faults`: clients that misbehave, among clients that check every answer.

Each client asks questions whose answers are known from the model without a service, whole or as a stream. In between it
leaves in the middle of a request or of an answer, reads slowly or not at all, sends what is no request, and asks again
at once. In the first third of the time the service is restarted (SIGTERM, which must lose no answer that has begun) and
killed (SIGKILL) in turn; the rest of the time shows whether its memory stays flat. At the end, the largest requests
that the service takes or refuses are sent one by one, and /health is asked meanwhile.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

from clearhead.bench.measure import Measurement, at_once
from clearhead.bench.serve import JSON, first_and_last, real_sentences, sampled_memory
from clearhead.errors import ConfigError

TRANSLATOR, WRITER = "en-es", "shakespeare"
MINUTES, CLIENTS, QUESTIONS = 60.0, 64, 40
WAIT = 120.0  # seconds for an answer
FAULT_SHARE = 0.25  # of what a client does
LENGTHS = (2, 7, 20, 40, 150, 300), (4, 4, 3, 2, 1, 1)  # tokens of a completion, past the model's window too; how often
UNANSWERED = (OSError, http.client.HTTPException)  # no answer, or not a whole one


@dataclass(frozen=True)
class Question:
    """A request, and the answers that are right."""

    route: str
    body: dict[str, Any]
    answers: frozenset[str]


@dataclass
class Findings:
    """What the clients saw."""

    requests: int = 0  # of all kinds
    right: int = 0
    refused: int = 0  # 429: the service is busy, and says so
    faults: Counter[str] = field(default_factory=Counter)  # of each kind
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # answers that did not come, while the service was up
    failures: list[str] = field(default_factory=list)  # 5xx
    accepted: list[str] = field(default_factory=list)  # malformed requests without a 4xx
    excused: int = 0  # answers that did not come because the service was stopped


def run(minutes: float = MINUTES, clients: int = CLIENTS) -> Iterator[Measurement]:
    """Yield every figure when the time is over."""
    questions = known_questions(QUESTIONS)
    with closing(Supervised((TRANSLATOR, WRITER))) as service:
        seconds = 60 * minutes
        restarts = threading.Thread(target=service.restart_until, args=(time.monotonic() + seconds / 3,))
        restarts.start()
        first = attack(service.address, questions, clients, seconds / 3, was_down=service.was_down)
        restarts.join()
        warm = attack(service.address, questions, clients, seconds / 12, seed=1)  # again, after the last restart
        with sampled_memory(service.address) as memory:
            rest = attack(service.address, questions, clients, seconds * 7 / 12, seed=2)
        busy = slots_in_use(service.address)
        yield from figures([first, warm, rest], first_and_last(memory), busy, service.restarts)
        yield slowest_health(service.address, largest_requests(TRANSLATOR, WRITER))


def figures(
    found: Sequence[Findings], memory: tuple[float, float], busy: float, restarts: Counter[str]
) -> Iterator[Measurement]:
    """Yield the figures with their bounds."""
    faults = sum((each.faults for each in found), Counter[str]())
    yield Measurement("requests", sum(each.requests for each in found), "")
    yield Measurement("answers checked", sum(each.right for each in found), "")
    yield Measurement("faults", faults.total(), "", None, dict(faults))
    yield Measurement("restarts and kills", restarts.total(), "", None, dict(restarts))
    for what, name in (
        ("wrong or swapped answers", "wrong"),
        ("lost answers", "lost"),
        ("5xx that were not asked for", "failures"),
        ("malformed requests that were not refused", "accepted"),
    ):
        cases = [case for each in found for case in getattr(each, name)]
        kinds = Counter(case.partition(":")[0] for case in cases)
        yield Measurement(what, len(cases), "", 0, {"first": cases[:5], "most frequent": dict(kinds.most_common(5))})
    start, end = memory
    growth = 100 * (end / start - 1)
    yield Measurement("memory of the service: growth", growth, "%", 5.0, {"MB": [start / 1e6, end / 1e6]})
    yield Measurement("slots in use at the end", busy, "", 0)


def known_questions(count: int) -> list[Question]:
    """Translations and completions, with the answers that the models give without a service."""
    from clearhead import load

    translator, writer, sentences = load(TRANSLATOR), load(WRITER), real_sentences(count)
    together = translator.translate(sentences)
    # Two hypotheses may have the same probability up to the last digit, which a batch decides differently.
    questions = [
        Question("/translate", {"model": TRANSLATOR, "text": text}, frozenset({translator.translate(text), other}))
        for text, other in zip(sentences, together, strict=True)
    ]
    draw = random.Random(0)
    for seed, text in enumerate(sentences):
        (length,), temperature = draw.choices(*LENGTHS), draw.choice((0.0, 0.8, 1.2))
        body: dict[str, Any] = {"max_tokens": length, "temperature": temperature, "seed": seed}
        found = writer.generate(text, **body)[len(text) :]
        questions.append(Question("/v1/completions", {"model": WRITER, "prompt": text, **body}, frozenset({found})))
    return questions


# --- the service, which is restarted and killed ---


class Supervised:
    """A service on one port, started again whenever it was stopped."""

    def __init__(self, models: Sequence[str]):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = [sys.executable, "-m", "clearhead", "serve", *models, "--port", str(self.port), "--json"]
        self.address = f"http://127.0.0.1:{self.port}"
        self.restarts: Counter[str] = Counter()
        self._stopping, self._signal = False, signal.SIGKILL
        self._process = self._start()
        self._started = 0.0  # when it was last started again

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, text=True)
        while not is_ready(self.address):
            if process.poll() is not None:
                raise ConfigError("the service did not start; its message is above")
            time.sleep(0.1)
        return process

    def restart_until(self, end: float) -> None:
        """Restart and kill in turn; as often as the time allows, but at most once in ten seconds."""
        pause = max(10.0, (end - time.monotonic()) / 8)
        for number in cycle((signal.SIGTERM, signal.SIGKILL)):
            if time.monotonic() + pause > end:
                return
            time.sleep(pause)
            self._stopping, self._signal = True, number
            self._process.send_signal(number)
            self._process.wait()
            self._process = self._start()
            self._started, self._stopping = time.monotonic(), False
            self.restarts[number.name] += 1

    def was_down(self, start: float, begun: bool) -> bool:
        """Whether the service was stopped since then; an answer that has begun is only excused by a kill."""
        stopped = self._stopping or self._started >= start
        return stopped and not (begun and self._signal == signal.SIGTERM)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def is_ready(address: str) -> bool:
    """Whether the service answers."""
    try:
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=WAIT)) as connection:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
    except UNANSWERED:
        return False


def slots_in_use(address: str, seconds: float = 30.0) -> float:
    """Texts that wait or are computed when everybody has left; they may take a moment to notice."""
    names, end = ("clearhead_queue_rows{", "clearhead_running_rows{"), time.monotonic() + seconds
    while True:
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=WAIT)) as connection:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        busy = sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names))
        if not busy or time.monotonic() > end:
            return busy
        time.sleep(0.2)


# --- the largest requests ---

LARGEST = 7_900_000  # bytes of a body: a little less than the limit
HEALTH = 100.0  # ms


def largest_requests(translator: str, writer: str) -> dict[str, tuple[str, bytes]]:
    """Requests that are as large as they may be, of every kind that is a different work: route and body, by name."""

    def of(route: str, model: str, **fields: Any) -> tuple[str, bytes]:
        return route, json.dumps({"model": model, **fields}).encode()

    keys = ", ".join(f'"k{number}": 0' for number in range(LARGEST // 14))
    return {
        "millions of wrong ids": of("/v1/completions", writer, prompt=[-1] * (LARGEST // 4)),
        "as many ids as a request may have": of("/v1/completions", writer, prompt=[[7] * 2000] * 128),
        "millions of unknown fields": ("/translate", f'{{"model": "{translator}", {keys}}}'.encode()),
        "one long text": of("/translate", translator, text="word " * (LARGEST // 5)),
        "escapes": of("/translate", translator, text="\u1234" * (LARGEST // 6)),
        "as many texts as a request may have": of("/translate", translator, text=["we are eating bread " * 40] * 128),
        "brackets": ("/v1/completions", b"[" * LARGEST),
        "a text to look at": of("/look", translator, text="we are eating bread " * 12, full=True),
        "inner tensors": of("/v1/completions", writer, prompt="a" * 190, max_tokens=9, look={"probes": ["*.weights"]}),
    }


def slowest_health(address: str, requests: Mapping[str, tuple[str, bytes]]) -> Measurement:
    """How long /health takes at most, while each of some requests is answered or refused."""
    slowest = {name: _health_during(address, *request) for name, request in requests.items()}
    what = "/health is answered within, while the largest requests are answered or refused"
    return Measurement(what, max(slowest.values()), "ms", HEALTH, {"ms": slowest})


def _health_during(address: str, route: str, body: bytes) -> float:
    netloc, slowest = urlsplit(address).netloc, 0.0

    def send() -> None:
        with closing(http.client.HTTPConnection(netloc, timeout=WAIT)) as connection, suppress(*UNANSWERED):
            connection.request("POST", route, body, JSON)
            connection.getresponse().read()

    sending = threading.Thread(target=send)
    with closing(http.client.HTTPConnection(netloc, timeout=WAIT)) as connection:
        sending.start()
        while sending.is_alive():
            start = time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            slowest = max(slowest, 1000 * (time.monotonic() - start))
            time.sleep(0.002)
    sending.join()
    return slowest


# --- the clients ---


def attack(
    address: str,
    questions: Sequence[Question],
    clients: int,
    seconds: float,
    was_down: Callable[[float, bool], bool] = lambda _start, _begun: False,
    seed: int = 0,
) -> Findings:
    """Run clients for some time."""
    found, end = Findings(), time.monotonic() + seconds

    def client(number: int) -> None:
        one = Client(urlsplit(address).netloc, questions, found, was_down, random.Random(f"{seed}, {number}"))
        while time.monotonic() < end:
            one.act()

    at_once(clients, client)
    return found


@dataclass
class Client:
    """Asks, and misbehaves."""

    netloc: str
    questions: Sequence[Question]
    found: Findings
    was_down: Callable[[float, bool], bool]
    draw: random.Random
    start: float = 0.0  # of the last question or fault
    begun: bool = False  # whether the answer to the last question has begun

    def act(self) -> None:
        """One question, or one fault."""
        question, self.start, self.begun = self.draw.choice(self.questions), time.monotonic(), False
        self.found.requests += 1
        try:
            if self.draw.random() > FAULT_SHARE:
                self.ask(question)
                return
            fault = self.draw.choice(
                (self.leave, self.read_slowly, self.send_slowly, self.send_garbage, self.ask_twice)
            )
            self.found.faults[fault.__name__] += 1
            fault(question)
        except UNANSWERED as problem:
            if self.was_down(self.start, self.begun):
                self.found.excused += 1
                time.sleep(0.1)
            else:
                self.found.lost.append(f"{type(problem).__name__}: {problem}")

    def ask(self, question: Question) -> None:
        """Compare the answer with the one that is known."""
        stream = question.route.startswith("/v1/") and self.draw.random() < 0.5
        with self._sent(question, stream) as connection:
            response = connection.getresponse()
            self.begun = True
            content = response.read().decode()
        if response.status == 429:
            self.found.refused += 1
            time.sleep(0.05)
        elif self._is_stopping(response.status):
            self.found.excused += 1
        elif response.status != 200:
            self.found.failures.append(f"{response.status}: {content[:200]}")
        elif (text := answer_of(question.route, content, stream)) is None:
            self.found.failures.append(f"a stream without an end: …{content[-200:]}")
        elif text in question.answers:
            self.found.right += 1
        else:
            self.found.wrong.append(f"{question.body}: {text!r} instead of {sorted(question.answers)}")

    def _is_stopping(self, status: int) -> bool:
        """Whether a service that is being stopped refused a question."""
        return status == 503 and self.was_down(self.start, False)

    def _sent(self, question: Question, stream: bool = False) -> closing[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.netloc, timeout=WAIT)
        body = {**question.body, "stream": True} if stream else question.body
        connection.request("POST", question.route, json.dumps(body), JSON)
        return closing(connection)

    def leave(self, question: Question) -> None:
        """Hang up while the answer is computed or sent; half of the time without a goodbye (RST)."""
        with self._sent(question, stream=question.route.startswith("/v1/")) as connection:
            time.sleep(self.draw.random() * 0.2)
            if self.draw.random() < 0.5:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def ask_twice(self, question: Question) -> None:
        """Reload: hang up, and ask the same again at once."""
        with self._sent(question):
            pass
        self.ask(question)

    def read_slowly(self, question: Question) -> None:
        """Take a few bytes at a time, then nothing, then leave."""
        with self._sent(question, stream=question.route.startswith("/v1/")) as connection:
            for _ in range(self.draw.randrange(5)):
                connection.sock.recv(16)
                time.sleep(self.draw.random() * 0.1)

    def send_slowly(self, question: Question) -> None:
        """A request that never arrives as a whole."""
        content = json.dumps(question.body).encode()
        head = f"POST {question.route} HTTP/1.1\r\nHost: {self.netloc}\r\nContent-Length: {len(content)}\r\n\r\n"
        whole = head.encode() + content
        host, port = self.netloc.split(":")
        with closing(socket.create_connection((host, int(port)), timeout=WAIT)) as connection:
            for at in range(0, self.draw.randrange(len(whole)), 40):
                connection.sendall(whole[at : at + 40])
                time.sleep(0.01)

    def send_garbage(self, question: Question) -> None:
        """A body with some bytes changed so that it is no JSON any more, or with a wrong field: it must be refused."""
        content = bytearray(json.dumps(question.body).encode())
        if self.draw.random() < 0.5:
            content[self.draw.randrange(len(content))] = self.draw.randrange(128, 256)
            content = content[: self.draw.randrange(len(content))]
        else:
            content = bytearray(json.dumps({**question.body, "model": self.draw.choice((7, None, "nobody"))}).encode())
        with closing(http.client.HTTPConnection(self.netloc, timeout=WAIT)) as connection:
            connection.request("POST", question.route, bytes(content), JSON)
            response = connection.getresponse()
            response.read()
        if self._is_stopping(response.status):
            self.found.excused += 1
        elif response.status >= 500:
            self.found.failures.append(f"{response.status} to {bytes(content[:200])!r}")
        elif response.status < 400:
            self.found.accepted.append(f"{response.status} to {bytes(content[:200])!r}")


def answer_of(route: str, content: str, stream: bool) -> str | None:
    """The text of an answer; None for a stream that has no end."""
    if not stream:
        found: dict[str, Any] = json.loads(content)
        return str(found["translation"] if route == "/translate" else found["choices"][0]["text"])
    *events, done, end = content.split("\n\n") if content.count("\n\n") > 1 else ["", "", ""]
    if (done, end) != ("data: [DONE]", ""):
        return None
    return "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events)
