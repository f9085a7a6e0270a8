"""The engine `ct2`: CTranslate2 writes, from a copy of the model in its own format.

The copy is made once and kept beside the run. Before it is kept, its greedy answers are held against those of the
model: they may differ only where two tokens are equally likely. Settings that the library lacks, or takes otherwise
than we do, are refused.

    T tokens, V vocabulary
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from clearhead.decode import Hypothesis, Prompts, Settings, SpecialTokens, generate, generate_batch
from clearhead.decode.batch import source_limit
from clearhead.engines.threads import cores
from clearhead.errors import EngineError
from clearhead.interop.ct2 import POSITIONS, library, save, unique
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import Seq2Seq

ROWS = 32  # sources that a worker takes at a time
FINGERPRINT = "fingerprint.txt"  # in the folder of a copy: what it is a copy of
RANDOM_LENGTHS = (2, 5, 11)  # tokens of the random texts on which a copy is checked
WRITTEN = 16  # tokens that a language model goes on with in that check
PATIENCE = 2.0  # a search ends with so many finished hypotheses for each beam: by then it has nearly always our n best
TIE = 1e-3  # logits this close may come in another order, since sums are rounded otherwise

Network = Seq2Seq | LanguageModel


def open_ct2(
    network: Network,
    vocabulary: Sequence[str],
    special: SpecialTokens,
    folder: str | Path | None,
    *,
    examples: Sequence[Sequence[int]] = (),
    int8: bool = False,
) -> Ct2:
    """A network through CTranslate2, from its copy in a folder, which is made first where it is missing or old.

    `vocabulary` names every token (`interop.ct2.tokens_of`, or `numbers` without a tokenizer); `examples` are texts
    on which a new copy is checked beside random ones. Without a folder that can be written, the copy is not kept.
    """
    wanted, fingerprint = None if folder is None else Path(folder), fingerprint_of(network, vocabulary, special)
    if wanted is not None and _kept_fingerprint(wanted) == fingerprint:
        return Ct2(wanted, network, vocabulary, int8)
    with _workplace(wanted) as place:
        save(network, vocabulary, place, start=special.start, stop=special.stop)
        check(network, Ct2(place, network, vocabulary), special, examples)
        engine = Ct2(place, network, vocabulary, int8)  # it has read all of it into memory
        if wanted is not None:
            (place / FINGERPRINT).write_text(fingerprint, encoding="utf-8")
            _keep(place, wanted)
    return engine


@dataclass(frozen=True)
class _Job:
    """One source that is to be translated."""

    row: int
    source: list[str]
    longest: int  # tokens of its translation at most, the stop counted


class Ct2:
    """A model in CTranslate2, with one worker for each core, and one thread for each worker."""

    def __init__(self, folder: Path, network: Network, vocabulary: Sequence[str], int8: bool = False):
        self.translates = isinstance(network, Seq2Seq)
        kind = library().Translator if self.translates else library().Generator
        compute = "int8" if int8 else "float32"
        self.model = kind(str(folder), compute_type=compute, inter_threads=cores(), intra_threads=1)
        self.patience = PATIENCE
        self.names = unique(vocabulary)
        self.ids = {name: index for index, name in enumerate(self.names)}

    def generate_batch(
        self, sources: Sequence[Sequence[int]], special: SpecialTokens, settings: Settings
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, the best first, as `decode.generate_batch` gives them; of an empty one, empty.

        Log-probabilities are given only with `scored`. The library ends a search by a rule of its own (`PATIENCE`).
        """
        self._check("translate", settings)
        if special.stop in settings.prefix_tokens:
            raise _cannot(f"prefix_tokens with the stop token {special.stop} among them")
        jobs = [_Job(row, self._named(source), source_limit(source, settings)) for row, source in enumerate(sources)]
        jobs = sorted((job for job in jobs if job.source and job.longest), key=lambda job: job.longest)
        found = self._translated([jobs[first : first + ROWS] for first in range(0, len(jobs), ROWS)], settings)
        if settings.return_logprobs:
            found = self._scored(jobs, found, settings)
        return [found.get(row, [Hypothesis([])]) for row in range(len(sources))]

    def generate(self, ids: Sequence[int], settings: Settings) -> Iterator[int]:
        """The tokens that go on from a prompt, as they come; they end at the longest length alone."""
        self._check("generate", settings)
        yield from settings.prefix_tokens[: settings.max_tokens]
        room = settings.max_tokens - len(settings.prefix_tokens)
        if room > 0:
            with _in_one_sentence():
                yield from self._tokens(self._named([*ids, *settings.prefix_tokens]), room, settings)

    def _tokens(self, prompt: list[str], room: int, settings: Settings) -> Iterator[int]:
        never = [len(self.names)]  # a token that is none ends no text
        options = {"max_length": room, "end_token": never, **self._options(settings)}
        if settings.beam_width == 1:
            yield from (step.token_id for step in self.model.generate_tokens(prompt, **options))
            return
        options |= {
            "beam_size": settings.beam_width,
            "length_penalty": settings.length_penalty,
            "patience": self.patience,
        }
        [found] = self.model.generate_batch([prompt], include_prompt_in_result=False, **options)
        yield from found.sequences_ids[0]

    def _translated(self, chunks: list[list[_Job]], settings: Settings) -> dict[int, list[Hypothesis]]:
        """The hypotheses of each row. The rows of a chunk share the longest length of its last.

        What then became too long is cut, or searched for again with others of the same longest length.
        """
        found = self._answered(chunks, settings)
        late = [
            job
            for chunk in chunks
            for job in chunk
            if job.longest < chunk[-1].longest and any(len(each.ids) >= job.longest for each in found[job.row])
        ]
        if settings.beam_width == 1:
            return found | {job.row: [Hypothesis(found[job.row][0].ids[: job.longest])] for job in late}
        alike = [list(jobs) for _, jobs in groupby(late, key=lambda job: job.longest)]
        return found | self._answered(alike, settings)

    def _answered(self, chunks: list[list[_Job]], settings: Settings) -> dict[int, list[Hypothesis]]:
        """All chunks are asked for at once, so that no worker waits."""
        with _in_one_sentence():
            asked = [self._ask(chunk, settings) for chunk in chunks]
            answers = [answer.result() for chunk in asked for answer in chunk]
        jobs = [(job.row, chunk[-1].longest) for chunk in chunks for job in chunk]
        return {
            row: self._read(answer, longest, settings) for (row, longest), answer in zip(jobs, answers, strict=True)
        }

    def _ask(self, chunk: list[_Job], settings: Settings) -> list[Any]:
        """What will be the answers."""
        forced = [self._named(settings.prefix_tokens)] * len(chunk) if settings.prefix_tokens else None
        asked: list[Any] = self.model.translate_batch(
            [job.source for job in chunk],
            forced,
            asynchronous=True,
            beam_size=settings.beam_width,
            patience=self.patience,
            num_hypotheses=settings.beam_width,
            length_penalty=settings.length_penalty,
            max_input_length=0,  # nothing is cut
            max_decoding_length=chunk[-1].longest,
            min_decoding_length=0,
            return_scores=settings.beam_width > 1,
            **self._options(settings),
        )
        return asked

    def _read(self, answer: Any, longest: int, settings: Settings) -> list[Hypothesis]:
        """The best first, and finished ones before those that were cut at the longest length."""
        texts = [[self.ids[name] for name in names] for names in answer.hypotheses]
        if settings.beam_width == 1:
            return [Hypothesis(ids) for ids in texts]
        found = [Hypothesis(ids, score) for ids, score in zip(texts, answer.scores, strict=True)]
        return sorted(found, key=lambda each: (len(each.ids) == longest, -each.score))[: settings.n_best]

    def _scored(
        self, jobs: list[_Job], found: dict[int, list[Hypothesis]], settings: Settings
    ) -> dict[int, list[Hypothesis]]:
        """The same with the log-probability of every token, and of the stop where a text was not cut."""
        each = [(job, hypothesis) for job in jobs for hypothesis in found[job.row]]
        texts = [self._named(hypothesis.ids) for _, hypothesis in each]
        with _in_one_sentence():
            sources = [job.source for job, _ in each]
            answers = self.model.score_batch(sources, texts, max_input_length=0, max_batch_size=ROWS)
        scored: dict[int, list[Hypothesis]] = {}
        for (job, hypothesis), answer in zip(each, answers, strict=True):
            own = tuple(answer.log_probs[: job.longest])
            score = sum(own) / len(own) ** settings.length_penalty
            scored.setdefault(job.row, []).append(Hypothesis(hypothesis.ids, score, own))
        return scored

    def _options(self, settings: Settings) -> dict[str, Any]:
        """What translating and generating have in common."""
        options: dict[str, Any] = {
            "repetition_penalty": settings.repetition_penalty,
            "no_repeat_ngram_size": settings.no_repeat_ngram,
            "suppress_sequences": [[name] for name in self._named(settings.banned_tokens)],
        }
        if settings.temperature:
            options |= {
                "sampling_temperature": settings.temperature,
                "sampling_topk": settings.top_k or 0,  # 0: all
                "sampling_topp": settings.top_p,
            }
        return options

    def _check(self, ability: str, settings: Settings) -> None:
        if self.translates != (ability == "translate"):
            raise EngineError(f"this model cannot {ability}; give the engine ct2 one that can")
        for reason in _reasons_against(settings, self.translates):
            raise _cannot(reason)
        settings.check_vocabulary(len(self.names))

    def _named(self, ids: Sequence[int]) -> list[str]:
        return [self.names[index] for index in ids]


