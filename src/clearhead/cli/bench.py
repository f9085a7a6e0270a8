"""`clearhead bench NAME`: measure on this machine, side by side with the alternatives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.output import Json, console, print_json, print_table


def bench(
    name: Annotated[str, typer.Argument(help="What to measure: core.")],
    out: Annotated[Path | None, typer.Option(help="Also write the figures to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure speed and memory on this machine.

    Alternatives take turns in the same run; keep the machine quiet meanwhile.
    """
    from dataclasses import asdict

    from clearhead.bench import core
    from clearhead.bench.measure import machine
    from clearhead.errors import ConfigError, nearest

    suites = {"core": core.run}
    if name not in suites:
        raise ConfigError(f"unknown benchmark {name}; {nearest(name, suites)}")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")
    figures = []
    for figure in suites[name]():
        figures.append(figure)
        console(stderr=True).print(f"  {figure.what}: {figure.value:.3g} {figure.unit}")
    document = {"bench": name, "machine": machine(), "figures": [asdict(figure) for figure in figures]}
    if out is not None:
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(document)
        return
    verdicts = {None: "", True: "holds", False: "MISSED"}
    rows = [
        (f.what, f"{f.value:.3g} {f.unit}", "" if f.limit is None else f"≤ {f.limit:g} {f.unit}", verdicts[f.holds])
        for f in figures
    ]
    print_table(f"bench {name}", ("what", "measured", "limit", ""), rows, folds=0)
