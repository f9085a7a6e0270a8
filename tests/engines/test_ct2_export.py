from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.engines import ct2_export
from clearhead.errors import EngineError
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network
from clearhead.text import Tokenizer

V, START, STOP = 37, 2, 3
SMALL: dict[str, Any] = {"dim": 28, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.0, "max_length": 61}
SOURCE, TARGET = [7, 31, 11, 5, 23, 6, 13], [2, 17, 29, 5, 19, 2, 36, 11, 8, 6, 30]

VARIATIONS: list[dict[str, Any]] = [
    {},
    {"dim": 21, "heads": 3, "position_base": 101.0},
    {"positions": "learned", "tied": False},
    {"positions": "rotary", "position_base": 101.0},
    {"positions": "t5"},
    {"positions": "none"},
    {"placement": "after"},
    {"placement": "around"},
    {"placement": "around", "norm": "rms", "bias": False},
    {"placement": "after", "norm": "rms"},
    {"norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"feed_forward": "swiglu"},
    {"feed_forward": "gelu"},
    {"score": "dot"},
    {"dim": 30, "heads": 6, "kv_heads": 2},
    {"dim": 24, "heads": 6, "kv_heads": 3, "positions": "rotary"},
    {"key_dim": 11, "value_dim": 11},
    {"dim": 24, "heads": 6, "kv_heads": 2, "key_dim": 8, "value_dim": 8, "positions": "rotary"},
]


def name(settings: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items()) or "usual"


def make(task: str, **settings: Any) -> Any:
    """A network whose biases and gains are not those of a fresh one, which would hide errors."""
    torch.manual_seed(3)
    model = TASKS[task].config_type().model_validate({"model": {**SMALL, **settings}})
    network = build_network(model, Sizes(vocabulary=V)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return network


def saved(network: Any, folder: Path) -> str:
    ct2_export.export(network, ct2_export.numbers(V), folder, start=START, stop=STOP)
    return str(folder)


def named(ids: list[int]) -> list[str]:
    return [str(index) for index in ids]


def close(theirs: Any, ours: Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(np.array(theirs)), ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", VARIATIONS, ids=name)
def test_a_translator_gives_the_same_logprobs(settings: dict[str, Any], tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    network = make("translate", **settings)
    model = library.Translator(saved(network, tmp_path), compute_type="float32", intra_threads=1)
    [answer] = model.translate_batch(
        [named(SOURCE)],
        beam_size=1,
        max_decoding_length=23,
        min_decoding_length=23,
        return_logits_vocab=True,
        suppress_sequences=[[str(STOP)]],
    )
    written = [int(token) for token in answer.hypotheses[0]]
    theirs = np.stack([np.array(step) for step in answer.logits[0]])  # (T, V), the stop left out
    with torch.inference_mode():
        ours = network(torch.tensor([[*SOURCE, STOP]]), torch.tensor([[START, *written[:-1]]]))[0]
    assert theirs.shape == (23, V)
    others = [index for index in range(V) if index != STOP]
    close(theirs[:, others], ours[:, others])


@pytest.mark.parametrize(
    "settings", [*VARIATIONS, {"positions": "alibi"}, {"dim": 21, "heads": 3, "positions": "alibi"}], ids=name
)
def test_a_language_model_gives_the_same_logprobs(settings: dict[str, Any], tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    network = make("lm", **settings)
    model = library.Generator(saved(network, tmp_path), compute_type="float32", intra_threads=1)
    text = (SOURCE + TARGET) * 3
    with torch.inference_mode():
        close(model.forward_batch([named(text)]), network(torch.tensor([text])))


@pytest.mark.parametrize(
    ("task", "settings", "named"),
    [
        ("translate", {"score": "additive"}, "model.score=additive"),
        ("lm", {"score": "bilinear"}, "model.score=bilinear"),
        ("lm", {"score": "cosine"}, "model.score=cosine"),
        ("translate", {"hard": True}, "model.hard"),
        ("lm", {"norm": "batch"}, "model.norm=batch"),
        ("translate", {"position_concat": True, "tied": False}, "model.position_concat"),
        ("translate", {"positions": "alibi"}, "model.positions=alibi in an encoder"),
        ("lm", {"window": 5}, "model.window=5"),
        ("lm", {"key_dim": 7, "value_dim": 11}, "model.key_dim and model.value_dim that differ"),
        ("translate", {"architecture": "rnn"}, "RnnSeq2Seq: only Transformers that translate or continue a text"),
        ("masked_lm", {}, "MaskedLanguageModel: only Transformers that translate"),
    ],
)
def test_unsupported_features_are_named(task: str, settings: dict[str, Any], named: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    with pytest.raises(EngineError, match=f"CTranslate2 cannot express {named}.*; use another engine"):
        saved(make(task, **settings), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_exported_files_name_our_tokens(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    tokenizer = Tokenizer.train("bpe", ["we are eating bread", "they are reading"], size=V)
    names = [tokenizer.token(index) for index in range(len(tokenizer))]
    network = make("translate")
    ct2_export.export(
        network, [*names, *ct2_export.numbers(V - len(names))], tmp_path, start=tokenizer.start, stop=tokenizer.stop
    )
    said = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert said["decoder_start_token"] == said["bos_token"] == "[START]"
    assert said["eos_token"] == "[STOP]"
    assert said["unk_token"] == "[UNK]"
    assert said["add_source_eos"] is True
    assert said["add_source_bos"] is False
    kept = json.loads((tmp_path / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert kept[: len(names)] == names


def test_every_token_needs_a_name(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    with pytest.raises(EngineError, match="a network of 37 tokens needs as many token names, and got 36"):
        ct2_export.export(make("lm"), ct2_export.numbers(V - 1), tmp_path, start=START, stop=STOP)


def test_names_are_made_unique() -> None:
    assert doctest.testmod(ct2_export).failed == 0
    assert ct2_export.unique(["a", "a", "a#1", "b"]) == ["a", "a#1", "a#1#2", "b"]


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(EngineError, match="needs CTranslate2, not installed here; pip install ctranslate2"):
        ct2_export.library()
