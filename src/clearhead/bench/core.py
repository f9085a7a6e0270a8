"""`clearhead bench core`: attention against torch's, growth with length, text to batches, start-up time."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from clearhead.bench.measure import Measurement, growth_exponent, in_own_process, side_by_side


def run(peers: bool) -> Iterator[Measurement]:  # noqa: ARG001 - its only peer is torch, always measured
    """All measurements, each as soon as it is made."""
    yield attention_against_torch(batch=12, length=64, dim=128, heads=4, repeats=300)
    yield attention_against_torch(batch=8, length=256, dim=384, heads=6, repeats=40)
    yield from long_forward()
    yield from text_to_batches()
    yield from start_up()


def attention_against_torch(batch: int, length: int, dim: int, heads: int, repeats: int) -> Measurement:
    """Forward and backward of our fused attention, against `torch.nn.MultiheadAttention` with the same weights."""
    import torch

    from clearhead.nn import MultiHeadAttention

    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(dim, heads, batch_first=True)
    ours = MultiHeadAttention(dim, heads)
    _copy_weights(theirs, ours)
    x = torch.randn(batch, length, dim, requires_grad=True)
    gradient = torch.randn(batch, length, dim)

    def our_step() -> None:
        ours.zero_grad()
        ours(x).backward(gradient)

    def their_step() -> None:
        theirs.zero_grad()
        theirs(x, x, x, need_weights=False)[0].backward(gradient)

    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0], rtol=1e-4, atol=1e-5)
    taken = side_by_side({"clearhead": our_step, "torch": their_step}, repeats)
    ratio = taken["clearhead"] / taken["torch"]
    what = f"attention {batch} × {length} × {dim}, forward + backward, against torch"
    return Measurement(what, ratio, "×", 1.05, {"milliseconds": taken, "repeats": repeats})


def _copy_weights(theirs: Any, ours: Any) -> None:
    import torch

    with torch.no_grad():
        for part, weight, bias in zip(
            (ours.query, ours.key, ours.value),
            theirs.in_proj_weight.chunk(3),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        ours.output.load_state_dict(theirs.out_proj.state_dict())


_LONG = """
import sys, time, torch
from clearhead.nn import Mask, MultiHeadAttention
window = int(sys.argv[1]) or None
lengths = [int(word) for word in sys.argv[2:]]
torch.manual_seed(1)
layer = MultiHeadAttention(128, 4)
times = []
with torch.no_grad():
    layer(torch.randn(1, 512, 128), mask=Mask(causal=True, window=window))
    for length in lengths:
        x, taken = torch.randn(1, length, 128), []
        for _ in range(3):
            begin = time.perf_counter()
            layer(x, mask=Mask(causal=True, window=window))
            taken.append(time.perf_counter() - begin)
        times.append(sorted(taken)[1])
result = {"lengths": lengths, "seconds": times}
"""


def long_forward() -> Iterator[Measurement]:
    """Memory and growth of time of a causal forward pass of up to 65,536 tokens, 128 wide."""
    lengths = [4096, 8192, 16384, 32768, 65536]
    words = [str(length) for length in lengths]
    whole = in_own_process(_LONG, "0", *words)
    yield Measurement("causal forward of 65,536 tokens, 128 wide: peak memory", whole["peak_mb"], "MB", 2000, whole)
    exponent = growth_exponent(lengths, whole["seconds"])
    yield Measurement("time against length, full attention: exponent", exponent, "", None, whole)
    window = in_own_process(_LONG, "256", *words)
    exponent = growth_exponent(lengths, window["seconds"])
    yield Measurement("time against length, window of 256: exponent", exponent, "", 1.25, window)


def text_to_batches() -> Iterator[Measurement]:
    """Read, tokenise and bucket Tatoeba en-es, or the built-in pairs if it is not downloaded."""
    import numpy as np

    from clearhead.data import catalogue, read
    from clearhead.data.batches import Batches, padding_share
    from clearhead.data.hub import locate, origin
    from clearhead.text import Tokenizer

    here = origin(catalogue.find("tatoeba-en-es")) is not None
    path, name = (locate("tatoeba-en-es"), "Tatoeba en-es") if here else ("builtin", "the built-in pairs")
    begin = time.perf_counter()
    pairs = list(read(path, kind="pairs", validation=0.0).train)
    stamps = {"read": time.perf_counter() - begin}
    sides = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
    tokenizer = Tokenizer.train("bpe", (text for side in sides for text in side), size=8000)
    stamps["train the tokenizer"] = time.perf_counter() - begin
    ids = [tokenizer.encode_batch(side) for side in sides]
    # (N, 2), with the start and stop tokens that training adds
    lengths = np.stack([np.fromiter((len(each) + 2 for each in side), dtype=np.int64) for side in ids], axis=1)
    stamps["encode"] = time.perf_counter() - begin
    batches = list(Batches(lengths, budget=4096, seed=1))
    stamps["bucket"] = time.perf_counter() - begin
    detail = {"pairs": len(pairs), "seconds so far": stamps}
    yield Measurement(f"read, tokenise and bucket {name}", stamps["bucket"], "s", 10.0, detail)
    wasted = 100 * padding_share(lengths, batches)
    yield Measurement(f"padding of {name} at 4,096 tokens", wasted, "%", 5.0, {"batches": len(batches)})


def start_up() -> Iterator[Measurement]:
    """Seconds of a command that does nothing else."""
    for what, limit, words in (
        ("clearhead --help", 0.4, ["-m", "clearhead", "--help"]),
        ("import clearhead", None, ["-c", "import clearhead"]),
    ):
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            times.append(time.perf_counter() - begin)
        yield Measurement(what, statistics.median(times), "s", limit, {"seconds": times})
