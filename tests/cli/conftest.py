"""Commands as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from clearhead.cli.main import _run

Say = Callable[..., Any]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Type a command that succeeds, and read its JSON or its text."""

    def say(*words: str) -> Any:
        capsys.readouterr()
        assert _run(list(words), debug=False) == 0, capsys.readouterr().err
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return say
