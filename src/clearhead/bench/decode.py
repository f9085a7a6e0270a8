"""`clearhead bench decode`: milliseconds to translate with each of our engines, transformers and CTranslate2.

Every engine has the same random weights: the paper's Transformer in two sizes, 20 source tokens, exactly 30 steps, one
sentence and 16, greedy and with beam width 4. Each engine runs in its own process; it tries one thread, two, and for
many sentences two streams, and continues with the fastest. Then real text: sentences of Tatoeba with the model `en-es`.
`CLEARHEAD_CPU=avx2` keeps all engines, CTranslate2's too, from the wider instructions that a processor may have.

    B sentences, S source tokens
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor

from clearhead.bench.measure import MakeTurn, Measurement, Turn, side_by_side_apart
from clearhead.bench.peers import marian, translate
from clearhead.data import read
from clearhead.decode import Prompts, Settings, SpecialTokens, generate, generate_batch
from clearhead.engines.ct2 import PATIENCE, Ct2Engine, open_ct2
from clearhead.engines.ct2_export import export, library, numbers
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import cores, load_library
from clearhead.models.build import initialise
from clearhead.models.seq2seq import Seq2Seq
from clearhead.tasks.translate import TranslateModel, Translator

SOURCE, STEPS = 20, 30  # tokens, including the stop token of the source
THREADS = (1, 2)
TRIES = 2  # of each setting before the fastest is chosen
STOP = 3
SPECIAL = SpecialTokens(pad=0, start=2, stop=STOP)

TEXT_MODEL, SENTENCES, BEAMS, TEXT_ROUNDS = "en-es", 1000, 4, 3

OURS = "clearhead"  # the fastest float32 engine
TORCH, COMPILED, COMPILED_INT8 = "clearhead torch", "clearhead compiled", "clearhead compiled int8"
OUR_CT2 = "clearhead ct2"  # our engine: it searches longer than CTranslate2's default
TRANSFORMERS, CT2, CT2_INT8 = "transformers", "CTranslate2 float32", "CTranslate2 int8"


@dataclass(frozen=True)
class Size:
    """Sizes of a Transformer, rounds, and how many times as fast as transformers ours should be."""

    name: str
    layers: int
    dim: int
    inner: int
    heads: int
    vocabulary: int
    rounds: int
    times: float  # with our fastest engine
    times_torch: float  # with our torch engine

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Cell:
    """One cell of the table: sentences and beam width."""

    batch: int
    beams: int

    def __str__(self) -> str:
        return f"batch {self.batch}, " + (f"beam {self.beams}" if self.beams > 1 else "greedy")


SIZES = (
    Size("tiny", 4, 128, 256, 4, 8_000, rounds=11, times=5, times_torch=1.0),
    Size("base", 6, 512, 2048, 8, 32_000, rounds=3, times=1.6, times_torch=1.0),
)
CELLS = tuple(Cell(batch, beams) for batch in (1, 16) for beams in (1, 4))

Times = Mapping[str, float]  # milliseconds by engine

# How many times as fast as CTranslate2 ours should be, in float32 and in int8
CELL, MEAN, TEXT = 1.0, 1.3, 1.3  # in each cell, in the geometric mean of all cells, on real text

AVX2_ONLY = {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def run(peers: bool) -> Iterator[Measurement]:
    """The table of each size, then real text; a missing dataset fails first."""
    if os.environ.get("CLEARHEAD_CPU") == "avx2":
        os.environ.update(AVX2_ONLY)  # read by the processes that are started from here on
    sources = held_out(Translator.load(TEXT_MODEL), SENTENCES)
    tables: list[Times] = []
    for size in SIZES:
        table = {}
        for cell, taken in milliseconds(size, peers):
            table[cell] = taken
            yield from cell_results(size, cell, taken)
        yield from mean_results(size, table)
        tables += table.values()
    for ours, theirs in against_ct2(tables[0]):
        mean = statistics.geometric_mean(times_as_fast(taken, ours, theirs) for taken in tables)
        yield Measurement(f"all cells: {ours}, times as fast as {theirs}", mean, "×", MEAN, bound="at least")
    yield from text_results(text_milliseconds(peers, sources), len(sources))


class Tuned:
    """A turn that tunes itself: the first call warms up, the next ones try each setting, the rest use the fastest."""

    def __init__(self, settings: Sequence[Turn], tries: int = TRIES):
        self.settings = settings
        self.trials = [*range(len(settings))] * tries  # settings still to try
        self.fastest = [math.inf] * len(settings)
        self.cold = True

    def __call__(self) -> None:
        if self.cold:
            self.cold = False
            self.settings[0]()
        elif self.trials:
            setting = self.trials.pop(0)
            start = time.perf_counter()
            self.settings[setting]()
            self.fastest[setting] = min(self.fastest[setting], time.perf_counter() - start)
        else:
            self.settings[self.fastest.index(min(self.fastest))]()


# --- the same random weights in every engine ---


def milliseconds(size: Size, peers: bool, cells: Sequence[Cell] = CELLS) -> Iterator[tuple[Cell, dict[str, float]]]:
    """Median milliseconds by engine, cell by cell."""
    with TemporaryDirectory() as folder:
        if peers:
            export(network_of(size), numbers(size.vocabulary), folder, start=SPECIAL.start, stop=STOP)
        for cell in cells:
            trials = 1 + TRIES * (len(THREADS) + (cell.batch > 1))
            yield cell, side_by_side_apart(candidates(size, cell, peers, Path(folder)), size.rounds, warm_up=trials)


def candidates(size: Size, cell: Cell, peers: bool, folder: Path) -> dict[str, MakeTurn]:
    """Functions that make each engine's turn; `folder` holds the model for CTranslate2."""
    found: dict[str, MakeTurn] = {TORCH: partial(our_turn, size, cell, _itself)}
    if load_library() is not None:
        found[COMPILED] = partial(our_turn, size, cell, _compiled)
        found[COMPILED_INT8] = partial(our_turn, size, cell, partial(_compiled, int8=True))
    if peers:
        found[TRANSFORMERS] = partial(transformers_turn, size, cell)
        found[CT2] = partial(ct2_turn, size, cell, folder, "float32")
        found[CT2_INT8] = partial(ct2_turn, size, cell, folder, "int8")
    return found


