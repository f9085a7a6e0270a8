"""The languages of the Studio: `python tools/studio_languages.py` brings them up to date with its sentences.

It puts `studio/page/*.json` into the order of the sources, drops what is no longer said, and prints what each
language lacks. The sentences are those of the JavaScript, t("…"), and those that Python sends to the page; a text in
which Python fills in values is a pattern with {0}, {1}, …
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import get_args

from clearhead.data.readers import READERS
from clearhead.look.render.html import FOLDER as VIEWS
from clearhead.look.units import FEATURES
from clearhead.look.views.steps import examples
from clearhead.nn.positions import POSITIONS
from clearhead.run import bundled_names, describe, find
from clearhead.studio.app import PAGE
from clearhead.studio.lessons import LESSONS
from clearhead.studio.runs import KILLED, State
from clearhead.tasks import TASKS

PACKAGE = PAGE.parents[1]
CALL = re.compile(r"(?<![\w.])(t|tParts|plural)\(\s*")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
JOINED = re.compile(r"\s*\+\s*(?=\")")
ERRORS = {"RequestError": 2, "RunError": 0, "ProbeError": 0}  # the argument that has the message
CHANGING = ("look/changes.py", "look/interventions.py")
# errors from below the Studio that its readers meet most: words of each; the page says that the others are English
BELOW = {
    "run.py": ("no such run directory", "neither a run directory", "it has no config.yaml", "has no model yet"),
    "serve/errors.py": ("failed to answer",),
    "serve/inputs.py": ("not base64", "file is damaged", "this is not one of"),
    "serve/worker.py": ("is busy",),
    "tasks/base/predictor.py": ("cannot {1}", "no beams"),
    "tasks/words.py": ("for each word and no attention",),
    "look/views/induction.py": ("belong to a causal",),
    "look/views/lens.py": ("gives vectors", "has none"),
    "look/views/relevance.py": ("there is no answer {0}",),
}
NAMED = {"add": 2, "group": 2, "linear": 1, "products": 1, "shifted": 1, "gate": 0}  # the argument that has the name
METHODS = ("mean", "max", "min", "gradient", "ablation", "anything")
ORIGINS = ("bundled", "imported", "trained")


@cache
def every_sentence() -> dict[str, str]:
    """Each sentence, and where it comes from."""
    found: dict[str, str] = {}
    for file in sorted((*PAGE.glob("*.js"), *VIEWS.glob("*.js"))):
        for sentence in in_javascript(file.read_text(encoding="utf-8")):
            found.setdefault(sentence, file.name)
    for name, sentences in (
        ("words of Python", words()),
        ("errors", errors()),
        ("errors from below", below()),
        ("graph", graph()),
        ("equations", equations()),
    ):
        for sentence in sentences:
            if re.search("[A-Za-z]{2}", re.sub(r"{\d}", "", sentence)):
                found.setdefault(sentence, name)
    return found


def read(language: str) -> dict[str, str | dict[str, str]]:
    """The sentences of a language; those of a number have their plural forms: {"one": …, "other": …}."""
    found: dict[str, str | dict[str, str]] = json.loads((PAGE / f"{language}.json").read_text(encoding="utf-8"))
    return found


def update() -> None:
    """Put every language into order, and print what it lacks."""
    wanted = every_sentence()
    for file in sorted(PAGE.glob("*.json")):
        known = read(file.stem)
        kept = {sentence: known[sentence] for sentence in wanted if sentence in known}
        file.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        missing = {sentence: "" for sentence in wanted if sentence not in known}
        print(f"{file.stem}: {len(known) - len(kept)} dropped, {len(missing)} missing")
        if missing:
            print(json.dumps(missing, ensure_ascii=False, indent=1))


def in_javascript(text: str, *only: str) -> Iterator[str]:
    """The sentences of t("…"), tParts("…") and plural("…", "…"); the key of a plural is its second form."""
    for call in CALL.finditer(text):
        sentence, at = _literal(text, call.end())
        if sentence is None or (only and call[1] not in only):
            continue
        if call[1] == "plural":
            sentence, _ = _literal(text, re.compile(r"\s*,\s*").match(text, at).end())  # type: ignore[union-attr]
        assert sentence is not None
        yield sentence


def _literal(text: str, at: int) -> tuple[str | None, int]:
    """The string that stands here, in one or several parts, and where it ends."""
    parts = []
    while found := STRING.match(text, at):
        parts.append(json.loads(found[0]))
        at = found.end()
        if (more := JOINED.match(text, at)) is None:
            break
        at = more.end()
    return ("".join(parts) if parts else None), at


def words() -> Iterator[str]:
    """What the page translates by its name."""
    for lesson in LESSONS:
        yield from (lesson.title, lesson.summary, *([lesson.lectures] if lesson.lectures.islower() else []))
    for example in examples():
        yield from (example.name, example.about)
    for task in (TASKS[name] for name in TASKS.builtin()):
        reader = READERS[task.data_kind]
        yield from (
            task.name,
            task.title,
            f"{task.title}, trained on {{0}}.",
            reader.title,
            reader.unit,
            task.data_kind,
        )
    yield from (describe(find(name)).title for name in bundled_names())
    yield from (*FEATURES, *POSITIONS.builtin(), *get_args(State), *METHODS, *ORIGINS, KILLED, "characters")
    yield from _steps()
    yield from _faults()
    yield from _scores()


def _steps() -> Iterator[str]:
    """The names of the steps of attention."""
    for node in ast.walk(_tree("look/views/steps.py")):
        if isinstance(node, ast.Call) and _name(node) in ("_step", "_Sublayer"):
            yield from _texts(node.args[0])


def _faults() -> Iterator[str]:
    """What can look wrong in data."""
    for file in ("data/lint.py", "data/check.py"):
        for node in ast.walk(_tree(file)):
            if isinstance(node, ast.Call) and _name(node) == "Fault":
                yield from _texts(node.args[0])
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant | ast.JoinedStr):
                yield from _texts(node.value)


def _scores() -> Iterator[str]:
    """The names of the scores that tasks have; some come from sacrebleu, and stay as they are."""
    for file in sorted((PACKAGE / "tasks").rglob("*.py")):
        for node in ast.walk(_tree(file.relative_to(PACKAGE).as_posix())):
            if isinstance(node, ast.Call) and _name(node) == "Score":
                yield from _texts(node.args[0])


def errors() -> Iterator[str]:
    """The errors of the Studio's own routes, and of the changes that they make inside a model."""
    files = [*sorted((PACKAGE / "studio").glob("*.py")), *(PACKAGE / name for name in CHANGING)]
    for file in files:
        tree = _tree(file.relative_to(PACKAGE).as_posix())
        assigned = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node) in ERRORS and len(node.args) > ERRORS[_name(node)]:
                message = node.args[ERRORS[_name(node)]]
                if isinstance(message, ast.Name):
                    message = assigned[message.id]
                yield from _texts(message)


