"""Every route gives the same result as the model in Python."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.serve.inputs import read_pixels
from clearhead.serve.registry import Service

from .setting import WORDS, png, sentences

Of = Callable[[str], Predictor]


def post(client: TestClient, route: str, status: int = 200, **body: Any) -> Any:
    answer = client.post(route, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]["message"]


def test_a_text_gives_a_translation_and_a_list_gives_a_list(client: TestClient, model: Of) -> None:
    texts = sentences(7)
    wanted = model("translator").translate(texts)
    one = post(client, "/translate", model="translator", text=texts[0], n_best=3)
    assert one["translation"] == wanted[0] == one["candidates"][0]["text"]
    assert len(one["candidates"]) == 3
    scores = [each["score"] for each in one["candidates"]]
    assert scores == sorted(scores, reverse=True)
    several = post(client, "/translate", model="translator", text=texts)
    assert several["translation"] == wanted
    assert len(set(wanted)) > 3


def test_the_settings_of_the_search_are_used(client: TestClient, model: Of) -> None:
    text = sentences(1, seed=8)[0]
    found = post(client, "/translate", model="translator", text=text, beams=1)
    assert found["translation"] == model("translator").translate(text, beam_width=1)
    sentence = post(client, "/translate", 400, model="translator", text=text, beams=2, n_best=3)
    assert sentence == "n_best=3 needs at least as many beams, and beams=2"


def test_a_text_is_classified(client: TestClient, model: Of) -> None:
    wanted = model("critic").classify("a small red door")
    found = post(client, "/classify", model="critic", text="a small red door")
    assert found == {"model": "critic", "label": wanted.label, "probabilities": wanted.probabilities}
    assert post(client, "/classify", 400, model="critic") == "text: critic reads a text, and the request has none"


def test_several_texts_are_classified_at_once(client: TestClient, model: Of) -> None:
    texts = sentences(5)
    found = post(client, "/classify", model="critic", text=texts)
    wanted = model("critic").classify(texts)
    assert found["label"] == [each.label for each in wanted]
    assert found["probabilities"] == [each.probabilities for each in wanted]
    assert post(client, "/classify", 400, model="eyes", text=texts).startswith("image: ")


def test_the_words_of_a_text_are_tagged(client: TestClient, model: Of) -> None:
    texts = sentences(5)
    wanted = [[list(pair) for pair in each] for each in model("tagger").tag(texts)]
    assert post(client, "/tag", model="tagger", text=texts) == {"model": "tagger", "tags": wanted}
    assert post(client, "/tag", model="tagger", text=texts[0]) == {"model": "tagger", "tags": wanted[0]}
    assert "critic" in post(client, "/tag", 400, model="critic", text="a")


def test_an_image_is_classified_as_base64_as_data_url_and_as_upload(client: TestClient, model: Of) -> None:
    content = png()
    wanted = model("eyes").classify(read_pixels(content, model("eyes").meta.sizes, max_pixels=1000))
    encoded = base64.b64encode(content).decode()
    for image in (encoded, f"data:image/png;base64,{encoded}"):
        assert post(client, "/classify", model="eyes", image=image)["probabilities"] == wanted.probabilities
    form = client.post("/classify", data={"model": "eyes"}, files={"image": ("../../x.png", content, "image/png")})
    assert form.json() == {"model": "eyes", "label": wanted.label, "probabilities": wanted.probabilities}
    other = post(client, "/classify", model="eyes", image=base64.b64encode(png(seed=4)).decode())
    assert other["probabilities"] != wanted.probabilities
    assert (
        post(client, "/classify", 400, model="eyes", text="7") == "image: eyes reads an image, and the request has none"
    )


def test_an_image_is_captioned(client: TestClient, model: Of) -> None:
    content = png(10, 10, "L")
    wanted = model("painter").caption(read_pixels(content, model("painter").meta.sizes, max_pixels=1000))
    encoded = base64.b64encode(content).decode()
    assert post(client, "/caption", model="painter", image=encoded) == {"model": "painter", "caption": wanted}


@pytest.mark.parametrize(
    ("name", "task", "fields"),
    [
        ("translator", "translate", {"translation"}),
        ("writer", "lm", {"text"}),
        ("masked", "masked_lm", {"text"}),
        ("critic", "classify", {"label", "probabilities"}),
        ("vectors", "words", {"found"}),
    ],
)
def test_predict_answers_with_the_fields_of_the_task(
    client: TestClient, name: str, task: str, fields: set[str]
) -> None:
    found = post(client, "/predict", model=name, input="bread")
    assert (found["model"], found["task"], found.keys() - {"model", "task"}) == (name, task, fields)


def test_predict_gives_the_same_as_the_route_of_the_task(client: TestClient) -> None:
    text = sentences(1, seed=5)[0]
    translated = post(client, "/translate", model="translator", text=text)["translation"]
    assert post(client, "/predict", model="translator", input=text)["translation"] == translated
    classified = post(client, "/classify", model="critic", text=text)
    assert post(client, "/predict", model="critic", input=text) == {"task": "classify", **classified}
    near = post(client, "/words", model="vectors", question="neighbours", words=["bread"])
    assert post(client, "/predict", model="vectors", input="bread") == {"task": "words", **near}


def test_predict_reads_an_image_as_base64_and_as_upload(client: TestClient) -> None:
    content = png()
    wanted = post(client, "/classify", model="eyes", image=base64.b64encode(content).decode())
    found = post(client, "/predict", model="eyes", input=base64.b64encode(content).decode())
    form = client.post("/predict", data={"model": "eyes"}, files={"input": ("x.png", content, "image/png")})
    assert found == form.json() == {"task": "vision", **wanted}
    wrong = client.post("/predict", data={"model": "critic"}, files={"input": ("x.png", content, "image/png")})
    assert wrong.json()["error"]["message"] == "input: critic reads a text, and the request has a file"
    assert post(client, "/predict", 400, model="eyes") == "input: field required"


@pytest.mark.parametrize(("route", "name"), [("/classify", "eyes"), ("/caption", "painter"), ("/predict", "eyes")])
def test_inputs_of_several_requests_are_computed_as_one_list(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch, route: str, name: str
) -> None:
    lists: list[int] = []
    predictor = service.models[name].model
    compute = predictor.predict_batch

    def predict_batch(items: list[Any]) -> Any:
        lists.append(len(items))
        return compute(items)

    monkeypatch.setattr(predictor, "predict_batch", predict_batch)
    field = "input" if route == "/predict" else "image"
    bodies = [{"model": name, field: base64.b64encode(png(seed=seed)).decode()} for seed in range(5)]
    worker, go = service.models[name].worker, threading.Event()
    service.models[name].call(go.wait)  # holds the model's thread while the requests gather
    with ThreadPoolExecutor(5) as clients:
        answers = [clients.submit(post, client, route, **body) for body in bodies]
        while worker.waiting < 5:
            time.sleep(0.01)
        go.set()
        found = [answer.result() for answer in answers]
    assert lists == [5]
    for together, body in zip(found, bodies, strict=True):
        alone = post(client, route, **body)
        assert together | {"probabilities": None} == alone | {"probabilities": None}
        # Another number of rows rounds a logit of 10 by one or two in its seventh digit.
        assert together.get("probabilities", {}) == pytest.approx(alone.get("probabilities", {}), rel=1e-5)


def test_neighbours_and_analogies(client: TestClient, model: Of) -> None:
    found = post(client, "/words", model="vectors", question="neighbours", words=["bread"], count=3)
    assert [(each["word"], each["near"]) for each in found["found"]] == model("vectors").neighbours("bread", 3)
    words = ["bread", "water", "house"]
    found = post(client, "/words", model="vectors", question="analogy", words=words, count=2, measure="dot")
    assert [(each["word"], each["near"]) for each in found["found"]] == model("vectors").analogy(*words, 2, "dot")
    sentence = post(client, "/words", 400, model="vectors", question="analogy", words=["bread"])
    assert sentence == "words: analogy takes 3 and not 1 words"
    sentence = post(client, "/words", 400, model="vectors", question="neighbours", words=["bred"])
    assert "'bred' is not among the" in sentence
    assert sentence.endswith("did you mean bread?")


@pytest.mark.parametrize("name", ["translator", "writer", "recurrent", "masked", "critic"])
def test_look_returns_what_the_model_computes(client: TestClient, model: Of, name: str) -> None:
    text = WORDS[:23]
    wanted = model(name).look(text).to_json()
    assert post(client, "/look", model=name, text=text) == json.loads(json.dumps(wanted))


def test_look_with_a_target_while_generating_and_with_an_image(client: TestClient, model: Of) -> None:
    seen = post(client, "/look", model="translator", text="we are eating", target="the old house", full=True)
    assert seen["tokens"]["decoder"] == ["[START]", "the", "old", "house"]
    assert {"weights", "scores", "q", "k", "v"} <= seen["attention"]["decoder.cross"].keys()
    seen = post(client, "/look", model="writer", text="ab", generate=True, max_tokens=5)
    assert len(seen["tokens"]["decoder"]) == 2 + 5 - 1
    image = base64.b64encode(png()).decode()
    seen = post(client, "/look", model="eyes", image=image)
    assert np.array(seen["attention"]["encoder.self"]["weights"]).shape == (2, 3, 26, 26)


def test_a_text_too_long_for_look_is_refused(client: TestClient) -> None:
    sentence = post(client, "/look", 400, model="writer", text="a" * 201)
    assert sentence == "the text has 201 tokens; the limit for looking is 200"
    assert "has one vector for each word" in post(client, "/look", 400, model="vectors", text="bread")


@pytest.mark.parametrize(
    ("route", "body", "sentence"),
    [
        ("/translate", {"model": "eyes", "text": "a"}, "eyes: cannot translate: it is a classifier of images"),
        ("/classify", {"model": "writer", "text": "a"}, "writer: cannot classify: it is a language model"),
        ("/caption", {"model": "eyes", "image": ""}, "eyes: cannot caption: it is a classifier of images"),
        (
            "/v1/completions",
            {"model": "masked", "prompt": "a"},
            "masked: cannot generate: it is a masked language model",
        ),
        (
            "/v1/embeddings",
            {"model": "eyes", "input": "a"},
            "eyes is a classifier of images: it has no vectors of texts",
        ),
        ("/translate", {"model": "translator", "text": []}, "text: there is nothing to answer: the list is empty"),
        (
            "/translate",
            {"model": "translator", "text": ["a"] * 129},
            "text: the request has 129 texts; the limit is 128",
        ),
        (
            "/translate",
            {"model": "translator", "text": "a" * 2001},
            "text: a text has 2,001 characters; the limit is 2,000",
        ),
        ("/translate", {"model": "translator"}, "text: field required"),
        (
            "/translate",
            {"model": "translator", "text": "a", "beam": 2},
            "beam: there is no such field here; did you mean beams?",
        ),
    ],
)
def test_a_mistake_is_one_sentence(client: TestClient, route: str, body: dict[str, Any], sentence: str) -> None:
    assert post(client, route, 400, **body).startswith(sentence)
