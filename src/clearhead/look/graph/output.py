"""The parts from the last vectors to the answer: pooling, logits, probabilities."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from clearhead.look.graph.parts import GraphBuilder
from clearhead.look.record import LIKELIEST
from clearhead.look.views.steps import Code
from clearhead.nn import (
    FlattenOutput,
    PooledVector,
    SequenceOutput,
    WideOutput,
    first_token,
    last_token,
    mean_token,
    softmax,
)
from clearhead.nn.wide import linear_logits

POOLED = {first_token: "first", mean_token: "mean", last_token: "last"}


class OutputParts(GraphBuilder):
    """The output of a model."""

    def output(self, stack: str, x: str) -> None:
        call = self.calls.output
        if call is None or self.look.logits is None:
            return
        module, read = call.module, call.inputs[0][0]  # (T, D)
        code = (type(module).forward, "return ")
        if len(read) < len(self.parts[x].value):  # a captioner predicts from its words alone
            rows = self.some_rows_at_end(stack, len(read))
            x = self.add(
                "output.words", "tail", "words", read, [x], rows=rows, symbol="x", equation="x",
                about="The vectors of the words, without those of the image.",
            )  # fmt: skip
        if isinstance(module, PooledVector | SequenceOutput):
            self.axes["answer"] = ["answer"]
            how = POOLED.get(module.pool, "")
            real = call.inputs[1] if len(call.inputs) > 1 else None
            pooled = module.pool(read[None], real)
            about = {
                "first": "The vector of the class token stands for the whole input.",
                "mean": "The average of the vectors of all tokens.",
                "last": "The vector of the last token stands for the whole input.",
            }.get(how, "One vector for the whole input.")
            x = self.add(
                "output.pooled", "pool" if how else "function", "pooled", pooled, [x], rows="answer", symbol="c",
                equation={"first": "c = x_0", "mean": "c = (1 / T) Σ_t x_t", "last": "c = x_T"}.get(how, "c = pool(x)"),
                about=about, code=(module.pool, "return "), details={"pool": how},
            )  # fmt: skip
        if isinstance(module, PooledVector):
            self.add(
                "logits", "function", "vector", self.look.logits[None], [x], symbol="c", equation="c / |c|",
                about="The vector that the model answers with.", code=code,
            )  # fmt: skip
            return
        transform = getattr(module, "transform", nn.Identity())
        if not isinstance(transform, nn.Identity):
            value = self.through(transform, x)
            x = self.add(
                "output.transform", "function", "transform", value, [x], symbol="x", equation="Norm(φ(x W + b))",
                about="One more layer before the output.", code=(type(transform).forward, "return "),
            )  # fmt: skip
        self.likeliest(module, x, code)

    def likeliest(self, module: Any, x: str, code: Code) -> None:
        """The logits and probabilities of the likeliest choices of each row."""
        assert self.look.logits is not None
        logits = self.look.logits.reshape(-1, self.look.logits.size(-1)).float()  # (T, V)
        best = logits.topk(min(LIKELIEST, logits.size(-1)))
        ids, names = best.indices.tolist(), self.look.choices
        words = [[names[each] if names else str(each) for each in row] for row in ids]
        linear: Any = module.linear
        plain = type(linear) is nn.Linear and isinstance(getattr(module, "cap", nn.Identity()), nn.Identity)
        exact = plain and not isinstance(module, FlattenOutput)
        chosen: dict[str, Any] = {"ids": ids, "names": words}
        if exact and linear.bias is not None:
            chosen["bias"] = (linear.bias + self.added_logits())[best.indices]  # (T, K)
        rows = self.parts[x].rows if len(logits) == len(self.parts[x].value) else "answer"
        self.axes.setdefault("answer", ["answer"])
        weight = (linear.weight.detach(),) if exact else ()
        many = f"{logits.size(-1):,}"
        z = self.add(
            "logits", "logits" if exact else "function", "logits", best.values, [x], rows=rows, symbol="l",
            equation="l = x W_out" + (" + b" if "bias" in chosen else ""), code=code, details=chosen, weight=weight,
            about=f"One number for each of the {many} possible answers; the ten highest of each row are shown."
            + " b has what tokens and pairs say by themselves." * isinstance(module, WideOutput),
        )  # fmt: skip
        cooled = self.temperature != 1
        total = (logits / self.temperature).logsumexp(-1)  # (T,)
        details = {"names": words, "total": total, **({"temperature": self.temperature} if cooled else {})}
        self.add(
            "probabilities", "probability", "probability",
            (best.values / self.temperature - total.unsqueeze(-1)).exp(), [z], symbol="p",
            equation="p_w = exp(l_w / τ) / Σ_u exp(l_u / τ)" if cooled else "p_w = exp(l_w) / Σ_u exp(l_u)",
            about="The logits as shares that sum to 1 over all possible answers.", code=(softmax, "scores.softmax"),
            details=details,
        )  # fmt: skip

    def added_logits(self) -> Tensor | float:
        """(C,): what a linear model beside the network adds to its logits."""
        call = self.calls.output
        if call is None or not isinstance(call.module, WideOutput):
            return 0.0
        return linear_logits(call.module.table, *call.inputs[1:])[0]

    def some_rows_at_end(self, stack: str, count: int) -> str:
        self.axes["words"] = self.axes[stack][-count:]
        return "words"
