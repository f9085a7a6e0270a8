"""The names of parts in a configuration."""

from __future__ import annotations

import pytest

from clearhead.errors import ConfigError
from clearhead.tasks import default_config, override_config


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.positions=rotaryy", r"model\.positions: unknown position rotaryy; did you mean rotary\?"),
        ("model.score=scaled", r"model\.score: unknown score scaled; did you mean scaled_dot\?"),
        ("model.norm=rsm", r"model\.norm: unknown norm rsm; did you mean rms\?"),
        ("model.placement=befor", r"model\.placement: unknown placement befor; did you mean before\?"),
        ("model.feed_forward=swiglue", r"model\.feed_forward: unknown feed_forward swiglue; did you mean swiglu\?"),
        ("model.cell=ltsm", r"model\.cell: unknown cell ltsm; did you mean lstm\?"),
    ],
)
def test_a_misspelt_part_suggests_the_nearest(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        override_config(default_config("translate"), [setting])


def test_a_misspelt_pool_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"model\.pool: unknown pool meen; did you mean mean\?"):
        override_config(default_config("classify"), ["model.pool=meen"])
