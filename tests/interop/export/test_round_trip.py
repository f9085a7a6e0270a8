"""What is exported and imported again is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import RunError
from clearhead.interop.exporting import export

importing = pytest.importorskip("clearhead.interop.importing")

IDS = torch.tensor([[7, 31, 11, 5, 23, 60, 113, 9, 40, 8, 17], [19, 3, 90, 41, 6, 6, 70, 55, 12, 99, 4]])
LLAMA = {"norm": "rms", "feed_forward": "swiglu", "positions": "rotary", "bias": False, "length": 53, "kv_heads": 2}


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_the_same_bits_come_back(form: str, make_run: Any, tmp_path: Path) -> None:
    run = make_run("lm", **LLAMA, embedding_scale=1.0)
    export(form, run, tmp_path / "out")
    source = tmp_path / "out" / "model.gguf" if form == "gguf" else tmp_path / "out"
    importing.import_model(source, tmp_path / "again")
    own, again = clearhead.load(run), clearhead.load(tmp_path / "again")
    for name, weight in own.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], weight, rtol=0, atol=0, msg=name)
    for text in ("the quick  brown\nfox", "naïve 日本 🙂", "don't 123"):
        assert again.tokenizer.encode(text) == own.tokenizer.encode(text)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("lm", {"positions": "rotary", "feed_forward": "relu", "length": 53}),
        ("lm", {"positions": "learned", "feed_forward": "gelu_tanh", "max_length": 53, "length": 53}),
        ("translate", {"positions": "sinusoidal", "placement": "after", "feed_forward": "relu"}),
        ("translate", {"norm": "rms", "positions": "t5", "bias": False, "feed_forward": "relu"}),
    ],
    ids=["neox", "gpt2", "marian", "t5"],
)
def test_the_same_logits_come_back(task: str, settings: dict[str, Any], make_run: Any, tmp_path: Path) -> None:
    run = make_run(task, **settings)
    export("hf", run, tmp_path / "out")
    importing.import_model(tmp_path / "out", tmp_path / "again")
    own, again = clearhead.load(run).network, clearhead.load(tmp_path / "again").network
    inputs = (IDS,) if task == "lm" else (IDS[:, :7], IDS)
    with torch.no_grad():
        torch.testing.assert_close(again(*inputs), own(*inputs), rtol=0, atol=2e-5)


def test_an_embedder_with_a_tokenizer_that_llama_cpp_lacks(make_run: Any, tmp_path: Path) -> None:
    settings = {"placement": "after", "positions": "learned", "feed_forward": "gelu", "embedding_norm": True}
    run = make_run("embed", kind="wordpiece", size=150, **settings, max_length=53)
    with pytest.raises(RunError, match=r"than its tokenizer \(wordpiece\); an encoder needs BERT's own"):
        export("gguf", run, tmp_path / "out")
