"""Renders one chat template in a process of its own: `python chat_worker.py`, started by `chat_template.py`.

A template comes with a model that somebody else made. jinja2's sandbox keeps it from touching anything; that it neither
runs for ever nor fills the memory is kept by this process, which may be killed and whose memory is limited.

    standard input    a line of JSON with the template and the limits, then one with the variables of each request
    standard output   a line of JSON for each: {"text": …} or {"error": …}
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the assistant said, for training; here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_environment() -> ImmutableSandboxedEnvironment:
    """The environment in which Hugging Face's `apply_chat_template` renders."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as people write it: jinja2's own filter would escape < and >."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message: str) -> None:
    """What a template calls where it does not support a conversation."""
    raise TemplateError(message)


def limit_memory(size: int) -> None:
    """Let an allocation beyond so many bytes fail; not every system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main() -> None:
    """Answer requests until the input ends."""
    first = json.loads(sys.stdin.readline())
    limit_memory(first["memory"])
    try:
        template = make_environment().from_string(first["template"])
    except (TemplateError, RecursionError, MemoryError, ValueError) as problem:
        template, refused = None, f"it is not a template: {problem}"
    for line in sys.stdin:
        try:
            answer = {"error": refused} if template is None else {"text": template.render(**json.loads(line))}
            if len(answer.get("text", "")) > first["characters"]:
                answer = {"error": f"it writes more than {first['characters']:,} characters"}
        except MemoryError:
            answer = {"error": "it needs too much memory"}
        except Exception as problem:  # whatever a template may cause
            answer = {"error": f"{problem}" or type(problem).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
