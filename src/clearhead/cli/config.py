"""`clearhead config show NAME`: every setting of a task or a recipe, with its value and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, print_json

app = typer.Typer(help="Show every setting, its default and its meaning.", no_args_is_help=True)


@app.callback()
def _config() -> None:
    """Show every setting, its default and its meaning."""


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A task (translate, lm, classify, …) or the path of a YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change: section.key=value …")] = None,
    size: Annotated[str, typer.Option(help="Model size of the defaults: tiny, small or base.")] = "small",
    as_json: Json = False,
) -> None:
    """Print all settings as YAML, each with its meaning, to save and edit."""
    from clearhead import config
    from clearhead.tasks import default_config, load_config, override_config

    is_file = name.endswith((".yaml", ".yml")) or Path(name).is_file()
    chosen = load_config(name) if is_file else default_config(name, size)
    chosen = override_config(chosen, overrides or [])
    if as_json:
        print_json(chosen.model_dump(mode="json"))
    else:
        typer.echo(_annotated(config.dump(chosen), {key: text for key, _, text in config.describe(chosen)}))


def _annotated(text: str, meanings: dict[str, str]) -> str:
    """YAML with the meaning of each key as an aligned comment."""
    section, rows = "", []
    for line in text.splitlines():
        key = line.split(":", 1)[0].strip()
        name = f"{section}.{key}" if line.startswith(" ") else key
        section = section if line.startswith(" ") else key
        rows.append((line, meanings.get(name, "")))
    width = max(len(line) for line, _ in rows) + 2
    return "\n".join(f"{line:<{width}}# {meaning}" if meaning else line for line, meaning in rows)
