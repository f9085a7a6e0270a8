"""`clearhead data`: look into a dataset, or fetch a known one."""

from __future__ import annotations

import typer

from clearhead.cli import data_check, data_get

app = typer.Typer(help="Look into data, or get some.", no_args_is_help=True)
app.command("check")(data_check.check)
app.command("get")(data_get.get)
