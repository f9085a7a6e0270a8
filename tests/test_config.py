from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from clearhead.config import ConfigError, DataConfig, TrainConfig, describe, dump
from clearhead.tasks import TASKS, default_config, load_config, override_config, parse_config

# Words that YAML would like to read as something else.
TRICKY = st.sampled_from(["no", "on", "null", "~", "1e3", "0x10", "2026-11-15", "a: b", "# x", "", " x ", "é\n", "[1"])


@given(
    task=st.sampled_from(TASKS.builtin()),
    heads=st.integers(1, 7),
    width=st.integers(1, 11),
    base=st.floats(1.5, 1e6),
    path=st.one_of(TRICKY, st.text(st.characters(exclude_categories=["Cs", "Cc"]))),
    source=st.one_of(st.none(), TRICKY),
    seed=st.integers(0, 2**63),
)
def test_yaml_out_and_in_loses_nothing(
    task: str, heads: int, width: int, base: float, path: str, source: str | None, seed: int
) -> None:
    sizes = {"dim": width} if task == "words" else {"dim": heads * width, "heads": heads, "position_base": base}
    written = (
        TASKS[task]
        .config_type()
        .model_validate({"model": sizes, "data": DataConfig(path=path, source=source), "train": TrainConfig(seed=seed)})
    )
    assert parse_config(dump(written)) == written


def test_dump_writes_every_setting() -> None:
    for task in TASKS.builtin():
        chosen = default_config(task)
        written = yaml.safe_load(dump(chosen))
        names = {name for name, _, _ in describe(chosen)}
        assert names == {"task"} | {f"{s}.{k}" for s, keys in written.items() if s != "task" for k in keys}
        assert all(meaning for _, _, meaning in describe(chosen))


@pytest.mark.parametrize("task", TASKS.builtin())
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_every_task_has_defaults_of_every_size(task: str, size: str) -> None:
    assert default_config(task, size).task == task


