"""`clearhead export hf|gguf|onnx|ct2 RUN --out DIR`: a model for somebody else's program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, console, print_json, print_table


def export(
    format: Annotated[str, typer.Argument(help="hf (Hugging Face), gguf (llama.cpp), onnx or ct2 (CTranslate2).")],
    model: ModelPath,
    out: Annotated[Path, typer.Option(help="Folder to create.")],
    quantise: Annotated[
        str | None, typer.Option(help="Store matrices in fewer bits (gguf): Q8_0, Q4_0 or Q4_1.  [default: float32]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a model for another program, with its tokenizer and card."""
    from clearhead.interop.exporting import export as write

    done = write(format, model, out, quantise)
    if as_json:
        print_json({"model": model, "format": format, "out": str(out), "quantise": quantise, "files": done.files})
        return
    rows = [(name, f"{size / 1e3:>10,.1f}") for name, size in done.files.items()]
    print_table("", ("file", " kilobytes"), rows, folds=0)
    console().print(f"The model is in {out}.", soft_wrap=True)
