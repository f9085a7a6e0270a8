"""The `clearhead` command: collects the verbs and turns every mistake into one sentence.

Exit codes: 0 done, 1 a failure of ours, 2 a mistake of the user's.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Annotated

import typer

from clearhead import __version__
from clearhead.cli import (
    bench,
    caption,
    classify,
    compare,
    config,
    data,
    demo,
    embed,
    eval,
    generate,
    look,
    models,
    pack,
    predict,
    serve,
    studio,
    train,
    translate,
    words,
)
from clearhead.errors import ClearheadError

STOPPED = 130  # what Ctrl-C exits with

app = typer.Typer(
    name="clearhead",
    help="Train, run, serve and look inside every transformer of the lectures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("train")(train.train)
app.command("resume")(train.resume)
app.command("eval")(eval.evaluate)
app.command("compare")(compare.compare)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("classify")(classify.classify)
app.command("caption")(caption.caption)
app.command("embed")(embed.embed)
app.command("predict")(predict.predict)
app.command("words")(words.words)
app.command("look")(look.look)
app.command("serve")(serve.serve)
app.command("studio")(studio.studio)
app.command("models")(models.models)
app.command("pack")(pack.pack)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, run, serve and look inside every transformer of the lectures."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads about every package there is
    sys.exit(_run([word for word in arguments if word != "--debug"], debug="--debug" in arguments))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        code = app(args=arguments, prog_name="clearhead", standalone_mode=False)
        sys.stdout.flush()
        return _fail("stopped", arguments, code, debug=False) if code == STOPPED else int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", arguments, STOPPED, debug=False)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        sys.stdout = None
        return 0
    except ClearheadError as mistake:
        return _fail(str(mistake), arguments, code=2, debug=debug)
    except typer.TyperException as mistake:  # an unknown option, a missing argument
        return _fail(_usage(mistake), arguments, code=2, debug=debug)
    except Exception as problem:
        sentence = f"unexpected {type(problem).__name__}: {problem}"
        return _fail(sentence + ("" if debug else " (--debug shows where)"), arguments, code=1, debug=debug)


def _usage(problem: typer.TyperException) -> str:
    """Typer's sentence, with the way to more."""
    context = getattr(problem, "ctx", None)
    command = context.command_path if context else "clearhead"
    sentence = problem.format_message().rstrip(".")
    if not sentence:  # no verb given: Typer has printed the help
        return ""
    return f"{sentence[0].lower()}{sentence[1:]}; see {command} --help"


def _fail(sentence: str, arguments: list[str], code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    if "--json" in arguments:
        sys.stderr.write(json.dumps({"error": sentence}, ensure_ascii=False) + "\n")
    elif sentence:
        sys.stderr.write(f"clearhead: {sentence}\n")
    return code
