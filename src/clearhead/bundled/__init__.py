"""The models that come with the package: each is a run directory in this folder, and its own files say what it is.

find("en-es")          a name, or the path of a run directory -> its path
bundled()              what there is, each with its title, its sizes and its scores
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import config as configuration
from clearhead.errors import RunError

FOLDER = Path(__file__).parent
NOT_SCORES = ("step", "part", "loss", "sample")


@dataclass(frozen=True)
class Description:
    """What a run directory says about itself."""

    name: str
    task: str
    title: str  # the first line of the card's text
    parameters: int | None
    size: int  # bytes of all files
    licence: str  # and whom to credit
    loss: float | None  # on the validation part, of the last evaluation; so are the scores
    scores: dict[str, float]
    sample: str  # what it wrote at that evaluation


def names() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.yaml"))


def bundled() -> list[Description]:
    """The models that come with the package, in the order of their names."""
    return [describe(FOLDER / name) for name in names()]


def find(model: str | Path) -> Path:
    """The run directory that is meant by a path or by a name; a directory that is there comes before a name."""
    place = Path(model)
    if place.is_dir():
        return place
    if str(place) in names():
        return FOLDER / place
    if place.exists():
        raise RunError(f"{model} is not a run directory: it is a file")
    raise RunError(
        f"no such run directory or model: {model};{_nearest(place)} "
        "`clearhead models` lists those that come with the package"
    )


def _nearest(place: Path) -> str:
    """The name most like an unknown one, among the models and the run directories at that place."""
    known = [*names(), *(str(path.parent) for path in place.parent.glob("*/config.yaml"))]
    close = difflib.get_close_matches(str(place), known, n=1)
    return f" did you mean {close[0]}?;" if close else ""


def describe(path: Path) -> Description:
    """What the files of a run directory say about it."""
    task = configuration.load(path / "config.yaml").task
    card = read_card(path)
    facts, measured = _facts(card), _last_evaluation(path)
    parameters = facts.get("parameters", "").replace(",", "")
    scores = {name: value for name, value in measured.items() if name not in NOT_SCORES}
    return Description(
        name=path.name,
        task=task,
        title=_title(card),
        parameters=int(parameters) if parameters.isdigit() else None,
        size=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        licence=facts.get("licence", ""),
        loss=measured.get("loss"),
        scores=scores,
        sample=measured.get("sample", ""),
    )


def read_card(path: Path) -> str:
    """The text of card.md."""
    try:
        return (path / "card.md").read_text(encoding="utf-8")
    except OSError:
        raise RunError(f"{path} has no card.md: a training writes it when it is finished") from None


def _title(card: str) -> str:
    """The first line of a card that is neither empty nor a heading."""
    return next((line for line in card.splitlines() if line.strip() and not line.startswith("#")), "")


def _facts(card: str) -> dict[str, str]:
    """The tables of a card: what the second column says about the first."""
    rows = [line.strip("|").split("|") for line in card.splitlines() if line.startswith("|")]
    return {row[0].strip(): row[1].strip() for row in reversed(rows) if len(row) > 1}  # the first one counts


def _last_evaluation(path: Path) -> dict[str, Any]:
    """The last line of metrics.jsonl about the validation part; nothing where there is none."""
    file = path / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    measured = (json.loads(line) for line in reversed(lines) if '"validation"' in line)
    return next((line for line in measured if line["part"] == "validation"), {})
