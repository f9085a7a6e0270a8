"""`clearhead data`: check a dataset, or download a known one."""

from __future__ import annotations

import typer

from clearhead.cli import data_check, data_get

app = typer.Typer(help="Check a dataset, or download a known one.", no_args_is_help=True)
app.command("check")(data_check.check)
app.command("get")(data_get.get)