def test_base_is_the_paper_s_width() -> None:
    model = default_config("translate", "base").model
    assert (model.dim, model.heads, model.layers) == (512, 8, 6)


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        default_config("translate").model.dim = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("word", "section", "key", "value"),
    [
        ("model.dim=256", "model", "dim", 256),
        ("model.dropout=1e-2", "model", "dropout", 0.01),
        ("model.bias=false", "model", "bias", False),
        ("model.hard=yes", "model", "hard", True),
        ("data.source=no", "data", "source", "no"),
        ("data.source=none", "data", "source", None),
        ("model.positions=none", "model", "positions", "none"),
        ("data.path=a=b.tsv", "data", "path", "a=b.tsv"),
        ("model.kv_heads=2", "model", "kv_heads", 2),
        (" train.seed = 7 ", "train", "seed", 7),
        ("train.betas=0.9,0.95", "train", "betas", (0.9, 0.95)),
    ],
)
def test_an_override_is_typed_by_the_schema(word: str, section: str, key: str, value: object) -> None:
    changed = getattr(getattr(override_config(default_config("translate"), [word]), section), key)
    assert changed == value
    assert type(changed) is type(value)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("model.dimm=3", r"unknown setting model\.dimm; did you mean model\.dim\?"),
        ("modle.dim=3", r"unknown setting modle\.dim; did you mean model\.dim\?"),
        ("zzz=3", r"unknown setting zzz; choose from: data\.augment, .*"),
        ("model.dim", r"'model\.dim' is not of the form section\.key=value"),
        ("model.dim=wide", r"model\.dim=wide: input should be a valid integer.*"),
        ("model.dropout=2", r"model\.dropout=2: input should be less than 1"),
        ("model.score=magic", r"model\.score: unknown score magic; choose from: additive, .*"),
        ("model.heads=3", r"model: dim=128 is not divisible by heads=3"),
        ("model.kv_heads=3", r"model: heads=4 is not divisible by kv_heads=3"),
        ("model=3", r"unknown setting model; .*"),
        ("model.patch=4", r"unknown setting model\.patch; .*"),
        ("train.betas=0.9", r"train\.betas\.1=.*: field required"),
    ],
)
def test_a_wrong_override_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        override_config(default_config("translate"), [word])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "model:\n  dim: 64\n  layrs: 2\n",
            r"r\.yaml, line 3: unknown setting model\.layrs; did you mean .*\.layers\?",
        ),
        ("task: lm\nmodel:\n  dim: wide\n", r"r\.yaml, line 3: model\.dim=wide: input should be a valid integer.*"),
        ("modell:\n  dim: 64\n", r"r\.yaml, line 1: unknown setting modell; did you mean model\?"),
        ("task: translte\n", r"r\.yaml: unknown task translte; did you mean translate\?"),
        ("size: big\n", r"r\.yaml: unknown size big; choose from: base, small, tiny"),
        ("train:\n  seed: 1\n  seed: 2\n", r"r\.yaml, line 3: train\.seed is set twice; the first is on line 2"),
        ("model: [1, 2\n", r"r\.yaml, line 2: not valid YAML \(.*\)"),
        ("- 1\n- 2\n", r"r\.yaml: expected `section:` headings .*"),
        ("model:\n  dim: 10\n  heads: 3\n", r"r\.yaml, line 1: model: dim=10 is not divisible by heads=3"),
        ("model: 3\n", r"r\.yaml, line 1: model=3: input should be .*"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        parse_config(text, origin="r.yaml")


def test_a_file_says_only_what_differs(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("task: lm\nsize: tiny\nmodel:\n  layers: 3\n", encoding="utf-8")
    expected = override_config(default_config("lm", "tiny"), ["model.layers=3"])
    assert load_config(recipe) == expected


def test_an_empty_file_is_all_defaults() -> None:
    assert parse_config("") == default_config("translate")


def test_a_missing_file_and_a_binary_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read .*none\.yaml: No such file or directory$"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"b\.yaml is not a text file$"):
        load_config(tmp_path / "b.yaml")


def test_a_file_changes_its_base(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("task: lm\nsize: tiny\nmodel: {layers: 3}\ntrain: {seed: 5}\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("base: a.yaml\nmodel: {dim: 96}\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text("base: b.yaml\ntrain: {seed: 7}\n", encoding="utf-8")
    expected = override_config(default_config("lm", "tiny"), ["model.layers=3", "model.dim=96", "train.seed=7"])
    assert load_config(tmp_path / "c.yaml") == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("base: a.yaml", "its base leads back to itself"),
        ("base: nothing.yaml", "cannot read .*nothing.yaml"),
        ("base: other.yaml\nsize: tiny", "base stands in a file, and instead of size"),
        ("base: other.yaml\ntask: lm", "task=lm: input should be 'translate'"),
        ("base: other.yaml\nmodel: {dimm: 3}", r"a.yaml, line 2: unknown setting model.dimm; did you mean model.dim\?"),
    ],
)
def test_a_wrong_base_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "other.yaml").write_text("task: translate\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        load_config(tmp_path / "a.yaml")


@pytest.mark.parametrize(("objective", "task"), [("next", "lm"), ("masked", "masked_lm")])
def test_the_objective_of_an_older_language_model_becomes_its_task(tmp_path: Path, objective: str, task: str) -> None:
    old = f"task: lm\nmodel:\n  dim: 64\n  heads: 2\n  objective: {objective}\n"
    found = parse_config(old)
    assert (found.task, found.model.dim) == (task, 64)
    assert override_config(default_config("lm", "tiny"), [f"model.objective={objective}"]).task == task
    (tmp_path / "old.yaml").write_text("task: lm\nmodel: {dim: 64, heads: 2}\n", encoding="utf-8")
    (tmp_path / "new.yaml").write_text(f"base: old.yaml\nmodel: {{objective: {objective}}}\n", encoding="utf-8")
    assert load_config(tmp_path / "new.yaml") == found
