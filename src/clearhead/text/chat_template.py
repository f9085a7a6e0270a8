"""Chats: messages -> the prompt that a model continues.

    template = chat_template(tokenizer)              its own, or that of a play for a model that has none
    template.render([{"role": "user", "content": "Who are you?"}])

A model's own template is rendered by jinja2's sandbox in another process (`chat_worker.py`), for at most some seconds
and megabytes; it gives what Hugging Face's `apply_chat_template` gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Protocol

from clearhead.errors import TextError
from clearhead.text.tokenizer import Tokenizer

Message = Mapping[str, Any]  # "role": system, user or assistant; "content"

SECONDS = 10.0  # for one rendering, the start of the process included
MEMORY = 1 << 30  # bytes of address space
CHARACTERS = 1 << 20  # of a rendered chat
WORKER = Path(__file__).with_name("chat_worker.py")
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTemplate(Protocol):
    """How a conversation becomes a prompt."""

    stops: tuple[str, ...]  # strings that end an answer, beside the model's own stop token
    has_special: bool  # the prompt spells special tokens, which must be encoded as such

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, which ends where the assistant is to speak."""


class PlayTemplate:
    """The form of a play, for a model that learned no other form of conversation; the next speaker ends an answer."""

    stops: tuple[str, ...] = ("\n\nUSER:",)
    has_special = False

    def render(self, messages: Sequence[Message]) -> str:
        text = "".join(f"{(each.get('name') or each['role']).upper()}:\n{each['content']}\n\n" for each in messages)
        return f"{text}ASSISTANT:\n"


class JinjaTemplate:
    """A model's own template; `tokens` are the special tokens that it can name, `bos_token` and others."""

    stops: tuple[str, ...] = ()
    has_special = True

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, seconds: float = SECONDS):
        self.source, self.tokens, self.seconds = source, dict(tokens or {}), seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        variables = {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        answer = self._ask({**self.tokens, "tools": None, "documents": None, **variables})
        if "error" in answer:
            raise TextError(f"the model's chat template refuses this conversation: {answer['error']}")
        return str(answer["text"])

    def _ask(self, variables: Mapping[str, Any]) -> dict[str, str]:
        """One request to the worker, which is started for the first and stopped if it does not answer in time."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            timer = Timer(self.seconds, process.kill)
            timer.start()
            try:
                process.stdin.write(json.dumps(variables) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:  # it was stopped while it read
                line = ""
            finally:
                timer.cancel()
            if not line:
                self.close()
                return {"error": f"it takes more than {self.seconds:g} seconds or too much memory"}
            answer: dict[str, str] = json.loads(line)
            return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            assert self._process.stdin is not None
            first = {"template": self.source, "memory": MEMORY, "characters": CHARACTERS}
            self._process.stdin.write(json.dumps(first) + "\n")
        return self._process

    def close(self) -> None:
        """Stop the worker."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it did not read is lost
                    if pipe is not None:
                        pipe.close()

    def __del__(self) -> None:
        self.close()


def chat_template(tokenizer: Tokenizer) -> ChatTemplate:
    """The template of a model's tokenizer, or the form of a play."""
    config: Mapping[str, Any] = tokenizer.config
    source = config.get("chat_template")
    if isinstance(source, list):  # several by name, as some models have them for tools
        named = {each["name"]: each["template"] for each in source}
        source = named.get("default", next(iter(named.values()), None))
    if not source:
        return PlayTemplate()
    tokens = {role: config[role] for role in ROLES if config.get(role)}
    return JinjaTemplate(
        source, {role: token["content"] if isinstance(token, dict) else token for role, token in tokens.items()}
    )


def encode_chat(tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message]) -> list[int]:
    """The tokens of a conversation; in a model's own template special tokens are spelled out."""
    text = template.render(messages)
    encode = tokenizer.encode_special if template.has_special else tokenizer.encode
    ids: list[int] = encode(text)
    return ids or [tokenizer.start]
