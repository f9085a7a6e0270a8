"""Measurements that anyone can repeat: each compares on this machine, in one run, and says what it saw."""

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
    """A benchmark; its module, and torch with it, is imported when it runs."""

    module: str
    peers: tuple[str, ...] = ()  # packages that `--peers` also measures

    def run(self, peers: bool) -> Iterator[Measurement]:
        """All measurements, each as soon as it is made; with `peers` those of other packages too."""
        run: Callable[[bool], Iterator[Measurement]] = import_module(self.module).run
        return run(peers)

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in self.peers}


MODULES = {"scikit-learn": "sklearn"}  # of packages that are not called like their module
SUITES = {
    "core": Suite("clearhead.bench.core"),
    "look": Suite("clearhead.bench.look", peers=("transformers",)),
    "charlm": Suite("clearhead.bench.charlm", peers=("transformers",)),
    "defaults": Suite("clearhead.bench.defaults", peers=("scikit-learn",)),
    "decode": Suite("clearhead.bench.decode", peers=("ctranslate2", "transformers")),
    "embed": Suite("clearhead.bench.embed", peers=("ctranslate2", "sentence-transformers", "transformers")),
    "lm": Suite("clearhead.bench.lm", peers=("xllamacpp",)),
    "serve": Suite("clearhead.bench.serve", peers=("xllamacpp", "transformers", "gguf", "openai")),
    "start": Suite("clearhead.bench.start"),
    "train": Suite("clearhead.bench.train", peers=("transformers", "x-transformers", "peft")),
    "words": Suite("clearhead.bench.words", peers=("gensim",)),
}


def find_suite(name: str, peers: bool) -> Suite:
    """The suite of that name; with `peers`, its packages must be installed."""
    if name not in SUITES:
        raise ConfigError(f"unknown benchmark {name}; {nearest(name, SUITES)}")
    suite = SUITES[name]
    missing = [package for package in suite.peers if find_spec(MODULES.get(package, package.replace("-", "_"))) is None]
    if peers and missing:
        raise ConfigError(
            f"bench {name} --peers compares with {' and '.join(missing)}, not installed here; "
            "pip install 'clearhead[peers]'"
        )
    return suite
