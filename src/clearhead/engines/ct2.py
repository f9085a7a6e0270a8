"""The engine `ct2`: CTranslate2 generates, from a copy of the model in its own format.

The copy is made once and kept beside the run. Before it is kept, its greedy texts are compared with those of the
network: they may differ only where two tokens are equally likely. Settings that the library lacks, or implements
differently, are refused.

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
from clearhead.decode.loop import source_limit
from clearhead.engines.ct2_export import POSITIONS, export, library, unique
from clearhead.engines.native.library import cores
from clearhead.errors import EngineError
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import Seq2Seq
from clearhead.nn.positions import length_limit

BATCH = 32  # sources that a worker takes at a time
FINGERPRINT = "fingerprint.txt"  # in the folder of a copy: what it is a copy of
RANDOM_LENGTHS = (2, 5, 11)  # tokens of the random texts on which a copy is checked
CHECKED_TOKENS = 16  # that a language model generates in that check
PATIENCE = 2.0  # a search ends with this many finished hypotheses per beam: then it nearly always has our n best
TIE = 1e-3  # logits this close may change their order by rounding

Network = Seq2Seq | LanguageModel


def open_ct2(
    network: Network,
    token_names: Sequence[str],
    special: SpecialTokens,
    folder: str | Path | None,
    *,
    examples: Sequence[Sequence[int]] = (),
    int8: bool = False,
) -> Ct2Engine:
    """A network in CTranslate2, from its copy in a folder, which is made first where it is missing or outdated.

    `token_names` has a name for every token (`ct2_export.numbers` without a tokenizer); `examples` are texts on which a
    new copy is checked besides random ones. Without a folder that can be written, the copy is not kept.
    """
    if special.stop is None:
        raise _unsupported("a model without a token that ends a text")
    path, fingerprint = None if folder is None else Path(folder), fingerprint_of(network, token_names, special)
    if path is not None and _stored_fingerprint(path) == fingerprint:
        return Ct2Engine(path, network, token_names, int8)
    with _temporary_folder(path) as temporary:
        export(network, token_names, temporary, start=special.start, stop=special.stop)
        check(network, Ct2Engine(temporary, network, token_names), special, examples)
        engine = Ct2Engine(temporary, network, token_names, int8)  # has read all of it into memory
        if path is not None:
            (temporary / FINGERPRINT).write_text(fingerprint, encoding="utf-8")
            _keep(temporary, path)
    return engine


@dataclass(frozen=True)
class _SourceJob:
    """One source to translate."""

    row: int
    source: list[str]
    limit: int  # tokens of its translation, the stop token included


class Ct2Engine:
    """A model in CTranslate2, with one worker per core and one thread per worker."""

    def __init__(self, folder: Path, network: Network, token_names: Sequence[str], int8: bool = False):
        self.translates = isinstance(network, Seq2Seq)
        kind = library().Translator if self.translates else library().Generator
        compute = "int8" if int8 else "float32"
        self.model = kind(str(folder), compute_type=compute, inter_threads=cores(), intra_threads=1)
        self.patience = PATIENCE
        self.names = unique(token_names)
        self.ids = {name: index for index, name in enumerate(self.names)}

    def generate_batch(
        self, sources: Sequence[Sequence[int]], special: SpecialTokens, settings: Settings
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, the best first, like `decode.generate_batch`; empty for an empty source.

        Log-probabilities are returned only with `return_logprobs`. The library has its own rule for ending a search
        (`PATIENCE`).
        """
        self._check("translate", settings)
        if special.stop in settings.prefix_tokens:
            raise _unsupported(f"prefix_tokens with the stop token {special.stop} among them")
        jobs = [
            _SourceJob(row, self._named(source), source_limit(source, settings)) for row, source in enumerate(sources)
        ]
        jobs = sorted((job for job in jobs if job.source and job.limit), key=lambda job: job.limit)
        found = self._translated([jobs[first : first + BATCH] for first in range(0, len(jobs), BATCH)], settings)
        if settings.return_logprobs:
            found = self._scored(jobs, found, settings)
        return [found.get(row, [Hypothesis([])]) for row in range(len(sources))]

    def stream(self, prompt: Sequence[int], settings: Settings, stop: int | None = None) -> Iterator[int]:
        """The tokens that continue a prompt, as they come, up to the stop token or max_tokens."""
        self._check("generate", settings)
        for token in self._continued(prompt, settings, stop):
            if token == stop:
                return
            yield token

    def _continued(self, prompt: Sequence[int], settings: Settings, stop: int | None) -> Iterator[int]:
        """The prefix, then what the library generates; the stop token may be the last."""
        prefix = settings.prefix_tokens[: settings.max_tokens]
        yield from prefix
        room = settings.max_tokens - len(prefix)
        if room > 0:
            with _as_engine_error():
                yield from self._tokens(self._named([*prompt, *prefix]), room, settings, stop)

    def _tokens(self, prompt: list[str], room: int, settings: Settings, stop: int | None) -> Iterator[int]:
        end = len(self.names) if stop is None else stop  # no token has the first id after the vocabulary
        options = {"max_length": room, "end_token": [end], **self._options(settings)}
        if settings.beam_width == 1:
            yield from (step.token_id for step in self.model.generate_tokens(prompt, **options))
            return
        options |= {"beam_size": settings.beam_width, "length_penalty": settings.length_penalty}
        [found] = self.model.generate_batch([prompt], include_prompt_in_result=False, patience=self.patience, **options)
        yield from found.sequences_ids[0]

    def _translated(self, chunks: list[list[_SourceJob]], settings: Settings) -> dict[int, list[Hypothesis]]:
        """The hypotheses of each row. The rows of a chunk share the limit of its last.

        Texts that became too long are cut, or searched again together with others of the same limit.
        """
        found = self._answered(chunks, settings)
        late = [
            job
            for chunk in chunks
            for job in chunk
            if job.limit < chunk[-1].limit and any(len(each.ids) >= job.limit for each in found[job.row])
        ]
        if settings.beam_width == 1:
            return found | {job.row: [Hypothesis(found[job.row][0].ids[: job.limit])] for job in late}
        alike = [list(jobs) for _, jobs in groupby(late, key=lambda job: job.limit)]
        return found | self._answered(alike, settings)

    def _answered(self, chunks: list[list[_SourceJob]], settings: Settings) -> dict[int, list[Hypothesis]]:
        """All chunks are submitted at once, so that no worker waits."""
        with _as_engine_error():
            submitted = [self._submit(chunk, settings) for chunk in chunks]
            answers = [answer.result() for chunk in submitted for answer in chunk]
        jobs = [(job.row, chunk[-1].limit) for chunk in chunks for job in chunk]
        return {row: self._read(answer, limit, settings) for (row, limit), answer in zip(jobs, answers, strict=True)}

    def _submit(self, chunk: list[_SourceJob], settings: Settings) -> list[Any]:
        """One future for each source."""
        prefixes = [self._named(settings.prefix_tokens)] * len(chunk) if settings.prefix_tokens else None
        futures: list[Any] = self.model.translate_batch(
            [job.source for job in chunk],
            prefixes,
            asynchronous=True,
            beam_size=settings.beam_width,
            patience=self.patience,
            num_hypotheses=settings.beam_width,
            length_penalty=settings.length_penalty,
            max_input_length=0,  # nothing is cut
            max_decoding_length=chunk[-1].limit,
            min_decoding_length=0,
            return_scores=settings.beam_width > 1,
            **self._options(settings),
        )
        return futures

    def _read(self, answer: Any, limit: int, settings: Settings) -> list[Hypothesis]:
        """The best first, and finished hypotheses before cut ones."""
        texts = [[self.ids[name] for name in names] for names in answer.hypotheses]
        if settings.beam_width == 1:
            return [Hypothesis(ids) for ids in texts]
        found = [Hypothesis(ids, score) for ids, score in zip(texts, answer.scores, strict=True)]
        return sorted(found, key=lambda each: (len(each.ids) == limit, -each.score))[: settings.n_best]

    def _scored(
        self, jobs: list[_SourceJob], found: dict[int, list[Hypothesis]], settings: Settings
    ) -> dict[int, list[Hypothesis]]:
        """The hypotheses with the log-probability of every token, the stop token included where a text was not cut."""
        each = [(job, hypothesis) for job in jobs for hypothesis in found[job.row]]
        texts = [self._named(hypothesis.ids) for _, hypothesis in each]
        with _as_engine_error():
            sources = [job.source for job, _ in each]
            answers = self.model.score_batch(sources, texts, max_input_length=0, max_batch_size=BATCH)
        scored: dict[int, list[Hypothesis]] = {}
        for (job, hypothesis), answer in zip(each, answers, strict=True):
            logprobs = tuple(answer.log_probs[: job.limit])
            score = sum(logprobs) / len(logprobs) ** settings.length_penalty
            scored.setdefault(job.row, []).append(Hypothesis(hypothesis.ids, score, logprobs))
        return scored

    def _options(self, settings: Settings) -> dict[str, Any]:
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
        for reason in _unsupported_settings(settings, self.translates):
            raise _unsupported(reason)
        settings.check_vocabulary(len(self.names))

    def _named(self, ids: Sequence[int]) -> list[str]:
        return [self.names[index] for index in ids]