def network_of(size: Size) -> Seq2Seq:
    """The paper's Transformer, always with the same random weights."""
    torch.manual_seed(1)
    config = TranslateModel(
        dim=size.dim,
        heads=size.heads,
        layers=size.layers,
        inner=size.inner,
        positions="sinusoidal",
        placement="after",
        feed_forward="relu",
    )
    network = Seq2Seq(config, size.vocabulary, SPECIAL.pad)
    initialise(network)
    return network.eval()


def sources_of(size: Size, cell: Cell) -> Tensor:
    """Random sentences (B, S), each ending in the stop token."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(STOP + 1, size.vocabulary, (cell.batch, SOURCE), generator=generator)
    ids[:, -1] = STOP
    return ids


def our_turn(size: Size, cell: Cell, engine: Callable[[Seq2Seq], Any]) -> Tuned:
    """Our engine with one thread, two threads, and two streams of half the sentences each."""
    stepper, source = engine(network_of(size)), sources_of(size, cell)
    turn = partial(generate_ids, stepper, source, cell.beams)
    settings = [partial(_with_threads, threads, turn) for threads in THREADS]
    if cell.batch > 1:
        settings.append(partial(_with_threads, 1, partial(_in_streams, stepper, source, cell.beams)))
    return Tuned(settings)


def _itself(network: Seq2Seq) -> Seq2Seq:
    return network


def _compiled(network: Seq2Seq, int8: bool = False) -> NativeEngine:
    code = load_library()
    assert code is not None
    return NativeEngine(network, code, int8=int8)


@torch.inference_mode()
def generate_ids(stepper: Any, source: Tensor, beams: int) -> list[list[int]]:
    """The ids that our engine generates for sources (B, S); without a stop token it makes every step."""
    prompts = Prompts([[SPECIAL.start]] * len(source))
    found = generate(stepper, stepper.start(source), prompts, Settings(max_tokens=STEPS, beam_width=beams))
    return [row[0].ids for row in found]


def _in_streams(stepper: Any, source: Tensor, beams: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda half: generate_ids(stepper, half, beams), source.chunk(2)))


def _with_threads(threads: int, turn: Turn) -> None:
    torch.set_num_threads(threads)
    turn()


def transformers_turn(size: Size, cell: Cell) -> Tuned:
    """`generate` of MarianMT with one thread and two."""
    model, source = marian(network_of(size), SPECIAL, SOURCE + STEPS), sources_of(size, cell)
    turn = partial(translate, model, source, cell.beams, STEPS)
    return Tuned([partial(_with_threads, threads, turn) for threads in THREADS])


def ct2_turn(size: Size, cell: Cell, folder: Path, compute: str) -> Tuned:
    """`translate_batch` with one thread, two threads, and two workers for half the sentences each."""
    # Without the stop token, which CTranslate2 adds.
    sentences = [[str(token) for token in row[:-1]] for row in sources_of(size, cell).tolist()]
    turns: list[Turn] = []
    for workers, threads in [(1, 1), (1, 2), *([(2, 1)] if cell.batch > 1 else [])]:
        model = library().Translator(str(folder), compute_type=compute, inter_threads=workers, intra_threads=threads)
        options = {"beam_size": cell.beams, "max_decoding_length": STEPS, "min_decoding_length": STEPS}
        most = cell.batch // workers
        turns.append(partial(model.translate_batch, sentences, max_batch_size=most, **options))
    return Tuned(turns)


def cell_results(size: Size, cell: Cell, taken: Times) -> Iterator[Measurement]:
    """Milliseconds of each engine, and the speed of ours relative to CTranslate2 in float32 and int8."""
    for name, each in taken.items():
        yield Measurement(f"{size}, {cell}: {name}", each, "ms", None, {"rounds": size.rounds})
    for ours, theirs in against_ct2(taken):
        what = f"{size}, {cell}: {ours}, times as fast as {theirs}"
        yield Measurement(what, times_as_fast(taken, ours, theirs), "×", CELL, bound="at least")


def against_ct2(taken: Times) -> list[tuple[str, str]]:
    """Which of ours is compared with which of CTranslate2's: our fastest float32 engine, and int8 with int8."""
    pairs = [(OURS, CT2), (COMPILED_INT8, CT2_INT8)]
    return [(ours, theirs) for ours, theirs in pairs if theirs in taken and (ours == OURS or ours in taken)]


