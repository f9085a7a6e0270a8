"""`clearhead bench NAME`: measure on this machine, side by side with the alternatives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.output import Json, console, print_json, print_table


def bench(
    name: Annotated[
        str, typer.Argument(help="What to measure: core, train, charlm, words, decode, start, look or serve.")
    ],
    peers: Annotated[bool, typer.Option("--peers", help="Measure other packages too, on the same work.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the figures to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure speed, memory and quality on this machine.

    Alternatives take turns in the same run; keep the machine quiet meanwhile.
    """
    from clearhead.bench import suites
    from clearhead.bench.measure import machine
    from clearhead.errors import ConfigError

    suite = suites.find(name, peers)
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")
    figures = []
    for figure in suite.run(peers):
        figures.append(figure)
        console(stderr=True).print(f"  {figure.what}: {figure.value:.3g} {figure.unit}")
    peer_versions = suite.versions() if peers else {}
    document = {"bench": name, "machine": machine() | peer_versions, "figures": [f.document() for f in figures]}
    if out is not None:
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(document)
        return
    verdicts = {None: "", True: "holds", False: "MISSED"}
    rows = [(f.what, f"{f.value:.3g} {f.unit}", f.wanted, verdicts[f.holds]) for f in figures]
    print_table(f"bench {name}", ("what", "measured", "limit", ""), rows, folds=0)
