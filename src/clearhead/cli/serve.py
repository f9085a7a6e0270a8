"""`clearhead serve MODEL ...`: trained models over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import CacheType, Json, Quantise, print_json
from clearhead.errors import ConfigError

Token = Annotated[
    str | None,
    typer.Option(envvar="CLEARHEAD_TOKEN", help="Token that clients must send; required unless --host is local."),
]


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Run directories or model names; NAME=MODEL renames one.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free port.")] = 8000,
    token: Token = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further host name that clients may use; repeat for several.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with a key in each line, or a client's name and its key.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), to serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key (PEM) of the certificate.")] = None,
    quantise: Quantise = None,
    batch: Annotated[int, typer.Option(min=1, help="Maximum batch size (texts or images).")] = 64,
    queue: Annotated[int, typer.Option(min=1, help="Maximum number of texts or images waiting per model.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.1, help="Request timeout in seconds.")] = 60.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of generated tokens per request.")] = 8192,
    prefix_cache: Annotated[
        int, typer.Option(min=0, help="Prompt tokens kept per model, for prompts that begin alike; 0 = none.")
    ] = 4096,
    cache_type: CacheType = None,
    client_requests: Annotated[
        int, typer.Option(min=0, help="Maximum number of requests in progress per client; 0 = no limit.")
    ] = 0,
    client_rate: Annotated[
        int, typer.Option(min=0, help="Maximum number of requests per client and minute; 0 = no limit.")
    ] = 0,
    grace: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the requests in progress after SIGTERM or Ctrl-C.")
    ] = 30.0,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Log every request as a line of JSON, to stderr.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve models over HTTP. Language models have OpenAI's API, every other task a route of its own.

    Ctrl-C or SIGTERM stops the service after the requests in progress are answered; a second one ends it at once.
    """
    try:
        from clearhead.serve.logs import log_as_json
        from clearhead.serve.registry import Service
        from clearhead.serve.security import Limits, read_keys
        from clearhead.serve.server import Address, run
    except ModuleNotFoundError as missing:
        raise ConfigError(f"serving needs {missing.name}: pip install 'clearhead[studio]'") from None

    keys = {} if api_key_file is None else read_keys(api_key_file)
    address = Address(host, port, token, allow_host or (), keys, tls_cert, tls_key)
    limits = Limits(
        rows=batch,
        queue=queue,
        seconds=seconds,
        tokens=max_tokens,
        prefixes=prefix_cache,
        client_requests=client_requests,
        client_rate=client_rate,
        grace=grace,
    )
    with address.listen() as listening:
        service = Service.load(models, limits, quantise, cache_type)
        _announce(address.url(listening), list(service.models), as_json)
        if log_json:
            log_as_json()
        run(service, address, listening)


def _announce(url: str, models: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"address": url, "models": models})
        sys.stdout.flush()
    else:
        typer.echo(f"serving {', '.join(models)} on {url} (all routes: {url}/openapi.json)")
