from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library

from clearhead.errors import RunError
from clearhead.interop.checkpoint import format_of, read_checkpoint

V, D, F, LAYERS, H, G, T = 19, 24, 34, 3, 6, 2, 41
KEYS = D * G // H
BLOCKS = {"wq": (D, D), "wk": (KEYS, D), "wv": (KEYS, D), "wo": (D, D), "w1": (F, D), "w2": (D, F), "w3": (F, D)}
NAMES = {
    **{"wq": "self_attn.q_proj", "wk": "self_attn.k_proj", "wv": "self_attn.v_proj", "wo": "self_attn.o_proj"},
    **{"w1": "mlp.gate_proj", "w2": "mlp.down_proj", "w3": "mlp.up_proj"},
}
IDS = torch.tensor([[1, 7, 3, 11, 18, 5, 2]])


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = {"tok": (V, D), "att": (LAYERS, D), "ffn": (LAYERS, D), "norm": (D,), "out": (V, D)}
    shapes |= {name: (LAYERS, *shape) for name, shape in BLOCKS.items()}
    return {name: random.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def write(path: Path, version: int, tied: bool = True) -> dict[str, np.ndarray]:
    """A checkpoint as llama2.c's export.py writes it; returns the weights, as rounded as they are stored."""
    own = weights()
    head, blocks = (D, F, LAYERS, H, G, V, T), [own[name] for name in BLOCKS]
    last = [] if tied else [own["out"]]
    if version == 0:
        rope = [np.zeros((T, D // H // 2), np.float32)] * 2
        content = struct.pack("<7i", *head[:5], V if tied else -V, T)
        parts = [own["tok"], own["att"], *blocks[:4], own["ffn"], *blocks[4:], own["norm"], *rope, *last]
        path.write_bytes(content + b"".join(each.tobytes() for each in parts))
        return own
    content = struct.pack("<Ii7iB", 0x616B3432, version, *head, tied)
    norms = b"".join(own[name].tobytes() for name in ("att", "ffn", "norm"))
    if version == 1:
        body = b"".join(each.tobytes() for each in [own["tok"], *blocks, *last])
        path.write_bytes(content.ljust(256, b"\0") + norms + body)
        return own
    body, group = b"", 2
    for name in ["tok", *BLOCKS, *([] if tied else ["out"])]:
        each = own[name].reshape(-1, *own[name].shape[-2:])
        for layer in each if name in BLOCKS else each.reshape(1, V, D):
            rows = layer.reshape(-1, group)
            scale = np.abs(rows).max(1) / 127
            whole = np.round(rows / scale[:, None]).astype(np.int8)
            body += whole.tobytes() + scale.astype(np.float32).tobytes()
            layer[...] = (whole * scale[:, None]).reshape(layer.shape)
    path.write_bytes((content + struct.pack("<i", group)).ljust(256, b"\0") + norms + body)
    return own


def logits(own: dict[str, np.ndarray], ids: torch.Tensor, tied: bool) -> torch.Tensor:
    """The forward pass of run.c: rotary pairs are neighbours."""
    w = {name: torch.from_numpy(each) for name, each in own.items()}
    size = D // H
    angle = torch.arange(ids.size(1))[:, None] / 10000 ** (torch.arange(0, size, 2) / size)

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return gain * x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()

    def rotate(x: torch.Tensor) -> torch.Tensor:  # (T, heads, size)
        a, b = x[..., ::2], x[..., 1::2]
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    x, mask = w["tok"][ids[0]], torch.ones(ids.size(1), ids.size(1)).tril().bool()
    for n in range(LAYERS):
        y = norm(x, w["att"][n])
        q, k = rotate((y @ w["wq"][n].T).view(-1, H, size)), rotate((y @ w["wk"][n].T).view(-1, G, size))
        v = (y @ w["wv"][n].T).view(-1, G, size)
        k, v = k.repeat_interleave(H // G, 1), v.repeat_interleave(H // G, 1)
        score = torch.einsum("ihd,jhd->hij", q, k) / size**0.5
        mixed = torch.einsum("hij,jhd->ihd", score.masked_fill(~mask, -torch.inf).softmax(-1), v)
        x = x + mixed.flatten(1) @ w["wo"][n].T
        y = norm(x, w["ffn"][n])
        x = x + (torch.nn.functional.silu(y @ w["w1"][n].T) * (y @ w["w3"][n].T)) @ w["w2"][n].T
    return norm(x, w["norm"]) @ w["tok" if tied else "out"].T


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_computes_what_run_c_computes(
    version: int, tied: bool, tmp_path: Path, to_transformers: Any
) -> None:
    own = write(tmp_path / "m.bin", version, tied)
    assert format_of(tmp_path / "m.bin") == "llama2c"
    found = read_checkpoint(tmp_path / "m.bin")
    assert found.tokenizer is None
    assert set(found.skipped) == ({"rope.cos", "rope.sin"} if version == 0 else set())
    with torch.no_grad():
        ours = to_transformers(found)(IDS).logits[0]
    torch.testing.assert_close(ours, logits(own, IDS, tied), rtol=0, atol=1e-4)


def test_stories260k_tells_its_story(published: Path, to_transformers: Any) -> None:
    found = read_checkpoint(published / "stories260k" / "stories260K.bin")
    assert found.tokenizer is not None
    library = Library.from_str(found.tokenizer.json)
    assert library.encode("Once upon a time").ids == [1, 403, 407, 261, 378]
    text = "  hä 日 x\n"
    assert library.decode(library.encode(text).ids) == text
    model = to_transformers(found)
    ids = model.generate(torch.tensor([[1]]), max_new_tokens=60, do_sample=False)[0].tolist()
    assert library.decode(ids).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_that_is_too_short_is_one_sentence(version: int, tmp_path: Path) -> None:
    write(tmp_path / "m.bin", version)
    content = (tmp_path / "m.bin").read_bytes()
    (tmp_path / "m.bin").write_bytes(content[:-5])
    with pytest.raises(RunError, match=r"cut off: it has .* bytes, and its header needs"):
        read_checkpoint(tmp_path / "m.bin")


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1, 1, 1, 1), (24, 34, 3, 5, 2, 19, 41), (2**30,) * 7])
def test_other_files_are_not_taken_for_llama2c(sizes: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(struct.pack("<7i", *sizes) + b"\0" * 900)
    assert format_of(tmp_path / "m.bin") is None


def test_a_damaged_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path / "m.bin", 0)
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<ifi", 7, 0.0, 2**30))
    with pytest.raises(RunError, match=r"tokenizer.bin is damaged or cut off: token 0 has 1,073,741,824 bytes"):
        read_checkpoint(tmp_path / "m.bin")
