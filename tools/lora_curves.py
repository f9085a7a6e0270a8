"""The loss of a LoRA adapter of a language model while it learns a style, beside peft's on the original.

    python tools/lora_curves.py SmolLM2-135M-Instruct.Q4_1.gguf shakespeare.txt

Ours is the trainer of `clearhead train lm train.adapter=lora`; peft adapts the model of `transformers` with the same A
and B, and gets the same batches. Both losses of every step are written to benchmarks/curves/lora.json, and drawn in
docs/figures/lora-curves.svg.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import peft
import torch
from torch import nn
from torch.optim import AdamW

from clearhead.interop.checkpoint import read_checkpoint
from clearhead.interop.reference import load_reference
from clearhead.look.render.figure import COLOURS, PAGE, Figure, new_figure
from clearhead.nn.lora import lora_layers
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer, plan_run

ROOT = Path(__file__).parents[1]
RATE, RANK, ALPHA = 1e-3, 8, 16
TARGETS = {"query": "q_proj", "value": "v_proj"}  # our names and those of transformers


def our_trainer(base: Path, text: Path, steps: int, folder: Path) -> Trainer:
    """The trainer of an adapter before its first step."""
    changes = [
        *(f"data.path={text}", "data.kind=text", f"train.start_from={base}", "train.adapter=lora"),
        *(f"train.rank={RANK}", f"train.alpha={ALPHA}", f"train.targets={','.join(TARGETS)}"),
        *("train.optimizer=adamw", f"train.learning_rate={RATE}", f"train.max_steps={steps}"),
        *("train.schedule=stable", "train.warmup=0", "train.decay=0", "train.weight_decay=0"),
        *("model.dropout=0", "model.length=256", "data.batch_tokens=512", "train.device=cpu"),
    ]
    config = plan_run("lm", override_config(default_config("lm"), changes), changes, None, Callbacks()).config
    run = Run(folder)
    run.checkpoints.mkdir(parents=True)
    return make_trainer(run, config, Callbacks())


def peft_model(original: nn.Module, ours: nn.Module) -> nn.Module:
    """peft's adapter of the original, which starts with our A."""
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS.values()), task_type="CAUSAL_LM")
    model: Any = peft.get_peft_model(original, config).train()  # type: ignore[arg-type]
    for own, their in TARGETS.items():  # layer by layer
        ours_of = [part for name, part in lora_layers(ours) if name.endswith(f".{own}")]
        theirs_of = [part for name, part in model.named_modules() if name.endswith(f".{their}")]
        for one, other in zip(ours_of, theirs_of, strict=True):
            with torch.no_grad():
                other.lora_A["default"].weight.copy_(one.a)
    return model


def curves(base: Path, original: nn.Module, text: Path, steps: int) -> dict[str, list[float]]:
    """The loss of every step, ours and peft's."""
    found: dict[str, list[float]] = {"clearhead": [], "peft": []}
    with TemporaryDirectory() as folder:
        trainer = our_trainer(base, text, steps, Path(folder, "run"))
        trainer.callbacks = Callbacks(on_step=lambda step, _progress: found["clearhead"].append(step.loss))
        model = peft_model(original, trainer.model)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = AdamW(weights, lr=RATE, betas=trainer.config.betas, weight_decay=0.0)
        for examples in islice(trainer.cursor.forever(), steps):
            trainer.update([examples])
            batch = trainer.task.batch(examples)
            logits = model(batch["ids"]).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(weights, trainer.config.clip)
            optimizer.step()
            optimizer.zero_grad()
            found["peft"].append(float(loss.detach()))
            print(len(found["peft"]), *(f"{name} {losses[-1]:.6f}" for name, losses in found.items()), flush=True)
    return found


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Both losses over the steps; where they are equal, one line covers the other, so that one is drawn as dots."""
    with new_figure(PAGE, PAGE / 2) as fig:
        axes = fig.add_subplot()
        steps = range(1, len(found["peft"]) + 1)
        axes.plot(steps, found["clearhead"], color=COLOURS[0], label="Clearhead")
        axes.plot(steps, found["peft"], linestyle="none", marker="o", markersize=3, color=COLOURS[1], label="peft")
        axes.set(xlabel="step", ylabel="loss (nats per token)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    Figure(fig).save(path)


def main() -> None:
    """Train both, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="a language model of the Llama family")
    parser.add_argument("text", type=Path, help="a text file whose style is learned")
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    torch.manual_seed(1)
    original = load_reference(read_checkpoint(given.model), "lm")
    found = curves(given.model, original, given.text, given.steps)
    most = max(abs(a - b) for a, b in zip(found["clearhead"], found["peft"], strict=True))
    about = {"model": given.model.name, "text": given.text.name, "rank": RANK, "alpha": ALPHA, "learning rate": RATE}
    document = {**about, "largest difference": most, "loss": found}
    (ROOT / "benchmarks" / "curves" / "lora.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draw(found, ROOT / "docs" / "figures" / "lora-curves.svg")
    print(f"largest difference of a step's loss: {most:.2g}")


if __name__ == "__main__":
    main()
