"""`clearhead serve MODEL ...`: trained models behind HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from clearhead.cli.output import Json, print_json
from clearhead.errors import ConfigError

Token = Annotated[
    str | None, typer.Option(envvar="CLEARHEAD_TOKEN", help="What clients have to send; needed unless only local.")
]


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run directories or names, or NAME=MODEL.")],
    host: Annotated[str, typer.Option(help="Where to listen; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 = any that is free.")] = 8000,
    token: Token = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name that clients call this machine.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts or images computed together.")] = 64,
    queue: Annotated[int, typer.Option(min=1, help="Of them that may wait for a model.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.1, help="For one request, from whole to answered.")] = 60.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="That one request may have written.")] = 8192,
    as_json: Json = False,
) -> None:
    """Serve models over HTTP: OpenAI's API for language models, and a route for each other task.

    Ctrl-C, or the signal TERM, stops it when everything that was begun is answered.
    """
    try:
        from clearhead.serve.limits import Limits
        from clearhead.serve.registry import Service
        from clearhead.serve.server import Place, run
    except ModuleNotFoundError as missing:
        raise ConfigError(f"serving needs {missing.name}: pip install 'clearhead[studio]'") from None

    place = Place(host, port, token, allow_host or ())
    with place.listen() as listening:
        service = Service.load(models, Limits(rows=batch, queue=queue, seconds=seconds, tokens=max_tokens))
        _announce(place.address(listening), list(service.models), as_json)
        run(service, place, listening)


def _announce(address: str, models: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"address": address, "models": models})
        sys.stdout.flush()
    else:
        typer.echo(f"serving {', '.join(models)} on {address} (what can be asked: {address}/openapi.json)")
