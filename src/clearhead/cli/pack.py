"""`clearhead pack RUN --out DIR`: a small copy of a finished run, to send or deploy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, console, print_json, print_table


def pack(
    run: ModelPath,
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    half: Annotated[bool, typer.Option("--half", help="Store the weights in float16, half as large.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a finished run without what only training needs."""
    from clearhead.run import find
    from clearhead.train.pack import pack as pack_run

    parts = pack_run(find(run), out, half)
    before, after = (sum(sizes) for sizes in zip(*((part.before, part.after or 0) for part in parts), strict=True))
    if as_json:
        files = [asdict(part) for part in parts]
        print_json({"run": run, "out": str(out), "half": half, "parts": files, "before": before, "after": after})
        return
    rows = [(part.name, _kilobytes(part.before), _kilobytes(part.after)) for part in parts]
    total = ("all", _kilobytes(before), _kilobytes(after))
    print_table("", ("kilobytes", "       run", "    packed"), [*rows, total], folds=0)
    console().print(f"The packed model is in {out}.", soft_wrap=True)


def _kilobytes(size: int | None) -> str:
    return f"{'–':>10}" if size is None else f"{size / 1e3:>10,.1f}"
