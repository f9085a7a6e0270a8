"""The `clearhead` command: registers the verbs and turns every error into one sentence.

Exit codes: 0 success, 1 a bug in Clearhead, 2 a mistake of the user's, 130 interrupted.
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
    chat,
    check,
    classify,
    compare,
    config,
    data,
    demo,
    embed,
    eval,
    export,
    generate,
    import_,
    look,
    merge,
    models,
    pack,
    predict,
    serve,
    studio,
    tag,
    train,
    translate,
    words,
)
from clearhead.errors import ClearheadError

INTERRUPTED = 130  # exit code after Ctrl-C

app = typer.Typer(
    name="clearhead",
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
app.command("chat")(chat.chat)
app.command("classify")(classify.classify)
app.command("tag")(tag.tag)
app.command("caption")(caption.caption)
app.command("embed")(embed.embed)
app.command("predict")(predict.predict)
app.command("words")(words.words)
app.command("look")(look.look)
app.command("serve")(serve.serve)
app.command("studio")(studio.studio)
app.command("models")(models.models)
app.command("merge")(merge.merge)
app.command("pack")(pack.pack)
app.command("import")(import_.import_)
app.command("check")(check.check)
app.command("export")(export.export)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Train, run, serve and look inside transformers, on your own data."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Searching for plugins would read the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(_run([word for word in arguments if word != "--debug"], debug="--debug" in arguments))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        arguments = _with_plugin_verb(arguments)
        code = app(args=arguments, prog_name="clearhead", standalone_mode=False)
        sys.stdout.flush()
        return _fail("stopped", arguments, code, debug=False) if code == INTERRUPTED else int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", arguments, INTERRUPTED, debug=False)
    except BrokenPipeError:  # the reader of the pipe, for example `head`, has closed it
        sys.stdout = None
        return 0
    except ClearheadError as error:
        return _fail(str(error), arguments, code=2, debug=debug)
    except typer.TyperException as error:  # an unknown option, a missing argument
        return _fail(_usage(error), arguments, code=2, debug=debug)
    except Exception as error:
        sentence = f"unexpected {type(error).__name__}: {error}"
        return _fail(sentence + ("" if debug else " (--debug shows where)"), arguments, code=1, debug=debug)


def _with_plugin_verb(arguments: list[str]) -> list[str]:
    """`clearhead sort MODEL …` as `clearhead predict MODEL …`, where a task from outside the package has that verb."""
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    if not arguments or arguments[0].startswith("-") or arguments[0] in known:
        return arguments
    from clearhead.tasks import TASKS

    outside = [name for name in TASKS.names() if name not in TASKS.builtin()]
    is_verb = any(TASKS[name].predictor.verb == arguments[0] for name in outside)
    return ["predict", *arguments[1:]] if is_verb else arguments


def _usage(error: typer.TyperException) -> str:
    """Typer's message as a sentence that points to --help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "clearhead"
    sentence = error.format_message().rstrip(".")
    if not sentence:  # no verb was given: Typer has printed the help
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
