from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.optional import optional

import clearhead
from clearhead.errors import RunError
from clearhead.interop.checkpoint import read_checkpoint
from clearhead.interop.export import gguf as gguf_export
from clearhead.interop.exporting import export
from clearhead.interop.formats.base import gguf_tokenizer

gguf = optional("gguf")

LLAMA: dict[str, Any] = {
    **{"norm": "rms", "feed_forward": "swiglu", "positions": "rotary", "bias": False, "length": 128},
    **{"dim": 64, "heads": 4, "kv_heads": 2, "layers": 2, "inner": 96},
}
UNTIED = {**LLAMA, "tied": False, "kv_heads": None}
GPT2: dict[str, Any] = {"positions": "learned", "max_length": 128, "length": 128, "feed_forward": "gelu_tanh",
                        "dim": 64, "heads": 4, "layers": 2, "inner": 96}  # fmt: skip
PROMPT = "the quick brown naïve café"


def test_the_examples() -> None:
    assert doctest.testmod(gguf_export).failed == doctest.testmod(gguf_tokenizer).failed == 0


def llama_server(path: Path) -> Any:
    library = pytest.importorskip("xllamacpp", exc_type=ImportError)
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.verbosity = 128, 1, False, -1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = library.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return library.Server(parameters)


@pytest.fixture
def llama_cpp() -> Any:
    """A function that lets llama.cpp continue a prompt: the text, and the tokens that it cut the prompt into."""

    def run(path: Path, prompt: str, count: int) -> dict[str, Any]:
        server = llama_server(path)
        answer = server.handle_completions(
            {"prompt": prompt, "n_predict": count, "temperature": 0.0, "top_k": 1, "repeat_penalty": 1.0,
             "return_tokens": True, "ignore_eos": True, "max_tokens": count, "logprobs": 1}
        )  # fmt: skip
        del server
        return answer

    return run


@pytest.mark.parametrize("kind", ["bytes", "char"])
@pytest.mark.parametrize(
    "settings", [LLAMA, {**LLAMA, "tied": False, "kv_heads": None}, GPT2], ids=["tied", "untied", "gpt2"]
)
def test_llama_cpp_writes_the_same_text(
    kind: str, settings: dict[str, Any], make_run: Any, tmp_path: Path, llama_cpp: Any
) -> None:
    run = make_run("lm", kind=kind, size=330, **settings)
    export("gguf", run, tmp_path / "out")
    model = clearhead.load(run, engine="torch")
    answer = llama_cpp(tmp_path / "out" / "model.gguf", PROMPT, 24)
    # With ignore_eos llama.cpp bans what it takes for an end, which [PAD] is too.
    banned = (model.tokenizer.stop, model.tokenizer.pad)
    assert PROMPT + answer["choices"][0]["text"] == model.generate(
        PROMPT, max_tokens=24, temperature=0.0, banned_tokens=banned
    )
    first = answer["choices"][0]["logprobs"]["content"][0]
    ids = model.tokenizer.encode(PROMPT)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    with torch.no_grad():
        logprobs = model.network(torch.tensor([ids]))[0, -1].log_softmax(-1)
    near = 1e-3 if settings is GPT2 else 1e-4  # ggml's GELU is a table of float16
    assert first["logprob"] == pytest.approx(float(logprobs[first["id"]]), abs=near)


def test_llama_cpp_reads_what_is_quantised(make_run: Any, tmp_path: Path, llama_cpp: Any) -> None:
    run = make_run("lm", size=330, **LLAMA)
    export("gguf", run, tmp_path / "out", "Q8_0")
    model = clearhead.load(run, engine="torch")
    answer = llama_cpp(tmp_path / "out" / "model.gguf", PROMPT, 1)
    first = answer["choices"][0]["logprobs"]["content"][0]
    with torch.no_grad():
        logprobs = model.network(torch.tensor([model.tokenizer.encode(PROMPT)]))[0, -1].log_softmax(-1)
    assert first["logprob"] == pytest.approx(float(logprobs[first["id"]]), abs=0.05)


@pytest.mark.parametrize(("quantise", "most"), [(None, 1e-4), ("Q8_0", 0.01)])
def test_the_perplexity_in_llama_cpp_is_ours(quantise: str | None, most: float, make_run: Any, tmp_path: Path) -> None:
    """Of a text that the model finds likely in parts; each token by the probabilities after those before it."""
    run = make_run("lm", size=330, **LLAMA)
    export("gguf", run, tmp_path / "out", quantise)
    model = clearhead.load(run, engine="torch")
    written = model.generate(PROMPT, max_tokens=20, temperature=0.7, seed=2)
    ids = model.tokenizer.encode(written + " the lazy dog 123")
    with torch.no_grad():
        logprobs = model.network(torch.tensor([ids]))[0].log_softmax(-1)
    ours = -sum(float(logprobs[place - 1, ids[place]]) for place in range(1, len(ids))) / (len(ids) - 1)
    server, theirs, letter = llama_server(tmp_path / "out" / "model.gguf"), 0.0, model.tokenizer.encode("a")[0]
    for place in range(1, len(ids)):
        # A whole letter is forced to follow: half a character would not be reported. Its probabilities are unbiased.
        asked = {"prompt": ids[:place], "max_tokens": 1, "temperature": 0.0, "logit_bias": [[letter, 1000.0]]}
        asked |= {"logprobs": len(model.tokenizer)}
        found = server.handle_completions(asked)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        theirs -= next(each["logprob"] for each in found if each["id"] == ids[place]) / (len(ids) - 1)
    assert np.exp(theirs) == pytest.approx(np.exp(ours), rel=most)


@pytest.mark.parametrize("quantise", [None, "Q8_0", "Q4_0", "Q4_1"])
def test_what_is_written_is_read_back(quantise: str | None, make_run: Any, tmp_path: Path) -> None:
    run = make_run("lm", size=330, **LLAMA)
    export("hf", run, tmp_path / "hf")
    export("gguf", run, tmp_path / "out", quantise)
    found = read_checkpoint(tmp_path / "out" / "model.gguf")
    from clearhead.files import read_tensors

    wanted = read_tensors(tmp_path / "hf" / "model.safetensors")[0]
    assert set(found.tensors) == set(wanted)
    for name, tensor in wanted.items():
        if quantise is None or tensor.dim() == 1:
            torch.testing.assert_close(found.tensors[name], tensor, rtol=0, atol=0)
        elif "q_proj" not in name and "k_proj" not in name:
            kind = gguf.GGMLQuantizationType[quantise]
            rounded = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind)
            np.testing.assert_array_equal(found.tensors[name].numpy(), rounded)
    assert found.precision == ("float32" if quantise is None else f"{quantise} dequantised to float32")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "bytes",
            {"positions": "rotary", "feed_forward": "relu"},
            r"GPT-2 model cannot express model\.positions=rotary",
        ),
        ("bytes", {**GPT2, "feed_forward": "gelu"}, "GPT-2 with model.feed_forward=gelu_tanh only"),
        ("unigram", LLAMA, r"llama.cpp would cut texts differently than its tokenizer \(unigram\)"),
        ("bpe", LLAMA, r"llama.cpp would cut texts differently than its tokenizer \(bpe\)"),
    ],
)
def test_what_llama_cpp_cannot_do_is_one_sentence(
    kind: str, settings: dict[str, Any], message: str, make_run: Any, tmp_path: Path
) -> None:
    run = make_run("lm", kind=kind, size=120 if kind == "unigram" else 330, **settings)
    with pytest.raises(RunError, match=message):
        export("gguf", run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
