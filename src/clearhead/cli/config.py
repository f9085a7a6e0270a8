"""`clearhead config show NAME`: every setting of a task or a file, with its value and its meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.output import Json, print_json

app = typer.Typer(help="See every setting and its default.", no_args_is_help=True)


@app.callback()
def _config() -> None:
    """See every setting and its default."""


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A task (translate, lm, classify, …) or a YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes: section.key=value …")] = None,
    size: Annotated[str, typer.Option(help="tiny, small or base.")] = "small",
    as_json: Json = False,
) -> None:
    """Print the whole configuration as YAML that can be saved and edited; each line says what it means."""
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
    """YAML with the meaning of each key as a comment, aligned."""
    section, rows = "", []
    for line in text.splitlines():
        key = line.split(":", 1)[0].strip()
        name = f"{section}.{key}" if line.startswith(" ") else key
        section = section if line.startswith(" ") else key
        rows.append((line, meanings.get(name, "")))
    width = max(len(line) for line, _ in rows) + 2
    return "\n".join(f"{line:<{width}}# {meaning}" if meaning else line for line, meaning in rows)
