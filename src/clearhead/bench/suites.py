"""The benchmarks by name, and the packages that they compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

from clearhead.bench.measure import Measurement
from clearhead.errors import ConfigError, nearest


@dataclass(frozen=True)
class Suite:
    """Some figures that are measured together; the module is loaded, and torch with it, when they are."""

    module: str
    peers: tuple[str, ...] = ()  # packages that `--peers` measures too

    def run(self, peers: bool) -> Iterator[Measurement]:
        """Every figure, as soon as it is measured; with `peers` those of the other packages too."""
        run: Callable[[bool], Iterator[Measurement]] = import_module(self.module).run
        return run(peers)

    def versions(self) -> dict[str, str]:
        """Of the packages that were compared with."""
        return {package: version(package) for package in self.peers}


SUITES = {
    "core": Suite("clearhead.bench.core"),
    "look": Suite("clearhead.bench.look", peers=("transformers",)),
    "charlm": Suite("clearhead.bench.charlm", peers=("transformers",)),
    "decode": Suite("clearhead.bench.decode", peers=("ctranslate2", "transformers")),
    "serve": Suite("clearhead.bench.serve"),
    "start": Suite("clearhead.bench.start"),
    "train": Suite("clearhead.bench.train", peers=("transformers", "x-transformers")),
    "words": Suite("clearhead.bench.words", peers=("gensim",)),
}


def find(name: str, peers: bool) -> Suite:
    """The suite of a name; with `peers` only if all that it compares with is installed."""
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name}; {nearest(name, SUITES)}")
    suite = SUITES[name]
    absent = [package for package in suite.peers if find_spec(package.replace("-", "_")) is None]
    if peers and absent:
        raise ConfigError(
            f"bench {name} --peers compares with {' and '.join(absent)}, not installed here; "
            "pip install 'clearhead[peers]'"
        )
    return suite
