"""docs/extending.md shows the files that these tests run; tests/docs runs its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = re.findall(r'```python title="(\w+\.py)"\n(.*?)```\n', PAGE, re.S)


def test_every_kind_of_extension_is_shown() -> None:
    assert sorted(name for name, _ in FILES) == sorted(path.name for path in HERE.glob("*_plugin.py"))


@pytest.mark.parametrize(("name", "code"), FILES, ids=[name for name, _ in FILES])
def test_the_page_shows_the_file_that_is_tested(name: str, code: str) -> None:
    assert code == (HERE / name).read_text(encoding="utf-8")
