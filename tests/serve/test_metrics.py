from __future__ import annotations

import re

from starlette.testclient import TestClient

from clearhead.serve.metrics import Counter, Histogram, labels


def test_a_counter_has_a_line_for_each_set_of_labels() -> None:
    counter = Counter("things_total", "Things.")
    counter.add(2, labels(b="1", a='say "hi"\n\\'))
    counter.add(123456789, labels(a="y", b="1"))
    counter.add(3, labels(b="1", a="y"))
    assert list(counter.family().lines()) == [
        "# HELP things_total Things.",
        "# TYPE things_total counter",
        r'things_total{a="say \"hi\"\n\\",b="1"} 2',
        'things_total{a="y",b="1"} 123456792',
    ]


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram("sizes", "Sizes.", (1, 2.5))
    for value in (1, 2, 7):
        histogram.observe(value, labels(of="x"))
    assert list(histogram.family().lines())[2:] == [
        'sizes_bucket{of="x",le="1"} 1',
        'sizes_bucket{of="x",le="2.5"} 2',
        'sizes_bucket{of="x",le="+Inf"} 3',
        'sizes_sum{of="x"} 10',
        'sizes_count{of="x"} 3',
    ]


def test_the_service_counts_what_it_answers(client: TestClient) -> None:
    def number(pattern: str) -> float:
        found = re.search(pattern + r" (\S+)", client.get("/metrics").text)
        return float(found[1]) if found else 0.0

    good = r'clearhead_requests_total\{route="/v1/completions",status="200"\}'
    bad = r'clearhead_requests_total\{route="/v1/completions",status="400"\}'
    tokens = r'clearhead_tokens_total\{model="recurrent"\}'
    lost = r'clearhead_requests_total\{route="other",status="404"\}'
    before = [number(each) for each in (good, bad, tokens, lost)]
    asked = {"model": "recurrent", "prompt": "a", "max_tokens": 7, "n": 2}
    written = client.post("/v1/completions", json=asked).json()["usage"]["completion_tokens"]
    client.post("/v1/completions", json={"model": "recurrent", "prompt": "a", "n": 0})
    client.get("/nowhere")
    assert [number(each) for each in (good, bad, tokens, lost)] == [
        before[0] + 1,
        before[1] + 1,
        before[2] + written,
        before[3] + 1,
    ]
    assert number(r"\nprocess_resident_memory_bytes") > 1e7
    assert number(r'clearhead_queue_rows\{model="recurrent"\}') == 0
