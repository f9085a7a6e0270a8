from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearhead.errors import RunError
from clearhead.interop.checkpoint import format_of, read_checkpoint

SIZES: dict[str, Any] = {"img_size": 30, "patch_size": 6, "embed_dim": 33, "depth": 2, "num_heads": 3, "num_classes": 7}


class EmptyClass(type):
    """The type of a class whose attributes are their own names."""

    def __getattr__(cls, name: str) -> str:
        return name


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of torchvision, with an empty class for whatever is imported from it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("torchvision") else None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: EmptyClass(name, (), {}) if name[0].isalpha() else None
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@pytest.fixture(scope="module")
def timm() -> Any:
    """timm, which imports torchvision for classes that no ViT has: where it is missing, they are empty."""
    finder = Empty()
    if missing := importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(finder)
    try:
        return pytest.importorskip("timm", exc_type=ImportError)
    finally:
        if missing:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.startswith("torchvision")]:
                del sys.modules[name]


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_timm(suffix: str, timm: Any, tmp_path: Path, to_transformers: Any) -> None:
    torch.manual_seed(3)
    model = timm.create_model("vit_tiny_patch16_224", **SIZES).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    path = tmp_path / ("pytorch_model.bin" if suffix == "pth" else "model.safetensors")
    (torch.save if suffix == "pth" else save_file)(model.state_dict(), path)
    names = [f"label{index}" for index in range(7)]
    settings = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "label_names": names}
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert format_of(path) == "timm"
    found = read_checkpoint(path)
    assert found.config["id2label"]["3"] == "label3"
    images = torch.randn(2, 3, 30, 30)
    again = to_transformers(found, "ViTForImageClassification")
    with torch.no_grad():
        torch.testing.assert_close(again(images).logits, model(images), rtol=0, atol=1e-5)


class OldVit(torch.nn.Module):
    """vit-pytorch's ViT as it was before patches were normalised, by its equations and with its names."""

    def __init__(self) -> None:
        super().__init__()
        own, n = torch.nn, 2
        self.pos_embedding = own.Parameter(torch.randn(1, 26, 33))
        self.cls_token = own.Parameter(torch.randn(1, 1, 33))
        self.to_patch_embedding = own.Sequential(own.Identity(), own.Linear(108, 33))
        self.transformer = own.Module()
        self.transformer.layers = own.ModuleList(own.ModuleList([self.attention(), self.mlp()]) for _ in range(n))
        self.mlp_head = own.Sequential(own.LayerNorm(33), own.Linear(33, 7))

    def attention(self) -> torch.nn.Module:
        part = torch.nn.Module()
        part.norm, part.fn = torch.nn.LayerNorm(33), torch.nn.Module()
        part.fn.to_qkv = torch.nn.Linear(33, 99, bias=False)
        part.fn.to_out = torch.nn.Sequential(torch.nn.Linear(33, 33))
        return part

    def mlp(self) -> torch.nn.Module:
        part, own = torch.nn.Module(), torch.nn
        part.norm, part.fn = own.LayerNorm(33), own.Module()
        part.fn.net = own.Sequential(own.Linear(33, 41), own.GELU(), own.Identity(), own.Linear(41, 33))
        return part

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        b = len(images)
        patches = images.view(b, 3, 5, 6, 5, 6).permute(0, 2, 4, 3, 5, 1).reshape(b, 25, 108)  # (p1 p2 c)
        x = torch.cat((self.cls_token.expand(b, -1, -1), self.to_patch_embedding(patches)), 1) + self.pos_embedding
        for attention, mlp in self.transformer.layers:
            q, k, v = attention.fn.to_qkv(attention.norm(x)).view(b, 26, 3, 3, 11).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + attention.fn.to_out(mixed.transpose(1, 2).flatten(2))
            x = x + mlp.fn.net(mlp.norm(x))
        return self.mlp_head(x[:, 0])


def test_vit_pytorch(tmp_path: Path, to_transformers: Any) -> None:
    torch.manual_seed(3)
    model = OldVit().eval()
    torch.save(model.state_dict(), tmp_path / "vit.pt")
    with pytest.raises(RunError, match=r'how many heads it has; write \{"num_heads"'):
        read_checkpoint(tmp_path / "vit.pt")
    (tmp_path / "config.json").write_text('{"heads": 3}', encoding="utf-8")
    found = read_checkpoint(tmp_path / "vit.pt")
    images = torch.randn(2, 3, 30, 30)
    again = to_transformers(found, "ViTForImageClassification")
    with torch.no_grad():
        torch.testing.assert_close(again(images).logits, model(images), rtol=0, atol=1e-5)


def test_what_a_vit_here_lacks_is_named(timm: Any, tmp_path: Path) -> None:
    model = timm.create_model("vit_tiny_patch16_224", **SIZES, init_values=0.1)
    torch.save(model.state_dict(), tmp_path / "vit.pth")
    (tmp_path / "config.json").write_text('{"num_heads": 3}', encoding="utf-8")
    with pytest.raises(RunError, match=r"has a tensor blocks\.0\.ls1\.gamma, which a ViT of Clearhead lacks"):
        read_checkpoint(tmp_path / "vit.pth")