def _unsupported_settings(settings: Settings, translates: bool) -> Iterator[str]:
    """The settings that the library lacks or implements differently."""
    for name in ("coverage_penalty", "min_p", "presence_penalty", "frequency_penalty"):
        if value := getattr(settings, name):
            yield f"{name}={value}"
    if settings.beam_groups > 1:
        yield f"beam_groups={settings.beam_groups}"
    if settings.temperature and settings.seed is not None:
        yield f"seed={settings.seed}: its workers sample in any order"
    if settings.return_logprobs and settings.repetition_penalty != 1:
        yield f"return_logprobs with repetition_penalty={settings.repetition_penalty}"
    if settings.beam_width > 1:  # it renormalises after banning tokens, and scores a prefix as certain
        names = ("no_repeat_ngram", "repetition_penalty", "banned_tokens")
        for name in (*names, "prefix_tokens") if translates else names:
            if getattr(settings, name) != getattr(Settings, name):
                yield f"{name}={getattr(settings, name)} with beam_width={settings.beam_width}: its texts would differ"
    if not translates:
        for name in ("no_repeat_ngram", "repetition_penalty"):
            if getattr(settings, name) != getattr(Settings, name):
                yield f"{name}={getattr(settings, name)} after a prompt, which it would ignore"


def _unsupported(setting: str) -> EngineError:
    return EngineError(f"the engine ct2 does not support {setting}; use another engine")


