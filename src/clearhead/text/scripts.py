"""Scripts in which words stand side by side without spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # Japanese, Chinese
)


def is_without_spaces(texts: Iterable[str]) -> bool:
    """Whether most letters of some texts are of such a script.

    >>> is_without_spaces(["猫が好きです。", "犬も"]), is_without_spaces(["a cat"]), is_without_spaces([])
    (True, False, False)
    """
    joined = "".join(texts)
    return 2 * len(_WITHOUT_SPACES.findall(joined)) > sum(letter.isalpha() for letter in joined) > 0
