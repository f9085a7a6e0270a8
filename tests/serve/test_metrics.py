"""The metrics of a service: names, labels and values as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from clearhead.serve.metrics import Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> tuple[dict[str, str], Samples]:
    """The type of each family, and the value of each sample by its name and labels."""
    families = list(text_string_to_metric_families(text))
    samples = {
        (each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples
    }
    return {family.name: family.type for family in families}, samples


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def test_a_counter_has_a_line_for_each_set_of_labels() -> None:
    metrics = Metrics()
    metrics.requests.labels(route='say "hi"\n\\', status="1").inc(2)
    metrics.requests.labels(status="1", route="y").inc(123456789)
    metrics.requests.labels(route="y", status="1").inc(3)
    text = metrics.text([]).decode()
    assert "# HELP clearhead_requests_total Requests answered.\n# TYPE clearhead_requests_total counter\n" in text
    assert r'clearhead_requests_total{route="say \"hi\"\n\\",status="1"} 2.0' + "\n" in text
    _, samples = parse(text)
    assert sample(samples, "clearhead_requests_total", route="y", status="1") == 123456792


def test_a_histogram_counts_up_to_each_bound() -> None:
    metrics = Metrics()
    for value in (1, 2, 7, 100):
        metrics.batches.labels(model="x").observe(value)
    _, samples = parse(metrics.text([]).decode())
    bounds = {"1.0": 1, "2.0": 2, "4.0": 2, "8.0": 3, "16.0": 3, "32.0": 3, "64.0": 3, "+Inf": 4}
    for bound, count in bounds.items():
        assert sample(samples, "clearhead_batch_rows_bucket", model="x", le=bound) == count
    assert sample(samples, "clearhead_batch_rows_sum", model="x") == 110
    assert sample(samples, "clearhead_batch_rows_count", model="x") == 4


def test_two_services_do_not_share_their_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.tokens.labels(model="x").inc(7)
    assert sample(parse(one.text([]).decode())[1], "clearhead_tokens_total", model="x") == 7
    assert sample(parse(other.text([]).decode())[1], "clearhead_tokens_total", model="x") == 0


def test_the_names_and_labels_that_dashboards_use() -> None:
    metrics = Metrics()
    metrics.requests.labels(route="/x", status="200").inc()
    metrics.seconds.labels(route="/x").observe(0.2)
    metrics.batches.labels(model="m").observe(3)
    metrics.tokens.labels(model="m").inc()
    kinds, samples = parse(metrics.text([("m", 5)]).decode())
    wanted = {
        "clearhead_requests": "counter",
        "clearhead_request_seconds": "histogram",
        "clearhead_batch_rows": "histogram",
        "clearhead_tokens": "counter",
        "clearhead_queue_rows": "gauge",
        "process_resident_memory_bytes": "gauge",
    }
    assert wanted.items() <= kinds.items()
    assert sample(samples, "clearhead_queue_rows", model="m") == 5
    assert sample(samples, "clearhead_request_seconds_bucket", route="/x", le="0.3") == 1
    assert sample(samples, "clearhead_request_seconds_bucket", route="/x", le="0.1") == 0


def test_the_service_counts_what_it_answers(client: TestClient) -> None:
    def numbers() -> list[float]:
        _, samples = parse(client.get("/metrics").text)
        return [
            sample(samples, "clearhead_requests_total", route="/v1/completions", status="200"),
            sample(samples, "clearhead_requests_total", route="/v1/completions", status="400"),
            sample(samples, "clearhead_tokens_total", model="recurrent"),
            sample(samples, "clearhead_requests_total", route="other", status="404"),
        ]

    before = numbers()
    body = {"model": "recurrent", "prompt": "a", "max_tokens": 7, "n": 2}
    written = client.post("/v1/completions", json=body).json()["usage"]["completion_tokens"]
    client.post("/v1/completions", json={"model": "recurrent", "prompt": "a", "n": 0})
    client.get("/nowhere")
    assert numbers() == [before[0] + 1, before[1] + 1, before[2] + written, before[3] + 1]
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    _, samples = parse(answer.text)
    assert sample(samples, "process_resident_memory_bytes") > 1e7
    assert sample(samples, "clearhead_queue_rows", model="recurrent") == 0
