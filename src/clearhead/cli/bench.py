"""`clearhead bench NAME`: measure on this machine, side by side with the alternatives."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, console, print_json, print_table

FAULTS = "clearhead.bench.faults"


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="Benchmark: core, train, defaults, charlm, words, decode, lm, embed, start, look or serve."
        ),
    ],
    peers: Annotated[
        bool, typer.Option("--peers", help="Measure other packages too, on the same work; needs clearhead[peers].")
    ] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="serve: clients that misbehave among those that check every answer.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="serve --faults: minutes to run.")] = 60.0,
    clients: Annotated[int, typer.Option(min=1, help="serve --faults: number of clients.")] = 64,
    model: Annotated[
        str | None, typer.Option(help="look: measure this language model from elsewhere instead of our GPT-2.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="defaults: measure only the points whose names begin with this, such as en-fr.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure speed, memory and quality on this machine.

    Alternatives take turns in one run; keep the machine otherwise idle.
    """
    from clearhead.bench import find_suite
    from clearhead.bench.measure import machine
    from clearhead.engines.native.library import library_problem
    from clearhead.errors import ConfigError
    from clearhead.files import write_text

    suite = find_suite(name, peers)
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")
    if faults and name != "serve":
        raise ConfigError(f"--faults is a part of bench serve, not of bench {name}")
    if model is not None and name != "look":
        raise ConfigError(f"--model is an option of bench look, not of bench {name}")
    if only is not None and name != "defaults":
        raise ConfigError(f"--only is an option of bench defaults, not of bench {name}")
    if problem := library_problem():
        console(stderr=True).print(
            f"note: torch is measured instead of native code: {problem}", style="yellow", soft_wrap=True
        )
    results = []
    if model is not None:
        part, running = f" --model {Path(model).name}", import_module("clearhead.bench.look").run_model(model, peers)
    elif only is not None:
        part, running = f" --only {only}", import_module("clearhead.bench.defaults").run(peers, only)
    elif faults:
        part, running = " --faults", import_module(FAULTS).run(minutes, clients)
    else:
        part, running = "", suite.run(peers)
    for result in running:
        results.append(result)
        console(stderr=True).print(f"  {result.what}: {result.value:.3g} {result.unit}")
    peer_versions = suite.versions() if peers else {}
    hardware = machine()
    document = {
        "bench": name + part,
        "machine": hardware | peer_versions,
        "figures": [result.document() for result in results],
    }
    if out is not None:
        write_text(out, json.dumps(document, indent=2) + "\n")
    if as_json:
        print_json(document)
        return
    verdicts = {None: "", True: "holds", False: "MISSED"}
    rows = [(r.what, f"{r.value:.3g} {r.unit}", r.target, verdicts[r.holds]) for r in results]
    print_table(f"bench {name}", ("what", "measured", "limit", ""), rows, folds=0)
    console().print(f"processor: {hardware['flags'] or hardware['machine']}")
