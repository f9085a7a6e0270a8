from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

import clearhead
from clearhead.cli import chat

Run = Callable[..., Any]
PLAY = "USER:\nWho is there?\n\nASSISTANT:\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_line_is_a_turn_and_the_history_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from clearhead.cli.main import main

    monkeypatch.setattr(sys, "stdin", io.StringIO("Who is there?\n\nAnd you?\n/exit\nNever read\n"))
    with pytest.raises(SystemExit) as ended:
        main(["chat", "shakespeare", "--max-tokens", "30", "--temperature", "0", "--system", "A play.", "--json"])
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)["messages"]
    assert [each["role"] for each in said] == ["system", "user", "assistant", "user", "assistant"]
    model = clearhead.load("shakespeare")
    assert "".join(model.chat(said[:4], max_tokens=30, temperature=0.0)).strip() == said[4]["content"]


def test_an_answer_ends_before_the_next_speaker() -> None:
    model = clearhead.load("shakespeare")
    asked = [{"role": "user", "content": "Who is there?"}]
    pieces = list(model.chat(asked, max_tokens=60, temperature=0.0))
    whole = model.generate(PLAY, max_tokens=60, temperature=0.0, stops=["\n\nUSER:"])
    assert PLAY + "".join(pieces) == whole


def test_ctrl_c_stops_an_answer_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def pieces() -> Any:
        yield "so far"
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert chat._answer(pieces(), silent=False) == "so far"
    assert capsys.readouterr().out == "so far\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        chat._answer(pieces(), silent=False)


def test_a_translator_cannot_chat(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from clearhead.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["chat", "en-es", "hello"])
    assert ended.value.code == 2
    assert "en-es: cannot chat: it is a translator" in capsys.readouterr().err
