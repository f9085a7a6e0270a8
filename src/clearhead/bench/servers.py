"""`clearhead bench serve --peers`: one language model, served by us, by llama.cpp and by `transformers serve`.

The weights are those of the GGUF file of `bench lm`: llama.cpp and we serve the file itself, transformers the same
weights in float32, exported to a folder. Each server runs in its own process with as many threads as there are cores,
and generates up to 8 texts at once. One client, then 8, stream texts of 64 tokens by the same requests; the servers
take turns. Tokens are counted by the servers, whose texts may end early.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from clearhead.bench.lm import TEXT, model_file
from clearhead.bench.measure import IDLE, Measurement, at_once
from clearhead.engines.native.library import cores
from clearhead.errors import ConfigError
from clearhead.interop.exporting import export
from clearhead.run import find

OURS, LLAMA, TRANSFORMERS = "clearhead", "llama.cpp", "transformers"
GOALS = {LLAMA: {8: 1.3}, TRANSFORMERS: {1: 1.0, 8: 1.0}}  # how many times their tokens a second, by clients
SLOTS, CLIENTS, TOKENS = 8, (1, 8), 64
TEXTS, ROUNDS = 2, 5  # texts of each client in a turn, turns of each server

# Each prints its address as JSON when it is ready.
LLAMA_CODE = """
import json, sys, threading, xllamacpp
model, slots, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_parallel, parameters.n_ctx = model, slots, 1024 * slots
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
parameters.verbosity = -1
server = xllamacpp.Server(parameters)
print(json.dumps({"address": server.listening_address}), flush=True)
threading.Event().wait()
"""
TRANSFORMERS_CODE = """
import json, socket, sys, time, torch
from transformers.cli.serve import Serve
model, threads = sys.argv[1], int(sys.argv[3])
torch.set_num_threads(threads)
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
served = Serve(model, host="127.0.0.1", port=port, device="cpu", dtype="float32", non_blocking=True, log_level="error")
while not served.server.started:
    time.sleep(0.1)
print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
"""


@dataclass
class Turn:
    """What some clients have streamed from one server."""

    tokens: int = 0
    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)  # seconds to the first token of each text

    @property
    def rate(self) -> float:
        """Tokens a second of all clients together."""
        return self.tokens / self.seconds


def run() -> Iterator[Measurement]:
    """Yield the figures of every number of clients when it is measured."""
    path = model_file()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        export("hf", find(path), Path(folder) / "hf")
        models = {OURS: path.stem, LLAMA: str(path), TRANSFORMERS: f"{folder}/hf"}
        commands = {
            OURS: ["-m", "clearhead", "serve", f"{path.stem}={path}", "--batch", str(SLOTS), "--port", "0", "--json"],
            LLAMA: ["-c", LLAMA_CODE, models[LLAMA], str(SLOTS), str(cores())],
            TRANSFORMERS: ["-c", TRANSFORMERS_CODE, models[TRANSFORMERS], str(SLOTS), str(cores())],
        }
        addresses = {name: stack.enter_context(started(command)) for name, command in commands.items()}
        servers = {name: (addresses[name], models[name]) for name in commands}
        turns_of(servers, 1, rounds=1)  # warm
        for clients in CLIENTS:
            yield from figures(turns_of(servers, clients, ROUNDS), clients)


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """Run a server in Python and yield its address, which it prints as JSON; its other output is dropped."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        while not output.endswith("}\n"):
            line = process.stdout.readline()
            if not line:
                raise ConfigError("the service did not start; its message is above")
            output = output + line if output or line.startswith("{") else ""
        drain = threading.Thread(target=process.stdout.read, daemon=True)  # or a server that logs would wait
        drain.start()
        try:
            yield json.loads(output)["address"]
        finally:
            process.terminate()
            drain.join()


def turns_of(servers: Mapping[str, tuple[str, str]], clients: int, rounds: int) -> dict[str, list[Turn]]:
    """The turns of every server, one after the other."""
    turns: dict[str, list[Turn]] = {name: [] for name in servers}
    for number in range(rounds):
        for name, server in servers.items():
            time.sleep(IDLE)
            turns[name].append(stream_texts(*server, clients, first=number * clients * TEXTS))
    return turns


def stream_texts(address: str, model: str, clients: int, first: int = 0) -> Turn:
    """Stream some texts to each of some clients, all different; `first` is the number of the first."""
    turn, start = Turn(), time.monotonic()

    def client(number: int) -> None:
        for text in range(TEXTS):
            tokens, seconds = stream_text(address, model, first + number * TEXTS + text)
            turn.tokens += tokens
            turn.firsts.append(seconds)

    at_once(clients, client)
    turn.seconds = time.monotonic() - start
    return turn


def stream_text(address: str, model: str, number: int) -> tuple[int, float]:
    """The tokens of one text, and the seconds to the first of them."""
    body = {
        "model": model,
        "prompt": f"Chapter {number}. {TEXT}",
        "max_tokens": TOKENS,
        "temperature": 0.8,
        "seed": number,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start, seconds, tokens = time.monotonic(), 0.0, 0
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=600)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if not seconds and any(choice["text"] for choice in event.get("choices", ())):
                seconds = time.monotonic() - start
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    if not tokens:
        raise ConfigError(f"{model}: a stream did not end; the server's message is above")
    return tokens, seconds


def figures(turns: Mapping[str, Sequence[Turn]], clients: int) -> Iterator[Measurement]:
    """The tokens a second and the time to the first token of every server, and how ours compares."""
    of = f"GGUF, {clients} streams of {TOKENS} tokens"
    for name, each in turns.items():
        rates = [turn.rate for turn in each]
        yield Measurement(f"{of}: {name}", statistics.median(rates), "tokens/s", None, {"rates": rates})
        firsts = [seconds for turn in each for seconds in turn.firsts]
        yield Measurement(f"{of}: {name}, half begin within", 1000 * statistics.median(firsts), "ms")
    for name, goals in GOALS.items():
        # A machine that is slow for a minute is slow for both.
        times = statistics.median(
            ours.rate / theirs.rate for ours, theirs in zip(turns[OURS], turns[name], strict=True)
        )
        yield Measurement(f"{of}: times {name}", times, "×", goals.get(clients), bound="at least")
