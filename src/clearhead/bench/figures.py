"""What a benchmark says: one thing measured, what it should be, and whether it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """One thing measured, what it should be, and the numbers behind it."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    bound: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool | None:
        """On the right side of its limit, where it has one."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit

    @property
    def wanted(self) -> str:
        """The limit as people write it: `≤ 1.05 ×`."""
        sign = {"at most": "≤", "at least": "≥"}[self.bound]
        return "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}".rstrip()

    def document(self) -> dict[str, Any]:
        """For `--json` and `--out`."""
        return {**asdict(self), "holds": self.holds}
