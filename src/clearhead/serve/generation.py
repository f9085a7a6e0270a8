"""Requested texts as rows of the token loop: from tokens to chunks of text with their log-probabilities.

T tokens, V vocabulary
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from clearhead.decode import EndReason, Row, Settings, TextStream, Token
from clearhead.look.seeing import SeenRow, Wanted
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import Job, ThreadQueue

NEAR = 32  # prompts whose lengths differ by less share a state, where states cannot be merged


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its log-probability, and the most likely tokens in its place."""

    text: str
    offset: int  # characters before it
    logprob: float | None  # None for the first token of a prompt, which follows nothing
    top: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True)  # there is one for each token, and a frozen one takes longer to make
class TextChunk:
    """The next part of a text."""

    text: str
    tokens: tuple[TokenLogprob, ...] = ()
    generated: int = 0  # tokens so far, without those of the prompt
    finish: EndReason | None = None
    index: int = 0  # of the text in the response
    ids: tuple[int, ...] = ()  # with the finish: the prompt and all that was generated
    seen: SeenRow | None = None  # with the finish: the heads that were wanted


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to continue. A beam search gives settings.n_best texts, anything else one."""

    prompt: tuple[int, ...]
    settings: Settings
    row_seed: int = 0  # which of several texts from this prompt: each samples its own
    stops: tuple[str, ...] = ()
    top_logprobs: int | None = None  # alternatives per token; None = no log-probabilities at all
    echo: bool = False  # send the prompt too
    window: int | None = None  # tokens that the model looks back at
    index: int = 0  # of its first text in the response
    wanted: Wanted | None = None  # heads to be seen
    submitted: float = field(default_factory=time.monotonic, compare=False)
    send: Callable[[TextChunk], None] = field(default=lambda _: None, compare=False)


# --- from a request to chunks ---


Submit = Callable[[Sequence["GenerationRequest"]], list[Job]]


async def generated_chunks(
    requests: Sequence[GenerationRequest], submit: Submit, seconds: float
) -> AsyncIterator[TextChunk]:
    """The chunks of all texts as they come, one after the other."""
    async with aclosing(chunks_together(requests, submit, seconds)) as found:
        async for together in found:
            for chunk in together:
                yield chunk


async def chunks_together(
    requests: Sequence[GenerationRequest],
    submit: Submit,
    seconds: float,
    pause: Callable[[], float] = lambda: 0.0,
) -> AsyncGenerator[list[TextChunk], None]:
    """The chunks of all texts that have come at a time, until each has ended; submitted when the first is awaited.

    What comes of a text in the seconds of a `pause` is one chunk; the end of a text ends the pause.
    """
    queue = ThreadQueue[TextChunk | Future[Any]](seconds)  # a chunk, or the answer of a job that has ended
    jobs = submit([replace(each, send=queue.put) for each in requests])
    for job in jobs:
        job.answer.add_done_callback(queue.put_last)
    running = len(jobs)
    try:
        while running:
            texts: dict[int, list[TextChunk]] = {}
            ended: list[Future[Any]] = []
            for item in await queue.take():
                if isinstance(item, TextChunk):
                    texts.setdefault(item.index, []).append(item)
                else:
                    ended.append(item)
            if texts:
                yield [joined(chunks) for chunks in texts.values()]
            for answer in ended:
                answer.result()
            running -= len(ended)
            if running and (rest := pause()):
                await queue.collect(rest)
    finally:
        for job in jobs:
            job.answer.cancel()


def joined(chunks: Sequence[TextChunk]) -> TextChunk:
    """All chunks of one text as one."""
    if len(chunks) == 1:
        return chunks[0]
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    return replace(chunks[-1], text="".join(chunk.text for chunk in chunks), tokens=tokens)


def submit_requests(served: ServedModel, requests: Sequence[GenerationRequest]) -> list[Job]:
    """Continue prompts in the thread of a model; each request gets its own chunks."""
    merges = served.merges

    def join(jobs: list[Job]) -> Iterator[None]:
        stepper, window = served.model.engines.stepper(), jobs[0].payload.window
        groups: dict[int, list[Row]] = defaultdict(list)  # rows that share a state
        for job in jobs:
            row = _row(served, job)
            if merges and row.settings.beam_width == 1 and row.on_prompt is None and not row.heads:
                row.on_read = partial(served.prefixes.keep, stepper, window, row.prompt)
                if found := served.prefixes.start(stepper, window, row.prompt):
                    served.worker.join(stepper, [row], *found)
                    continue
            groups[len(row.prompt) if merges else 0].append(row)
        for rows in groups.values():
            served.worker.join(stepper, rows, stepper.start() if window is None else stepper.start(window=window))
        yield from ()

    jobs = [Job(_alike(each, merges), each, join, each.settings.beam_width) for each in requests]
    served.worker.submit(jobs)
    return jobs


def _alike(request: GenerationRequest, merges: bool) -> Hashable:
    """What requests must have in common to join together: the window, and the search.

    Where the states of a model cannot be merged, only those that join together are computed together; they share a
    state, and need prompts of similar length.
    """
    if request.settings.beam_width > 1:
        return "search", len(request.prompt), request.window, request.settings.shared()
    return "generate", 0 if merges else len(request.prompt) // NEAR, request.window


def _row(served: ServedModel, job: Job) -> Row:
    def done(generated: int) -> None:
        served.metrics.tokens.labels(model=served.name).inc(generated)
        job.resolve(None)

    def failed(_: Row, problem: Exception) -> None:
        if text.sent or not served.worker.retry_alone(job):
            job.fail(problem)

    text = TextRow(job.payload, served, done)
    text.row.on_error = failed
    job.answer.add_done_callback(lambda _: text.row.cancel())
    return text.row


# --- from tokens to chunks ---


class TextRow:
    """Turns the callbacks of a row into chunks, and ends the row at a stop string."""

    def __init__(self, request: GenerationRequest, served: ServedModel, done: Callable[[int], None]):
        """`done` is called once, with the number of generated tokens."""
        self.request, self.served, self.done = request, served, done
        self.decode: Callable[[list[int]], str] = served.model.tokenizer.decode
        self.row = Row(
            request.prompt,
            replace(request.settings, stop_tokens=served.model.tokenizer.stops),
            stop=served.model.tokenizer.end,
            row_seed=request.row_seed,
            keep_logits=request.top_logprobs is not None,
            on_prompt=self._score_prompt if request.echo and request.top_logprobs is not None else None,
            on_token=self._add,
            on_end=self._search_end if request.settings.beam_width > 1 else self._row_end,
        )
        self._seen: SeenRow | None = None
        if request.wanted is not None and request.settings.beam_width == 1:
            self._seen = SeenRow(request.wanted)
            self.row.heads, self.row.on_seen = self._seen.heads, self._seen.add
        self.sent = False  # whether a chunk was sent
        self._started: float | None = request.submitted
        self._ended = False
        self._stream = TextStream(self.decode, request.prompt, request.stops, served.model.tokenizer.token_texts)
        self._length = 0  # characters sent
        self._held: list[TokenLogprob] = []  # tokens whose text is not certain yet
        self._piece = ""  # text of the last token
        self._prompt_logprobs: list[tuple[float | None, tuple[tuple[str, float], ...]]] = [(None, ())]

    def _score_prompt(self, logits: Tensor, start: int) -> None:
        """Logits (T, V) of what follows prompt[start : start + T]."""
        following = self.request.prompt[start + 1 : start + 1 + len(logits)]
        logprobs = logits[: len(following)].log_softmax(-1)
        self._prompt_logprobs += [self._scored(row, token) for row, token in zip(logprobs, following, strict=True)]

    def _scored(self, logprobs: Tensor, token: int) -> tuple[float, tuple[tuple[str, float], ...]]:
        """The log-probability of a token, of (V,), and those of the most likely ones, the token always among them."""
        best = logprobs.topk(min(self.request.top_logprobs or 0, len(logprobs)))
        known = zip([*best.indices.tolist(), token], [*best.values.tolist(), float(logprobs[token])], strict=True)
        top: dict[str, float] = {}
        for index, value in known:  # of several tokens with the same text, the most likely counts
            top.setdefault(self.served.token_texts[index], value)
        return float(logprobs[token]), tuple(top.items())

    def _add(self, token: Token) -> None:
        if token.end == "stop":
            return
        self._echo()
        if token.logits is not None:
            scored = self._scored(token.logits.log_softmax(-1), token.id)
            self._held.append(TokenLogprob(self.served.token_texts[token.id], self._length, *scored))
        piece = self._stream.add(token.id)
        self._length += len(piece)
        if self._stream.ended:
            self._finish("stop", piece)
            self.row.cancel()
        elif token.end is not None:
            self._piece = piece
        elif piece:
            self._send(TextChunk(piece, self._certain(), self._generated, index=self.request.index))

    def _row_end(self, row: Row) -> None:
        self._echo()
        if not self._ended and row.end is not None:
            self._finish(row.end, self._piece)

    def _search_end(self, row: Row) -> None:
        """The texts of a beam search, the best first."""
        prompt = self.request.prompt
        before = self.decode(list(prompt)) if self.request.echo else ""
        for number, hypothesis in enumerate(row.hypotheses):
            stream, text = TextStream(self.decode, prompt, self.request.stops), before
            for token in hypothesis.ids:
                text += stream.add(token)
            end: EndReason = "stop" if stream.ended or hypothesis.finished else "length"
            text += "" if stream.ended else stream.end()
            ids = (*prompt, *hypothesis.ids)
            self._send(TextChunk(text, (), len(hypothesis.ids), end, self.request.index + number, ids))
        self.done(sum(len(hypothesis.ids) for hypothesis in row.hypotheses))

    @property
    def _generated(self) -> int:
        return len(self.row.ids) - len(self.request.prompt)

    def _echo(self) -> None:
        """Send the prompt as the first chunk of a request with `echo`."""
        if self.sent or not self.request.echo:
            return
        logprobs = iter(self._prompt_logprobs)
        stream, tokens = TextStream(self.decode), []
        for token in self.request.prompt if self.request.top_logprobs is not None else ():
            tokens.append(TokenLogprob(self.served.token_texts[token], self._length, *next(logprobs)))
            self._length += len(stream.add(token))
        text = self.decode(list(self.request.prompt))
        self._length = len(text)
        self._send(TextChunk(text, tuple(tokens), index=self.request.index))

    def _finish(self, finish: EndReason, piece: str) -> None:
        rest = "" if self._stream.ended else self._stream.end()
        self._length += len(rest)
        self._ended = True
        ids = tuple(self.row.ids)
        seen = None
        if self.row.see_rest is not None:
            self.row.see_rest()
            seen = self._seen
        text = piece + rest
        self._send(TextChunk(text, self._certain(), self._generated, finish, self.request.index, ids, seen))
        self.done(self._generated)

    def _certain(self) -> tuple[TokenLogprob, ...]:
        """The tokens that are in the text now; those of a stop string never are."""
        if not self._held:
            return ()
        tokens, self._held = tuple(each for each in self._held if each.offset < self._length), []
        return tokens

    def _send(self, chunk: TextChunk) -> None:
        if chunk.generated and self._started is not None:
            self.served.metrics.first_token.labels(model=self.served.name).observe(time.monotonic() - self._started)
            self._started = None
        self.sent = True
        self.request.send(chunk)