@contextmanager
def _as_engine_error() -> Iterator[None]:
    """Turn the errors of the library into one sentence."""
    try:
        yield
    except (RuntimeError, ValueError) as problem:
        raise EngineError(f"CTranslate2 failed: {problem}; use another engine") from None


# --- the copy ---


def fingerprint_of(network: Network, token_names: Sequence[str], special: SpecialTokens) -> str:
    """A hash of weights, configuration, tokens and the version of the library."""
    depends_on = [
        library().__version__,
        network.config.model_dump_json(),
        list(token_names),
        special.start,
        special.stop,
    ]
    digest = hashlib.blake2b(json.dumps(depends_on).encode(), digest_size=16)
    for name, weight in network.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _stored_fingerprint(folder: Path) -> str | None:
    try:
        return (folder / FINGERPRINT).read_text(encoding="utf-8")
    except OSError:
        return None


@contextmanager
def _temporary_folder(folder: Path | None) -> Iterator[Path]:
    """A new folder, beside the final one if possible."""
    try:
        work = TemporaryDirectory(prefix=".ct2.", dir=None if folder is None else folder.parent)
    except OSError:
        work = TemporaryDirectory()
    with work as name:
        path = Path(name) / "model"
        path.mkdir()
        yield path


def _keep(temporary: Path, folder: Path) -> None:
    """Replace an old copy; do nothing where the folder holds anything else, or cannot be written."""
    with suppress(OSError):
        if (folder / FINGERPRINT).is_file():
            shutil.rmtree(folder)
        temporary.rename(folder)


# --- the check ---


def check(network: Network, engine: Ct2Engine, special: SpecialTokens, examples: Sequence[Sequence[int]] = ()) -> None:
    """Raise EngineError if a copy generates other texts than the network, on random texts and on examples."""
    half = (length_limit(network) or POSITIONS) // 2
    inputs = [*_random_texts(len(engine.names), special), *examples]
    texts = [list(text[: half - 1]) for text in inputs if text]
    settings = Settings(max_tokens=min(CHECKED_TOKENS, half))
    if isinstance(network, Seq2Seq):
        found = (generate_batch(network, texts, special, settings), engine.generate_batch(texts, special, settings))
        ours, theirs = ([row[0].ids for row in side] for side in found)
    else:
        ours = [generate(network, network.start(), Prompts([text]), settings)[0][0].ids for text in texts]
        theirs = [list(engine.stream(text, settings)) for text in texts]
    for text, ids, copied in zip(texts, ours, theirs, strict=True):
        _check_equal(network, special, text, ids, copied)


def _random_texts(size: int, special: SpecialTokens) -> list[list[int]]:
    random = torch.Generator().manual_seed(1)
    rows = [torch.randint(size, (length,), generator=random).tolist() for length in RANDOM_LENGTHS]
    return [[token for token in row if token != special.pad] for row in rows]


def _check_equal(network: Network, special: SpecialTokens, text: list[int], ours: list[int], theirs: list[int]) -> None:
    """Compare up to the first token that differs, which must be as likely as ours."""
    pairs = enumerate(zip_longest(ours, theirs, fillvalue=special.stop))
    place, other = next(((i, other) for i, (ids, other) in pairs if ids != other), (None, 0))
    if place is None:
        return
    logits = _next_logits(network, special, text, ours[:place])
    lost = float(logits.max() - logits[other])
    if lost > TIE:
        raise EngineError(
            f"the copy for CTranslate2 generates token {other} where another one has a logit higher by {lost:.2g}; "
            "use another engine"
        )


@torch.inference_mode()
def _next_logits(network: Network, special: SpecialTokens, text: list[int], generated: list[int]) -> Tensor:
    """The logits (V,) after a text and what was generated."""
    device = next(network.parameters()).device
    if isinstance(network, Seq2Seq):
        source, target = (
            torch.tensor([ids], device=device) for ids in ([*text, special.stop], [special.start, *generated])
        )
        after: Tensor = network(source, target)[0, -1]
    else:
        after = network(torch.tensor([[*text, *generated]], device=device))[0, -1]
    return after
