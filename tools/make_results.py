"""Write the tables of results: `python tools/make_results.py [--check]`.

docs/results.md holds all figures, README.md a few of them after the markers `<!-- results -->` and `<!-- speed -->`.
They come from the cards of the models (src/clearhead/bundled/*/card.md, recipes/cards/*.md) and from benchmarks/*.json,
which `clearhead bench NAME --out` writes. `--check` compares the pages and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"

COLUMNS = 4  # of a table with a column per case
SHARES = ("accuracy", "macro F1", "exact match", "analogies")  # scores between 0 and 1

# What README.md shows: models with one score each; measurements with a sentence each.
BEST = {
    "en-es": "BLEU",
    "multi30k": "BLEU",
    "shakespeare": "loss",
    "digits": "accuracy",
    "sst2-pretrained": "accuracy",
}
FASTEST = [  # benchmark, figure, work, sentence
    (
        "lm",
        "Q4_1, decode 128: times llama.cpp",
        "generate with SmolLM2-135M, the same 4-bit file",
        "{} as fast as llama.cpp",
    ),
    (
        "decode",
        "base, batch 16, greedy: clearhead, times as fast as CTranslate2 float32",
        "translate 16 sentences with a base model, greedy",
        "{} as fast as CTranslate2",
    ),
    (
        "charlm",
        "training seconds, clearhead / transformers",
        "train a character model to the same loss",
        "{} the time of `transformers`",
    ),
    (
        "look",
        "GPT 12 × 768, 1,024 tokens: all weights and the answer / transformers with output_attentions",
        "compute all attention weights of a GPT, 1,024 tokens",
        "{} the time of `transformers`",
    ),
    ("serve", "64 clients: answers a second", "translations for 64 clients of `clearhead serve`", "{}"),
]

INTRODUCTION = """# Results

`python tools/make_results.py` writes this page from the [cards](../recipes/cards) of the models and from
[benchmarks/](../benchmarks). All of it was measured on a machine with two cores and no GPU."""

MODELS = """## Models

Each command trains the model again; `clearhead eval` scores it. The models in `bundled/` come with the package. Losses
are in nats per token or example. The cards have the signatures of the scores and the versions."""

SPEED = """## Speed and memory

`clearhead bench NAME` measures on your machine, which should be idle. With `--peers`
(`pip install --constraint constraints.txt '.[peers]'`) it also measures other packages, on the same work and in turns.
A limit is what the benchmark checks; a missed limit is marked."""

# --- cards ---


@dataclass(frozen=True)
class Card:
    """What the card of a model says."""

    name: str
    link: str  # from the root of the repository
    about: str  # "A translator, trained on Tatoeba: …"
    facts: dict[str, str]
    scores: dict[str, tuple[str, str]]  # value and signature

    @classmethod
    def read(cls, path: Path) -> Card:
        text = path.read_text(encoding="utf-8")
        _, name, body = re.split(r"^# (.+)\n", text, maxsplit=1, flags=re.MULTILINE)
        first, _, second = body.partition("## Scores on the validation part")
        scores = {score: (value, signature) for score, value, signature in _rows(second)}
        about = first.strip().splitlines()[0]
        return cls(name, path.relative_to(ROOT).as_posix(), about, dict(_rows(first)), scores)

    @property
    def size(self) -> str:
        return f"{int(self.facts['parameters'].replace(',', '')) / 1e6:.2f} M"

    @property
    def data(self) -> str:
        """What it was trained on, and for a translator from which language into which."""
        _, _, sides = self.facts["data"].partition(", ")
        return self.about.partition(", trained on ")[2].removesuffix(".") + (f"; {sides}" if sides else "")

    def score(self, name: str) -> str:
        value, signature = self.scores[name]
        text = f"{100 * float(value):.4g} %" if name in SHARES else value
        search = f" ({self.facts['search']})" if name == "BLEU" and "search" in self.facts else ""
        return f"{name} {text}{_examples(signature)}{search}"


def cards() -> list[Card]:
    """All cards, models of the package first."""
    bundled = sorted((ROOT / "src" / "clearhead" / "bundled").glob("*/card.md"))
    return [Card.read(path) for path in [*bundled, *sorted((ROOT / "recipes" / "cards").glob("*.md"))]]


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    """The cells of a Markdown table, without its head; a bar in a cell is written `\\|`."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for line in lines[2:]:
        yield tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def _examples(signature: str) -> str:
    """How many examples a score is of: ` of 2,017`."""
    counted = re.match(r"n:(\d+)", signature)
    return f" of {int(counted[1]):,}" if counted else ""


# --- benchmarks ---