def times_as_fast(taken: Times, ours: str, theirs: str) -> float:
    """The ratio of two engines, of which ours may be the fastest float32 one."""
    return taken[theirs] / (best(taken) if ours == OURS else taken[ours])


def mean_results(size: Size, table: Mapping[Cell, Times]) -> Iterator[Measurement]:
    """Speed of ours relative to transformers in float32: the geometric mean over the cells."""
    if not all(TRANSFORMERS in taken for taken in table.values()):
        return
    ours = {
        OURS: ([best(taken) for taken in table.values()], size.times),
        TORCH: ([taken[TORCH] for taken in table.values()], size.times_torch),
    }
    for name, (own, limit) in ours.items():
        times = [taken[TRANSFORMERS] / each for taken, each in zip(table.values(), own, strict=True)]
        detail = {"times as fast": dict(zip(map(str, table), times, strict=True))}
        mean = statistics.geometric_mean(times)
        yield Measurement(f"{size}: {name}, times as fast as transformers", mean, "×", limit, detail, bound="at least")


def best(taken: Times) -> float:
    """Milliseconds of our fastest float32 engine."""
    return min(taken[name] for name in (TORCH, COMPILED) if name in taken)


# --- real text ---


def text_milliseconds(peers: bool, sources: list[list[int]]) -> dict[str, float]:
    """Milliseconds of each engine to translate the sentences, from token ids to token ids."""
    model = Translator.load(TEXT_MODEL)
    by_threads = {f"{TORCH}, {threads} threads": partial(torch_text_turn, sources, threads) for threads in THREADS}
    turns: dict[str, MakeTurn] = {**by_threads}
    if load_library() is not None:
        turns[COMPILED] = partial(compiled_text_turn, sources, int8=False)
        turns[COMPILED_INT8] = partial(compiled_text_turn, sources, int8=True)
    with TemporaryDirectory() as folder:
        if peers:
            converted(model, Path(folder) / "ct2", sources[:5])
            turns[OUR_CT2] = partial(ct2_text_turn, sources, Path(folder) / "ct2", patience=PATIENCE)
            turns[CT2] = partial(ct2_text_turn, sources, Path(folder) / "ct2", patience=1.0)
            turns[CT2_INT8] = partial(ct2_text_turn, sources, Path(folder) / "ct2", patience=1.0, int8=True)
        taken = side_by_side_apart(turns, repeats=TEXT_ROUNDS, warm_up=1)
    return {TORCH: min(taken.pop(name) for name in by_threads), **taken}


