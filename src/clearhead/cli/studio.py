"""`clearhead studio [MODEL ...]`: the whole system in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.output import Json, print_json
from clearhead.errors import ConfigError


def studio(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL...]", help="Run directories or names; all that come with it.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 = any that is free.")] = 8765,
    runs: Annotated[Path, typer.Option(help="Where trainings that the page starts are kept.")] = Path("runs"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    as_json: Json = False,
) -> None:
    """Open a page to use models, look inside them, change them and train them.

    Only this machine can reach it. Ctrl-C stops it; trainings that were started from the page go on.
    """
    try:
        from clearhead.serve.registry import Service
        from clearhead.serve.studio import Runs
        from clearhead.serve.studio.opening import open_studio
    except ModuleNotFoundError as missing:
        raise ConfigError(f"the Studio needs {missing.name}: pip install 'clearhead[studio]'") from None
    from clearhead.run import bundled_names as names

    service = Service.load(models or _first("en-es", names()))

    def ready(address: str) -> None:
        if as_json:
            print_json({"address": address, "models": list(service.models)})
        else:
            typer.echo(f"the Studio is open at {address} with {', '.join(service.models)} (Ctrl-C stops it)")
        if browser:
            typer.launch(address)

    open_studio(service, Runs(runs), port, ready)


def _first(wanted: str, among: list[str]) -> list[str]:
    """The same names with one before the others."""
    return sorted(among, key=lambda name: name != wanted)