@dataclass(frozen=True)
class Benchmark:
    """One file of benchmarks/."""

    name: str
    machine: dict[str, Any]
    figures: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Benchmark:
        document = json.loads(path.read_text(encoding="utf-8"))
        return cls(document["bench"], document["machine"], document["figures"])

    @property
    def command(self) -> str:
        peers = " --peers" if set(self.machine) - _MACHINE else ""
        return f"{self._variant}clearhead bench {self.name}{peers}"

    @property
    def title(self) -> str:
        return f"{self.name}, {self.machine['native']}" if self._variant else self.name

    @property
    def _variant(self) -> str:
        """What forced native code to use less than the processor has; empty where nothing did."""
        forced = "avx512_vnni" in self.machine.get("flags", "") and self.machine["native"] != "avx512"
        return f"CLEARHEAD_CPU={self.machine['native']} " if forced else ""

    @property
    def versions(self) -> str:
        """The machine and the versions, as one sentence."""
        m = self.machine
        peers = "".join(f", {name} {m[name]}" for name in m if name not in _MACHINE)
        native = "".join(f", {name} {m[name]}" for name in ("native", "flags") if m.get(name))
        cores = f"{m['cores']} cores" + (f", {m['threads']} of them used" if m["threads"] != m["cores"] else "")
        return f"{cores} ({m['system']}, {m['machine']}), Python {m['python']}, torch {m['torch']}{native}{peers}."

    def find(self, what: str) -> dict[str, Any]:
        for figure in self.figures:
            if figure["what"] == what:
                return figure
        raise SystemExit(f"benchmarks/{self.name}.json has no figure {what!r}: change FASTEST in tools/make_results.py")


_MACHINE = {"python", "torch", "threads", "cores", "machine", "system", "native", "flags"}


def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by the names of their files."""
    return {path.stem: Benchmark.read(path) for path in sorted((ROOT / "benchmarks").glob("*.json"))}


def measured(figure: dict[str, Any]) -> str:
    """Three significant digits and the unit: `0.785 ×`."""
    value = figure["value"]
    digits = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    unit = "/s" if figure["unit"] == "/s" else f" {figure['unit']}"
    return f"{digits}{unit}".rstrip()


def limit(figure: dict[str, Any]) -> str:
    """`≤ 1.05 ×`, and whether it was missed."""
    if figure["limit"] is None:
        return ""
    sign = "≥" if figure.get("bound") == "at least" else "≤"
    missed = ", missed" if figure.get("holds") is False else ""
    return f"{sign} {figure['limit']:g} {figure['unit']}".rstrip() + missed


def figure_tables(figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Cases that were measured alike share a table, a column each; every other figure is a row."""
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for figure in figures:
        case, _, what = figure["what"].rpartition(": ")
        cases.setdefault(case, {})[what] = figure
    alike: dict[tuple[str, ...], list[str]] = {}
    for case, whats in cases.items():
        alike.setdefault(tuple(whats), []).append(case)
    shared = {whats: group for whats, group in alike.items() if len(group) > 1 and len(whats) > 1}
    in_columns = {case for group in shared.values() for case in group}
    single = [figure for figure in figures if figure["what"].rpartition(": ")[0] not in in_columns]
    if single:
        yield table(("what", "measured", "limit"), [(each["what"], measured(each), limit(each)) for each in single])
    for whats, group in shared.items():
        for some in (group[i : i + COLUMNS] for i in range(0, len(group), COLUMNS)):
            yield table(("", *some), [(what, *(_cell(cases[case][what]) for case in some)) for what in whats])


def _cell(figure: dict[str, Any]) -> str:
    limited = limit(figure)
    return measured(figure) + (f" (limit {limited})" if limited else "")


# --- pages ---


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def results_page() -> str:
    """docs/results.md."""
    models = [
        (
            f"[`{card.name}`](../{card.link})",
            card.data,
            card.size,
            card.facts["steps"].removesuffix(" of training"),
            ", ".join(map(card.score, card.scores)),
            card.facts["command"],
        )
        for card in cards()
    ]
    head = ("model", "trained on", "parameters", "steps", "on the validation part", "command")
    parts = [INTRODUCTION, MODELS, table(head, models), SPEED]
    for benchmark in benchmarks().values():
        parts += [f"### {benchmark.title}", f"`{benchmark.command}` on {benchmark.versions}"]
        parts += figure_tables(benchmark.figures)
    return "\n\n".join(parts) + "\n"


def readme_tables() -> dict[str, str]:
    """The small tables of README.md by their marker."""
    by_name = {card.name: card for card in cards()}
    best = [
        (
            f"[`{name}`]({by_name[name].link})",
            by_name[name].about.removesuffix("."),
            by_name[name].size,
            by_name[name].score(score),
            f"`clearhead train recipes/{name}.yaml`",
        )
        for name, score in BEST.items()
    ]
    measurements = benchmarks()
    fastest = [
        (work, said.format(measured(measurements[bench].find(what))), f"`{measurements[bench].command}`")
        for bench, what, work, said in FASTEST
    ]
    return {
        "results": table(("model", "", "parameters", "on the validation part", "command"), best),
        "speed": table(("", "measured", "command"), fastest),
    }


def with_tables(page: str) -> str:
    """A page with its tables written anew."""
    for name, text in readme_tables().items():
        between = re.compile(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        page, count = between.subn(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"README.md needs one <!-- {name} --> and one <!-- end of {name} --> after it")
    return page


def pages() -> dict[Path, str]:
    """What each page should hold."""
    return {README: with_tables(README.read_text(encoding="utf-8")), RESULTS: results_page()}


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description="Write the tables of results from the cards and benchmarks.")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    check = parser.parse_args().check
    old = [path for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check and old:
        sys.exit(f"run tools/make_results.py: {', '.join(path.name for path in old)}")
    if not check:
        for path, text in pages().items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
