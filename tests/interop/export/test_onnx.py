from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.optional import optional

import clearhead
from clearhead.errors import RunError
from clearhead.files import read_tensors, write_tensors
from clearhead.interop.exporting import export

optional("onnx")
optional("onnxscript")
runtime = optional("onnxruntime")

IDS = torch.tensor([[7, 31, 11, 5, 23, 60, 113, 9, 40, 8, 17], [19, 3, 90, 41, 6, 6, 70, 55, 12, 99, 4]])
LLAMA = {"norm": "rms", "feed_forward": "swiglu", "positions": "rotary", "bias": False, "kv_heads": 2, "layers": 1}
LEARNED = {"positions": "learned", "max_length": 53, "feed_forward": "gelu", "layers": 2, "window": 4}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """torch writes down every step of a trace where somebody listens, as pytest does."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def session(path: Path) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(opened: Any, **inputs: Any) -> dict[str, np.ndarray]:
    values = {name.replace("__", "."): np.asarray(value) for name, value in inputs.items()}
    names = [each.name for each in opened.get_outputs()]
    return dict(zip(names, opened.run(names, values), strict=True))


def with_past(opened: Any, rows: int, found: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The past of a first call, which is empty, or of the next one."""
    past = {}
    for each in opened.get_inputs():
        if each.name.startswith("past_key_values."):
            present = each.name.replace("past_key_values", "present")
            shape = (rows, each.shape[1], 0, each.shape[3])
            past[each.name] = np.zeros(shape, np.float32) if found is None else found[present]
    return past


@pytest.mark.parametrize(
    "settings",
    [LLAMA, pytest.param(LEARNED, marks=pytest.mark.slow)],
    ids=["llama", "learned"],
)
def test_a_language_model_with_its_cache(settings: dict[str, Any], make_run: Any, tmp_path: Path) -> None:
    path = make_run("lm", **settings)
    export("onnx", path, tmp_path / "out")
    opened = session(tmp_path / "out" / "model.onnx")
    model = clearhead.load(path)
    with torch.no_grad():
        whole = model.network(IDS).numpy()
    found = None
    for first, last in ((0, 5), (5, 6), (6, 7), (7, 11)):
        found = run(opened, input_ids=IDS[:, first:last], **with_past(opened, 2, found))
        np.testing.assert_allclose(found["logits"], whole[:, first:last], rtol=0, atol=1e-4)
    alone = run(opened, input_ids=IDS[:1], **with_past(opened, 1))
    np.testing.assert_allclose(alone["logits"], whole[:1], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_translator_that_no_other_format_has(make_run: Any, tmp_path: Path) -> None:
    path = make_run("translate", kind="bpe", size=140, positions="t5", score="additive", layers=2)
    export("onnx", path, tmp_path / "out")
    encoder, decoder = (session(tmp_path / "out" / f"{name}.onnx") for name in ("encoder", "decoder"))
    model = clearhead.load(path)
    source, target = IDS[:, :7] % 100 + 6, IDS % 100 + 6
    source[1, 5:] = model.tokenizer.pad
    with torch.no_grad():
        whole = model.network(source, target).numpy()
    memory = run(encoder, input_ids=source)
    found = None
    for first, last in ((0, 1), (1, 4), (4, 11)):
        found = run(decoder, input_ids=target[:, first:last], **memory, **with_past(decoder, 2, found))
        np.testing.assert_allclose(found["logits"], whole[:, first:last], rtol=0, atol=1e-4)


def test_a_classifier_of_images(make_run: Any, tmp_path: Path) -> None:
    path = make_run("vision", positions="learned", pool="mean", patch=4, layers=1)
    done = export("onnx", path, tmp_path / "out")
    assert set(done.files) == {"README.md", "model.onnx"}
    images = torch.rand(3, 3, 12, 12)
    with torch.no_grad():
        wanted = clearhead.load(path).network(images).numpy()
    found = run(session(tmp_path / "out" / "model.onnx"), pixel_values=images)
    np.testing.assert_allclose(found["logits"], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_features_of_words_are_refused(make_run: Any, tmp_path: Path, task: str) -> None:
    with pytest.raises(
        RunError, match=r"no form for the features of words \(model.features=97\); train with model.fea"
    ):
        export("onnx", make_run(task, features=97, layers=1), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recurrent_network_is_refused(make_run: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ONNX export is for Transformers"):
        export("onnx", make_run("lm", architecture="rnn"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_classifier_of_texts_with_its_linear_model(make_run: Any, tmp_path: Path) -> None:
    path = make_run("classify", wide=101, ngrams=2, layers=1)
    weights, metadata = read_tensors(path / "model.safetensors")
    weights["output.table"] = torch.randn(weights["output.table"].shape)
    write_tensors(path / "model.safetensors", weights, metadata)
    export("onnx", path, tmp_path / "out")
    ids = IDS % 50 + 6
    with torch.no_grad():
        wanted = clearhead.load(path, "torch").network(ids).numpy()
    found = run(session(tmp_path / "out" / "model.onnx"), input_ids=ids)
    np.testing.assert_allclose(found["logits"], wanted, rtol=0, atol=1e-4)