def _reasons_against(settings: Settings, translates: bool) -> Iterator[str]:
    """The settings that the library lacks or takes otherwise."""
    for name in ("coverage_penalty", "min_p"):
        if value := getattr(settings, name):
            yield f"{name}={value}"
    if settings.beam_groups > 1:
        yield f"beam_groups={settings.beam_groups}"
    if settings.temperature and settings.seed is not None:
        yield f"seed={settings.seed}: its workers draw as they come"
    if settings.return_logprobs and settings.repetition_penalty != 1:
        yield f"return_logprobs with repetition_penalty={settings.repetition_penalty}"
    if (
        settings.beam_width > 1
    ):  # it gives the share of what is forbidden to the rest, and counts nothing for what is forced
        for name in (
            "no_repeat_ngram",
            "repetition_penalty",
            "banned_tokens",
            *(("prefix_tokens",) if translates else ()),
        ):
            if getattr(settings, name) != getattr(Settings, name):
                yield f"{name}={getattr(settings, name)} with beam_width={settings.beam_width}: its texts would differ"
    if not translates:
        for name in ("no_repeat_ngram", "repetition_penalty"):
            if getattr(settings, name) != getattr(Settings, name):
                yield f"{name}={getattr(settings, name)} after a prompt, which it would not count"


def _cannot(what: str) -> EngineError:
    return EngineError(f"the engine ct2 cannot do {what}; use another engine")


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """What the library itself complains about."""
    try:
        yield
    except (RuntimeError, ValueError) as problem:
        raise EngineError(f"CTranslate2 cannot go on: {problem}; use another engine") from None