def below() -> Iterator[str]:
    """The commonest errors of other layers."""
    for file, wanted in BELOW.items():
        calls = [node for node in ast.walk(_tree(file)) if isinstance(node, ast.Call) and _name(node).endswith("Error")]
        said = list(dict.fromkeys(text for call in calls for arg in call.args for text in _texts(arg)))
        for words in wanted:
            (found,) = (text for text in said if words in text)
            yield found


def graph() -> Iterator[str]:
    """Names and explanations of what the X-ray draws."""
    for file in sorted((PACKAGE / "look/graph").glob("*.py")):
        for node in ast.walk(_tree(f"look/graph/{file.name}")):
            if isinstance(node, ast.Call) and len(node.args) > NAMED.get(_name(node), 99):
                yield from _texts(node.args[NAMED[_name(node)]])
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("name", "title", "about"):
                yield from _texts(node.value)
            elif isinstance(node, ast.Constant | ast.JoinedStr) and not isinstance(node, ast.Expr):
                yield from (text for text in _texts(node) if re.fullmatch(r"[A-Zφ].* .*[.]", text))


def equations() -> Iterator[str]:
    """The equations that have words in them."""
    for file in (PACKAGE / "look/views/steps.py", *sorted((PACKAGE / "look/graph").glob("*.py"))):
        for node in ast.walk(_tree(file.relative_to(PACKAGE).as_posix())):
            match node:
                case ast.Assign(targets=[ast.Name("equation")], value=value) | ast.keyword("equation", value):
                    yield from (text for text in _texts(value) if re.search("[a-z]{2,} [a-z]{2,}", text))


@cache
def _tree(file: str) -> ast.Module:
    """A file of the package without its docstrings."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_docstring(each)]  # type: ignore[attr-defined]
    return tree


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _texts(node: ast.AST) -> Iterator[str]:
    """The strings of an expression; what is filled in is numbered."""
    match node:
        case ast.Constant(value=str(text)):
            if re.search("[A-Za-z]{2}", text):
                yield text
        case ast.JoinedStr(values=parts):
            number = iter(range(10))
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"{{{next(number)}}}" for part in parts
            )
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=args):
            yield from (*_texts(table), *(each for arg in args[1:] for each in _texts(arg)))
        case ast.Subscript(value=ast.Dict() as table):
            yield from _texts(table)
        case ast.Dict(values=values):
            yield from (each for value in values for each in _texts(value))


if __name__ == "__main__":
    update()
