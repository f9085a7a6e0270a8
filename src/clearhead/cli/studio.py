"""`clearhead studio [MODEL ...]`: use, look into, change and train models in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, print_json
from clearhead.errors import ConfigError

FIRST = "en-es"  # the model that the page opens with


def studio(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL...]", help="Run directories or model names; default: all that come with the package."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free port.")] = 8765,
    runs: Annotated[Path, typer.Option(help="Folder for trainings started from the page.")] = Path("runs"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    as_json: Json = False,
) -> None:
    """Open a page to use, look inside, change and train models.

    Only this machine can reach it, and only with the link that is printed: it has a token. Ctrl-C stops it; trainings
    that were started from the page continue.
    """
    try:
        from clearhead.serve.registry import Service
        from clearhead.studio import app
        from clearhead.studio.runs import Runs
    except ModuleNotFoundError as missing:
        raise ConfigError(f"the Studio needs {missing.name}: pip install 'clearhead[studio]'") from None
    from clearhead.run import bundled_names as names

    service = Service.load(models or sorted(names(), key=lambda name: name != FIRST))

    def on_ready(link: str) -> None:
        if as_json:
            address, _, token = link.partition("?token=")
            print_json({"address": address, "models": list(service.models)} | ({"token": token} if token else {}))
            sys.stdout.flush()
        else:
            typer.echo(f"the Studio is open at {link} with {', '.join(service.models)} (Ctrl-C stops it)")
        if browser:
            typer.launch(link)

    app.open_studio(service, Runs(runs), port, on_ready)