def held_out(model: Translator, sentences: int) -> list[list[int]]:
    """Token ids of validation sentences, which the model was not trained on."""
    data = model.config.data
    pairs = read(data.path, kind="pairs", validation=data.validation).validation
    return model.tokenizer.encode_batch([pair.source for pair in islice(pairs, sentences)])


def special_of(model: Translator) -> SpecialTokens:
    """The special tokens of a model."""
    return SpecialTokens(model.tokenizer.pad, model.tokenizer.start, model.tokenizer.stop)


def converted(model: Translator, folder: Path, examples: Sequence[Sequence[int]] = (), int8: bool = False) -> Ct2Engine:
    """The model converted to CTranslate2."""
    names = model.engines.token_names()
    return open_ct2(cast(Any, model.network), names, special_of(model), folder, examples=examples, int8=int8)


def torch_text_turn(sources: list[list[int]], threads: int) -> Turn:
    """Our torch engine."""
    model = Translator.load(TEXT_MODEL)
    turn = partial(generate_batch, cast(Any, model.network), sources, special_of(model), Settings(beam_width=BEAMS))
    return partial(_with_threads, threads, turn)


def compiled_text_turn(sources: list[list[int]], int8: bool) -> Turn:
    """Our native engine with one stream per core."""
    model = Translator.load(TEXT_MODEL)
    stepper, special = _compiled(cast(Any, model.network), int8), special_of(model)
    turn = partial(generate_batch, stepper, sources, special, Settings(beam_width=BEAMS), threads=cores())
    return partial(_with_threads, 1, turn)


def ct2_text_turn(sources: list[list[int]], folder: Path, patience: float, int8: bool = False) -> Turn:
    """CTranslate2 with one worker per core."""
    model = Translator.load(TEXT_MODEL)
    engine = converted(model, folder, int8=int8)
    engine.patience = patience
    return partial(engine.generate_batch, sources, special_of(model), Settings(beam_width=BEAMS))


def text_results(taken: Times, sentences: int) -> Iterator[Measurement]:
    """Sentences per second of each engine, and the speed of ours relative to CTranslate2."""
    what = f"{TEXT_MODEL}, {sentences:,} sentences of Tatoeba, beam {BEAMS}"
    detail = {"transformers": "left out: its translation models have no rotary positions"}
    for name, each in taken.items():
        yield Measurement(f"{what}: {name}", 1000 * sentences / each, "sentences/s", None, detail)
    for ours, theirs in against_ct2(taken):
        ratio = times_as_fast(taken, ours, theirs)
        yield Measurement(f"{what}: {ours}, times as fast as {theirs}", ratio, "×", TEXT, bound="at least")
