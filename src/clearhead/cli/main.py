"""The `clearhead` command: registers the verbs and turns every error into one sentence.

Exit codes: 0 success, 1 a bug in Clearhead, 2 a mistake of the user's, 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from clearhead import __version__
from clearhead.errors import ClearheadError

INTERRUPTED = 130  # exit code after Ctrl-C
VERBS = {  # by name: its file and function in clearhead.cli, and the first sentence of its docstring, for the help
    "train": ("train.train", "Train a model on your own data."),
    "resume": ("train.resume", "Continue an interrupted training, bit for bit."),
    "eval": ("eval.evaluate", "Score a finished model on held-out data."),
    "compare": ("compare.compare", "Compare finished runs of one task side by side."),
    "translate": ("translate.translate", "Translate texts, or every line of a file or of standard input."),
    "generate": ("generate.generate", "Generate a text that continues a prompt."),
    "chat": ("chat.chat", "Chat with a language model."),
    "classify": ("classify.classify", "Print the label of each text or image."),
    "tag": ("tag.tag", "Print the tag of each word of a text, one word per line."),
    "caption": ("caption.caption", "Print a sentence about an image."),
    "embed": ("embed.embed", "Print one vector for each text or image."),
    "predict": ("predict.predict", "Print what a model of any task answers to each item."),
    "words": ("words.words", "Print the words nearest to a word, or to king - man + woman."),
    "look": ("look.look", "Look inside a model."),
    "serve": ("serve.serve", "Serve models over HTTP."),
    "studio": ("studio.studio", "Open a page to use, look inside, change and train models."),
    "models": ("models.models", "List the models that come with Clearhead, or show one card."),
    "merge": ("merge.merge", "Add an adapter's updates to its base, or average two models."),
    "pack": ("pack.pack", "Copy a finished run without what only training needs."),
    "import": ("import_.import_", "Import a model that was trained elsewhere."),
    "check": ("check.check", "Test a model: causality, padding, cache, engines, tokenizer."),
    "export": ("export.export", "Write a model for another program, with its tokenizer and card."),
    "demo": ("demo.demo", "Train a small translator in two minutes and look inside it."),
    "bench": ("bench.bench", "Measure speed, memory and quality on this machine."),
    "config": ("config.app", "Show every setting, its default and its meaning."),
    "data": ("data.app", "Check a dataset, or download a known one."),
}

app = typer.Typer(name="clearhead", no_args_is_help=True, rich_markup_mode=None)


class Verb(TyperCommand):
    """A verb as the help lists it. Its file and its options are read when it is used: those of all take a while."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> Any:
        """The command itself."""
        assert self.name is not None
        file, function = VERBS[self.name][0].split(".")
        found = getattr(import_module(f"clearhead.cli.{file}"), function)
        alone = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=self.name)
        else:
            alone.command(self.name)(found)
        return get_group(alone).commands[self.name]


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
    # The system takes all memory back: to search it for garbage at the end would take as long as most commands.
    atexit.register(gc.freeze)
    sys.exit(_run([word for word in arguments if word != "--debug"], debug="--debug" in arguments))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        arguments = _with_plugin_verb(arguments)
        code = _command()(args=arguments, prog_name="clearhead", standalone_mode=False)
        sys.stdout.flush()
        return _fail("stopped", arguments, code, debug=False) if code == INTERRUPTED else int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", arguments, INTERRUPTED, debug=False)
    except BrokenPipeError:  # the reader of the pipe, for example `head`, has closed it
        sys.stdout = None
        return 0
    except ClearheadError as error:
        return _fail(_ARGUMENT.sub(_as_option, str(error)), arguments, code=2, debug=debug)
    except typer.TyperException as error:  # an unknown option, a missing argument
        return _fail(_usage(error), arguments, code=2, debug=debug)
    except Exception as error:
        sentence = f"unexpected {type(error).__name__}: {error}"
        return _fail(sentence + ("" if debug else " (--debug shows where)"), arguments, code=1, debug=debug)


def _command() -> TyperGroup:
    """`clearhead` with its own options and all verbs."""
    group = get_group(app)
    for name, (_, sentence) in VERBS.items():
        group.add_command(Verb(name, help=sentence))
    return group


def _with_plugin_verb(arguments: list[str]) -> list[str]:
    """`clearhead sort MODEL …` as `clearhead predict MODEL …`, where a task from outside the package has that verb."""
    if not arguments or arguments[0].startswith("-") or arguments[0] in VERBS:
        return arguments
    from clearhead.tasks import TASKS

    outside = [name for name in TASKS.names() if name not in TASKS.builtin()]
    is_verb = any(TASKS[name].predictor.verb == arguments[0] for name in outside)
    return ["predict", *arguments[1:]] if is_verb else arguments


_ARGUMENT = re.compile(r"(?<![\w-])(quantise|cache_type)=")  # of `load` in Python; here they are options


def _as_option(argument: re.Match[str]) -> str:
    return f"--{argument[1].replace('_', '-')} "


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
