"""Prompts as OpenAI's API takes them: a text, texts, ids, or rows of ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from clearhead.serve.errors import RequestError
from clearhead.serve.registry import ServedModel
from clearhead.serve.schemas import check_count, check_texts

TokenId = Annotated[int, Field(ge=0, strict=True)]
Prompt = str | list[str] | list[TokenId] | list[list[TokenId]]


async def read_prompts(prompt: Prompt, served: ServedModel) -> list[tuple[int, ...]]:
    """The ids of each prompt, perhaps none; texts are tokenised in a thread."""
    rows = _rows(prompt)
    check_count(len(rows), served.limits)
    texts = [row for row in rows if isinstance(row, str)]
    if texts:
        return await encode(texts, served)
    known = len(served.model.tokenizer)
    ids = [tuple(row) for row in rows if not isinstance(row, str)]
    for row in ids:
        _check_ids(row, known)
        check_length(len(row), served)
    return ids


async def encode(texts: list[str], served: ServedModel) -> list[tuple[int, ...]]:
    """The ids of each text."""
    check_texts(texts, served.limits)
    rows = await asyncio.to_thread(served.model.tokenizer.encode_batch, texts)
    for row in rows:
        check_length(len(row), served)
    return [tuple(row) for row in rows]


def check_length(count: int, served: ServedModel) -> None:
    """Refuse more tokens than the model reads."""
    if count > served.context:
        sentence = f"{served.name} reads {served.context:,} tokens at most, and there are {count:,}; shorten the text"
        raise RequestError(400, "context_length_exceeded", sentence)


def _rows(prompt: Prompt) -> Sequence[str | list[int]]:
    """One text or row of ids for each prompt."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [each for each in prompt if isinstance(each, int)]
    return [ids] if ids else [each for each in prompt if not isinstance(each, int)]


def _check_ids(row: tuple[int, ...], known: int) -> None:
    for each in row:
        if each >= known:
            raise RequestError(
                400, "invalid_value", f"there is no token {each}: the vocabulary has {known}, counted from 0"
            )
