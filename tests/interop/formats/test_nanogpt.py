from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.optional import optional

import clearhead
from clearhead.errors import RunError
from clearhead.interop.checkpoint import format_of, read_checkpoint
from clearhead.interop.importing import import_model
from clearhead.look.probes import capture

transformers = optional("transformers")

V, D, LAYERS, H, T = 17, 12, 2, 3, 11
IDS = torch.tensor([[5, 11, 2, 16, 3, 7]])


def make(activation: str) -> Any:
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=V, n_embd=D, n_layer=LAYERS, n_head=H, n_positions=T, activation_function=activation
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


def nano(model: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """Its weights under nanoGPT's names: linear maps are (out, in)."""
    state = model.state_dict()
    return {prefix + name: each.T.contiguous() if ".c_" in name and each.dim() == 2 else each
            for name, each in state.items()}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_nanogpt(prefix: str, tmp_path: Path, to_transformers: Any) -> None:
    model = make("gelu")
    arguments = {"n_layer": LAYERS, "n_head": H, "n_embd": D, "block_size": T, "bias": True, "vocab_size": V}
    torch.save({"model": nano(model, prefix), "model_args": arguments, "iter_num": 5}, tmp_path / "ckpt.pt")
    assert format_of(tmp_path / "ckpt.pt") == "nanogpt"
    found = read_checkpoint(tmp_path / "ckpt.pt")
    assert found.skipped == {"lm_head.weight": "equal to the embedding"}
    with torch.no_grad():
        torch.testing.assert_close(to_transformers(found)(IDS).logits, model(IDS).logits, rtol=0, atol=1e-6)


def test_a_nanogpt_without_biases_has_zeros(tmp_path: Path, to_transformers: Any) -> None:
    model = make("gelu")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
    state = {name: each for name, each in nano(model).items() if not name.endswith("bias")}
    torch.save({"model": state, "model_args": {"n_head": H, "bias": False}}, tmp_path / "ckpt.pt")
    with torch.no_grad():
        again = to_transformers(read_checkpoint(tmp_path / "ckpt.pt"))
        torch.testing.assert_close(again(IDS).logits, model(IDS).logits, rtol=0, atol=1e-6)


def test_mingpt_with_its_config(tmp_path: Path, to_transformers: Any) -> None:
    model = make("gelu_new")
    state = {**nano(model), "transformer.h.0.attn.bias": torch.ones(1, 1, T, T).tril()}
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(RunError, match=r'how many heads it has; write \{"n_head"'):
        read_checkpoint(tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps({"model": {"n_head": H}, "system": {}}), encoding="utf-8")
    found = read_checkpoint(tmp_path / "model.pt")
    assert found.skipped == {"transformer.h.0.attn.bias": "the causal mask, which is computed"}
    assert not found.config["tie_word_embeddings"]
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(state["lm_head.weight"])
        torch.testing.assert_close(to_transformers(found)(IDS).logits, model(IDS).logits, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def sorter(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("sorter") / "run"
    assert format_of(published / "gpt-nano-sort" / "gpt-nano-sort-model.json") == "nanogpt"
    import_model(published / "gpt-nano-sort" / "gpt-nano-sort-model.json", folder)
    return clearhead.load(folder)


def test_gpt_nano_sort_computes_its_published_values(published: Path, sorter: Any) -> None:
    """All of them, by the names of our probes; what lies between two probes is read from its module."""
    values = json.loads((published / "gpt-nano-sort" / "gpt-nano-sort-t0-partials.json").read_text())

    def partial(name: str) -> torch.Tensor:
        content = np.frombuffer(base64.b64decode(values.pop(name)["data"]), np.float32).copy()
        return torch.from_numpy(content).view(shapes[name])

    shapes = {name: value.get("shape") for name, value in values.items()}
    del values["config"]
    network, ids = sorter.network, partial("idx").long()
    block, inner = network.stack.blocks[0], {}
    parts = {
        "ln1": block.residual1.norm,
        "ln2": block.residual2.norm,
        "fc": block.feed_forward.inner,
        "ln_f": network.stack.norm,
    }
    hooks = [
        part.register_forward_hook(lambda _part, _args, output, name=name: inner.update({name: output}))
        for name, part in parts.items()
    ]
    with torch.no_grad(), capture(network, "*") as seen:
        network(ids)
    for hook in hooks:
        hook.remove()

    def close(found: torch.Tensor, name: str) -> None:
        torch.testing.assert_close(found, partial(name), rtol=0, atol=1e-5, msg=lambda text: f"{name}: {text}")

    probes = {
        "x": "decoder.embedded",
        "q": "decoder.0.self.query",
        "k": "decoder.0.self.key",
        "v": "decoder.0.self.value",
        "attSm": "decoder.0.self.weights",
        "yProj": "decoder.0.self.output",
        "gelu": "decoder.0.feed_forward.inner",
        "mlp": "decoder.0.feed_forward.output",
        "mlpResid": "decoder.0.hidden",
        "block0": "decoder.0.hidden",
        "block1": "decoder.1.hidden",
        "block2": "decoder.2.hidden",
        "lm_head": "logits",
    }
    for theirs, ours in probes.items():
        close(seen[ours], theirs)
    close(seen["decoder.0.self.mixed"].transpose(1, 2).flatten(2), "y")
    later = ~seen["decoder.0.self.visible"].unsqueeze(1)  # (B, 1, T, S)
    close(seen["decoder.0.self.scores"].masked_fill(later, -torch.inf), "att")
    heads = [seen[f"decoder.0.self.{name}"].transpose(1, 2).flatten(2) for name in ("query", "key", "value")]
    close(torch.cat(heads, dim=-1), "qkv")
    close(seen["decoder.embedded"] + seen["decoder.0.self.output"], "attnResid")
    close(seen["logits"].softmax(-1), "probs")
    table, positions = network.tokens.tokens.table.weight, partial("pos_emb")
    close(table[ids], "tok_emb")
    torch.testing.assert_close(seen["decoder.embedded"] - table[ids], positions.expand(3, -1, -1), rtol=0, atol=1e-5)
    for name, tensor in inner.items():
        close(tensor, name)
    assert not values


def test_gpt_nano_sort_sorts_and_no_token_ends_its_text(sorter: Any) -> None:
    """Its vocabulary is 0, 1, 2 and nothing else: 0 is a number, not the end."""
    assert sorter.tokenizer.end is None
    for text, expected in (("2 0 1 0 2 1", "0 0 1 1 2 2"), ("0 0 0 1 0 0", "0 0 0 0 0 1")):
        written = sorter.generate(text, max_tokens=5, temperature=0.0)
        first = int(sorter.network(torch.tensor([sorter.tokenizer.encode(text)]))[0, -1].argmax())
        assert str(first) == expected[0]
        assert written.removeprefix(text).split() == expected.split()[:5]


class Evil:
    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    evil = Evil(tmp_path / "was-here")
    torch.save({"model": nano(make("gelu")), "model_args": evil}, tmp_path / "ckpt.pt")
    with pytest.raises(RunError, match="holds Python objects that could run code"):
        read_checkpoint(tmp_path / "ckpt.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(evil))
    assert format_of(tmp_path / "plain.pt") is None
    assert not evil.trace.exists()


def test_damaged_json_is_one_sentence(tmp_path: Path) -> None:
    value = {"shape": [9, 9], "dtype": "torch.float32", "data": base64.b64encode(bytes(8)).decode()}
    (tmp_path / "m.json").write_text(json.dumps({"config": {"vocab_size": 3}, "transformer.wte.weight": value}))
    with pytest.raises(RunError, match="not minGPT's weights as JSON"):
        read_checkpoint(tmp_path / "m.json")