# --- the copy ---


def fingerprint_of(network: Network, vocabulary: Sequence[str], special: SpecialTokens) -> str:
    """The same for the same weights, settings and tokens, and the same version of the library."""
    facts = [library().__version__, network.config.model_dump_json(), list(vocabulary), special.start, special.stop]
    seen = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16)
    for name, weight in network.state_dict().items():
        seen.update(name.encode())
        seen.update(weight.detach().float().cpu().contiguous().numpy().data)
    return seen.hexdigest()


def _kept_fingerprint(folder: Path) -> str | None:
    try:
        return (folder / FINGERPRINT).read_text(encoding="utf-8")
    except OSError:
        return None


@contextmanager
def _workplace(folder: Path | None) -> Iterator[Path]:
    """A new folder, beside the one that is meant where that can be."""
    try:
        work = TemporaryDirectory(prefix=".ct2.", dir=None if folder is None else folder.parent)
    except OSError:
        work = TemporaryDirectory()
    with work as name:
        place = Path(name) / "model"
        place.mkdir()
        yield place


def _keep(place: Path, folder: Path) -> None:
    """The new copy instead of an old one; not where the folder is no copy, or cannot be written."""
    with suppress(OSError):
        if (folder / FINGERPRINT).is_file():
            shutil.rmtree(folder)
        place.rename(folder)


# --- the check ---


def check(network: Network, engine: Ct2, special: SpecialTokens, examples: Sequence[Sequence[int]] = ()) -> None:
    """Refuse a copy that says something else than the network, on random texts and on examples."""
    half = (network.config.max_length if network.config.positions == "learned" else POSITIONS) // 2
    known = [*_random_texts(len(engine.names), special), *examples]
    texts = [list(text[: half - 1]) for text in known if text]
    settings = Settings(max_tokens=min(WRITTEN, half))
    if isinstance(network, Seq2Seq):
        found = (generate_batch(network, texts, special, settings), engine.generate_batch(texts, special, settings))
        ours, theirs = ([row[0].ids for row in side] for side in found)
    else:
        ours = [generate(network, network.start(), Prompts([text]), settings)[0][0].ids for text in texts]
        theirs = [list(engine.generate(text, settings)) for text in texts]
    for text, own, other in zip(texts, ours, theirs, strict=True):
        _must_agree(network, special, text, own, other)


def _random_texts(size: int, special: SpecialTokens) -> list[list[int]]:
    """Any tokens but padding, which is never read."""
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(size, (length,), generator=drawn).tolist() for length in RANDOM_LENGTHS]
    return [[token for token in row if token != special.pad] for row in rows]


def _must_agree(network: Network, special: SpecialTokens, text: list[int], ours: list[int], theirs: list[int]) -> None:
    """Up to the first token that differs, which must be as likely as ours."""
    pairs = enumerate(zip_longest(ours, theirs, fillvalue=special.stop))
    place, other = next(((i, other) for i, (own, other) in pairs if own != other), (None, 0))
    if place is None:
        return
    logits = _next_logits(network, special, text, ours[:place])
    lost = float(logits.max() - logits[other])
    if lost > TIE:
        raise EngineError(
            f"the copy for CTranslate2 says token {other} where the model itself finds another likelier by {lost:.2g}; "
            "use another engine"
        )


@torch.inference_mode()
def _next_logits(network: Network, special: SpecialTokens, text: list[int], written: list[int]) -> Tensor:
    """What follows, (V,), after all that is written, (1, T)."""
    device = next(network.parameters()).device
    if isinstance(network, Seq2Seq):
        source, target = (
            torch.tensor([ids], device=device) for ids in ([*text, special.stop], [special.start, *written])
        )
        after: Tensor = network(source, target)[0, -1]
    else:
        after = network(torch.tensor([[*text, *written]], device=device))[0, -1]
    return after
