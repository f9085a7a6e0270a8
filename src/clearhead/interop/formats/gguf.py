"""GGUF, llama.cpp's format: one file with the weights, often quantised, the tokenizer and the chat template.

What each architecture's tensors and settings are called by Hugging Face is in `base/gguf_architectures.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format
from clearhead.interop.formats.base.gguf_architectures import ARCHITECTURES, Layout
from clearhead.interop.formats.base.gguf_file import MAGIC, GgufFile
from clearhead.interop.formats.base.gguf_model import Model
from clearhead.interop.formats.base.gguf_tokenizer import read_tokenizer
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.table import Into, Table, place, row_orders
from clearhead.nn.quantised import FORMATS as BLOCK_FORMATS
from clearhead.nn.quantised import Quantised

BUFFERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # they are in the config


@FORMATS.register("gguf")
class Gguf(Format):
    """A .gguf file."""

    def can_read(self, path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == MAGIC

    def read(self, path: Path) -> Checkpoint:
        file = GgufFile(path)
        name = str(file.metadata.get("general.architecture"))
        if name not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise RunError(f"{path} is a GGUF file of the architecture {name}; Clearhead reads {known}")
        if (parts := file.metadata.get("split.count", 1)) > 1:
            raise RunError(f"{path} is one of {parts} parts of a model; join them with `llama-gguf-split --merge`")
        model = Model(file, name)
        architecture = ARCHITECTURES[name]
        names = architecture.names(Layout.of(model))
        tensors, skipped = _tensors(model, names)
        kinds = sorted({info.kind for info in file.tensors.values()} - {"F32", "F16"})
        half = {info.kind for info in file.tensors.values()} == {"F16", "F32"}
        precision = f"{', '.join(kinds)} dequantised to float32" if kinds else "float16" if half else "float32"
        config = {**model.rotary(), **architecture.settings(model), **model.tokens()}
        tokenizer = read_tokenizer(file.metadata, path)
        quantised = _quantised(model, names)
        return Checkpoint(path, config, LazyTensors(tensors), tokenizer, skipped, precision, quantised)


def _tensors(model: Model, names: Table) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str]]:
    """Hugging Face's names of all tensors, and what is left out; a tensor that no table has is an error."""
    found: dict[str, Callable[[], Tensor]] = {}
    skipped = {}
    for name in model.file.tensors:
        if name in BUFFERS:
            skipped[name] = "its values are computed from the configuration"
            continue
        target = place(name, names)
        if target is None:
            raise RunError(
                f"{model.file.path} has a tensor {name}, which a {model.architecture} model of Clearhead lacks"
            )
        for part, theirs in enumerate(target.names):
            found[theirs] = partial(_read, model, name, target, part)
    return found, skipped


def _quantised(model: Model, names: Table) -> dict[str, Callable[[], Quantised]]:
    """The matrices that are stored in blocks, by Hugging Face's names, where their layout differs in rows only."""
    found: dict[str, Callable[[], Quantised]] = {}
    for name, info in model.file.tensors.items():
        target = place(name, names)
        if target is None or info.kind not in BLOCK_FORMATS or len(info.shape) != 2:
            continue
        try:
            orders = row_orders(info.shape[0], target.cut)
        except RuntimeError:  # it cannot be cut into so many heads, which is said when it is read
            continue
        for theirs, order in zip(target.names, orders or (), strict=False):
            found[theirs] = partial(_read_blocks, model, name, order)
    return found


def _read_blocks(model: Model, name: str, order: Tensor) -> Quantised:
    return Quantised(model.file.tensors[name].kind, model.file.read_blocks(name)[order])


def _read(model: Model, name: str, target: Into, part: int) -> Tensor:
    tensor = model.file.read(name)
    try:
        return target.cut(tensor)[part].contiguous()
    except (RuntimeError, IndexError):  # it cannot be cut into so many heads or parts
        shape = tuple(tensor.shape)
        raise RunError(f"{model.file.path} is damaged: {name} has the shape {shape}, unlike its metadata") from None
