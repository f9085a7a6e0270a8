"""What the service has done so far, in the text format that Prometheus reads.

clearhead_requests_total{route="/translate",status="200"} 17
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]  # what is added to the name, the labels, the value

MEMORY = Path("/proc/self/statm")


def labels(**values: str) -> Labels:
    """Names and values, always in the same order."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class Family:
    """All numbers of one name."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: Sequence[Sample]

    def lines(self) -> Iterator[str]:
        """As Prometheus reads them."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, named, value in self.samples:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in named)
            yield f"{self.name}{suffix}{{{inside}}} {value:.15g}" if inside else f"{self.name}{suffix} {value:.15g}"


class Counter:
    """A number for each set of labels, that only grows; safe to use from any thread."""

    kind = "counter"

    def __init__(self, name: str, help: str):
        self.name, self.help = name, help
        self._values: dict[Labels, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, amount: float, named: Labels) -> None:
        """Count more of it."""
        with self._lock:
            self._values[named] += amount

    def family(self) -> Family:
        """Its numbers now."""
        with self._lock:
            return Family(self.name, self.kind, self.help, [("", *each) for each in self._values.items()])


class Histogram:
    """How many observations were at most each bound, and their sum."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float]):
        self.name, self.help, self.bounds = name, help, (*bounds, float("inf"))
        self._counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * len(self.bounds))
        self._sums: dict[Labels, float] = defaultdict(float)
        self._lock = threading.Lock()

    def observe(self, value: float, named: Labels) -> None:
        """One more observation; every bound that it does not exceed counts it."""
        with self._lock:
            self._sums[named] += value
            self._counts[named] = [
                count + (value <= bound) for count, bound in zip(self._counts[named], self.bounds, strict=True)
            ]

    def family(self) -> Family:
        """Its numbers now."""
        with self._lock:
            return Family(self.name, self.kind, self.help, list(self._samples()))

    def _samples(self) -> Iterator[Sample]:
        for named, counts in self._counts.items():
            for bound, count in zip(self.bounds, counts, strict=True):
                yield "_bucket", (*named, ("le", "+Inf" if bound == float("inf") else f"{bound:g}")), count
            yield "_sum", named, self._sums[named]
            yield "_count", named, counts[-1]


class Metrics:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.requests = Counter("clearhead_requests_total", "Requests answered.")
        self.seconds = Histogram(
            "clearhead_request_seconds",
            "Time from a request to its answer.",
            (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )
        self.batches = Histogram(
            "clearhead_batch_rows", "Texts or images that were computed together.", (1, 2, 4, 8, 16, 32, 64)
        )
        self.tokens = Counter("clearhead_tokens_total", "Tokens written by language models.")

    def text(self, waiting: Iterable[tuple[str, int]]) -> str:
        """The whole document; `waiting` is the length of each model's queue."""
        queues = [("", labels(model=model), float(count)) for model, count in waiting]
        families = [
            *(each.family() for each in (self.requests, self.seconds, self.batches, self.tokens)),
            Family("clearhead_queue_rows", "gauge", "Texts or images that wait for a model.", queues),
            Family("process_resident_memory_bytes", "gauge", "Memory in use.", [("", (), memory())]),
        ]
        return "".join(f"{line}\n" for family in families for line in family.lines())


def memory() -> float:
    """Bytes of this process that are in memory now; where the system does not say, the most there ever were."""
    if MEMORY.exists():
        return float(MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    import resource

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
