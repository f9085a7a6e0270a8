"""Trainings are separate processes that outlive the server."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.errors import ClearheadError, ConfigError, RunError
from clearhead.interop.exporting import EXPORTS
from clearhead.look.views.history import log_attention
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs, attention
from clearhead.tasks import TASKS

SLEEPER = "import time; print('begun', flush=True); time.sleep(60)"
WRITER = "import pathlib, sys; p = pathlib.Path(sys.argv[8]); p.mkdir(); (p / 'model.safetensors').touch()"
FAILURE = "import sys; sys.exit('clearhead: no such file')"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], Runs]]:
    """Runs whose trainings are a small program; nothing is left running."""
    made: list[Runs] = []

    def make(program: str) -> Runs:
        made.append(Runs(tmp_path, (sys.executable, "-c", program)))
        return made[-1]

    yield make
    for runs in made:
        for child in runs._children.values():
            child.kill()
            child.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(runs: Runs) -> str:
    return runs.start("lm", "builtin", "tiny", 700)


def test_pause_resume_and_stop(make: Callable[[str], Runs]) -> None:
    runs = make(SLEEPER)
    name = start(runs)
    until(lambda: "begun" in runs.log_tail(name))
    assert runs.state(name) == "running"
    runs.pause(name)
    assert runs.state(name) == "paused"
    until(lambda: Path(f"/proc/{runs.record(name).pid}/stat").read_text().split()[2] == "T")
    runs.resume(name)
    assert runs.state(name) == "running"
    runs.pause(name)
    runs.stop(name)
    until(lambda: runs.state(name) == "stopped")
    with pytest.raises(RunError, match=rf"{name} is stopped, not running"):
        runs.pause(name)


def test_another_server_finds_a_training_again(make: Callable[[str], Runs]) -> None:
    first = make(SLEEPER)
    name = start(first)
    second = make(SLEEPER)
    assert second.names() == [name]
    assert second.state(name) == "running"
    second.stop(name)
    until(lambda: first.state(name) == "stopped")


def test_a_killed_process_has_failed_and_resumes_with_the_same_arguments(make: Callable[[str], Runs]) -> None:
    runs = make(SLEEPER)
    name = start(runs)
    os.kill(runs.record(name).pid, signal.SIGKILL)
    until(lambda: runs.state(name) == "failed")
    words = runs.record(name).words
    runs.resume(name)
    assert runs.state(name) == "running"
    assert runs.record(name).words == words


def test_a_run_directory_is_resumed(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(SLEEPER)
    name = start(runs)
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.yaml").write_text("train:\n  max_steps: 700\n", encoding="utf-8")
    runs.stop(name)
    until(lambda: runs.state(name) == "stopped")
    runs.resume(name)
    assert runs.record(name).words == ("resume", str(tmp_path / name))
    assert runs.steps(name) == 700


def test_a_training_that_wrote_its_model_is_finished(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(WRITER)
    name = start(runs)
    until(lambda: runs.state(name) == "finished")
    assert runs.finished(name) == tmp_path / name
    with pytest.raises(RunError, match="only a paused, stopped or failed training can be resumed"):
        runs.resume(name)


def test_the_output_of_a_training_is_kept(make: Callable[[str], Runs]) -> None:
    runs = make(FAILURE)
    name = start(runs)
    until(lambda: runs.state(name) == "failed")
    assert runs.log_tail(name) == "clearhead: no such file\n"
    with pytest.raises(RunError, match="is failed: its model can be used when it is finished"):
        runs.finished(name)


def test_the_command_is_a_plain_clearhead_train(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(FAILURE)
    runs.upload("my book.txt", b"once upon a time")
    name = runs.start("lm", "builtin", "small", 400, upload="my-book.txt")
    words = runs.record(name).words
    assert words[:6] == ("train", "lm", "--data", str(tmp_path / ".studio/uploads/my-book.txt"), "--size", "small")
    assert words[6:] == (
        "--out",
        str(tmp_path / name),
        "train.max_steps=400",
        "train.evaluate_every=20",
        "train.checkpoint_every=20",
    )


def test_measurements_are_read_while_they_are_written(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(FAILURE)
    name = start(runs)
    (tmp_path / name).mkdir()
    (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo', encoding="utf-8")
    assert runs.metrics(name) == [{"step": 1, "loss": 2.5}]


def test_attention_is_empty_before_the_first_evaluation(make: Callable[[str], Runs]) -> None:
    runs = make(FAILURE)
    name = start(runs)
    assert attention(name, runs) == {"format": "clearhead-history-1", "steps": [], "attention": {}}


@pytest.mark.parametrize("name", ["../secret", "..", ".studio", "a/b", "", "x" * 200, "nobody"])
def test_a_name_is_never_a_path(trainings: Runs, name: str) -> None:
    with pytest.raises(RunError, match="there is no training called"):
        trainings.metrics(name)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("../../etc/passwd", "etc-passwd"), ("a b<script>.tsv", "a-b-script-.tsv"), (".hidden", "hidden")],
)
def test_an_upload_gets_a_safe_name(trainings: Runs, given: str, kept: str) -> None:
    assert trainings.upload(given, b"text") == kept
    assert trainings.uploaded(kept).read_bytes() == b"text"
    assert trainings.uploaded(kept).parent == trainings.notes / "uploads"


def test_an_upload_without_a_name_is_refused(trainings: Runs) -> None:
    with pytest.raises(RunError, match="has no usable characters"):
        trainings.upload("///", b"")
    with pytest.raises(RunError, match=r"no file called '\.\./x' was uploaded"):
        trainings.start("lm", "builtin", "tiny", 5, upload="../x")


def test_the_routes_refuse_with_one_sentence(studio: TestClient) -> None:
    assert studio.get("/studio/api/runs").json() == {"runs": [], "uploads": []}
    for answer in (studio.get("/studio/api/runs/nobody"), studio.post("/studio/api/runs/nobody/stop")):
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "there is no training called 'nobody'")
    assert studio.post("/studio/api/runs/nobody/explode").status_code == 400
    refused = studio.post("/studio/api/runs", json={"task": "trnslate"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "unknown task trnslate; did you mean translate?",
    )


def test_the_tasks_that_can_be_trained_come_from_the_server(studio: TestClient) -> None:
    tasks = {task["name"]: task for task in studio.get("/studio/api/tasks").json()}
    assert set(tasks) == set(TASKS.names())
    assert (tasks["translate"]["title"], tasks["translate"]["needs"]) == ("A translator", "translation pairs")
    assert {name for name, task in tasks.items() if not task["upload"]} == {"vision", "caption"}


def ended(runs: Runs) -> str:
    name = start(runs)
    until(lambda: runs.state(name) == "failed")
    return name


def test_a_run_without_a_checkpoint_is_not_offered_to_resume_and_says_why_it_failed(
    make: Callable[[str], Runs],
) -> None:
    runs = make(FAILURE)
    name = ended(runs)
    assert runs.describe(name)["actions"] == ["delete"]
    assert runs.describe(name)["why"] == "clearhead: no such file"
    with pytest.raises(RunError, match=f"{name} has no checkpoint yet, so there is no model to use"):
        runs.finish(name)


def test_a_stopped_run_is_finished_at_its_checkpoint(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(FAILURE)
    name = ended(runs)
    (tmp_path / name / "checkpoints" / "step-00000140").mkdir(parents=True)
    (tmp_path / name / "config.yaml").write_text("train:\n  max_steps: 700\n", encoding="utf-8")
    assert runs.actions(name) == ["resume", "finish", "delete"]
    runs.finish(name)
    assert runs.record(name).words == ("resume", str(tmp_path / name))
    assert runs.steps(name) == 140


def test_a_run_that_ended_can_be_deleted(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(FAILURE)
    name = ended(runs)
    (tmp_path / name).mkdir(exist_ok=True)
    runs.delete(name)
    assert runs.names() == []
    assert not (tmp_path / name).exists()
    running = make(SLEEPER)
    other = start(running)
    with pytest.raises(RunError, match=rf"{other} is running, not stopped or failed or finished"):
        running.delete(other)


def test_an_upload_is_read_as_the_task_would_before_a_run_starts(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    pairs = runs.upload("pairs.tsv", "\n".join(f"we see {n}\tvemos {n}" for n in range(50)).encode())
    found = runs.check_upload(pairs, "translate")
    assert (found["kind"], found["train"] + found["validation"]) == ("pairs", 50)
    assert found["first"][0] == "we see 0\tvemos 0"
    broken = runs.upload("broken.tsv", b"no tab here\nnor here\n" * 9)
    with pytest.raises(ClearheadError):
        runs.start("translate", "builtin", "tiny", 10, upload=broken)
    assert runs.names() == []


def test_further_settings_are_arguments_of_the_command(make: Callable[[str], Runs]) -> None:
    runs = make(FAILURE)
    name = runs.start("lm", "builtin", "tiny", 10, settings=["model.layers=3", "data.kind=text"])
    assert runs.record(name).words[-2:] == ("model.layers=3", "data.kind=text")
    with pytest.raises(RunError, match=r"'--out' is not a setting: write key=value, for example model\.layers=2"):
        runs.start("lm", "builtin", "tiny", 10, settings=["--out"])
    with pytest.raises(ConfigError, match=r"unknown setting model\.layes; did you mean model\.layers\?"):
        runs.start("lm", "builtin", "tiny", 10, settings=["model.layes=3"])
    assert runs.names() == [name]


def test_the_reason_of_a_failure_has_no_path_of_ours(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(f"import sys; sys.exit('clearhead: {tmp_path}/.studio/uploads/few.tsv: has 1 example')")
    assert runs.why(ended(runs)) == "clearhead: few.tsv: has 1 example"


def test_the_time_left_is_that_of_the_last_steps(make: Callable[[str], Runs], tmp_path: Path) -> None:
    runs = make(SLEEPER)
    name = start(runs)  # of 700 steps
    until(lambda: "begun" in runs.log_tail(name))
    assert runs.describe(name)["left"] is None
    (tmp_path / name).mkdir()
    lines = [f'{{"step": {step}, "seconds": {0.5 * step + 100 * (step > 7)}}}\n' for step in range(1, 301)]
    (tmp_path / name / "times.jsonl").write_text("".join(lines) + '{"step": 3', encoding="utf-8")
    assert runs.describe(name)["left"] == pytest.approx(0.5 * 400)
    runs.pause(name)
    assert runs.describe(name)["left"] is None


def test_settings_and_data_are_explained_before_the_start(studio: TestClient) -> None:
    tiny = studio.get("/studio/api/tasks/lm/settings?size=tiny").json()
    assert (tiny["model.dim"], tiny["train.patience"]) == (64, None)
    assert studio.get("/studio/api/tasks/lm/settings?size=base").json()["model.dim"] > 64
    pairs = studio.get("/studio/api/tasks/translate/data").json()
    assert (pairs["kind"], pairs["unit"], pairs["faults"]) == ("pairs", "pairs", [])
    assert pairs["first"][0] == "we are eating bread | estamos comiendo pan"
    labelled = studio.get("/studio/api/tasks/classify/data").json()
    assert labelled["first"][0].endswith(" | positive")
    assert len(studio.get("/studio/api/tasks/lm/data").json()["first"]) == 5
    assert studio.get("/studio/api/tasks/vision/data").json()["first"] == []


def test_a_finished_model_is_exported_once_and_refused_in_one_sentence(
    make: Callable[[str], Runs], tmp_path: Path, model: Callable[[str], Predictor]
) -> None:
    runs = make(WRITER)
    name = start(runs)
    until(lambda: runs.state(name) == "finished")
    assert runs.actions(name) == ["use", "export", "serve", "delete"]
    shutil.rmtree(tmp_path / name)
    shutil.copytree(model("critic").run.path, tmp_path / name)
    done = runs.export(name, "onnx")
    assert done.out == tmp_path / "exports" / f"{name}-onnx"
    assert "model.onnx" in done.files
    before = (done.out / "model.onnx").stat().st_mtime_ns
    assert runs.export(name, "onnx") == done
    assert (done.out / "model.onnx").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="a BERT model cannot express"):
        runs.export(name, "hf")
    with pytest.raises(ConfigError, match=r"unknown export \.\./x"):
        runs.export(name, "../x")
    assert sorted(path.name for path in (tmp_path / "exports").iterdir()) == [f"{name}-onnx"]


# --- the routes, over trainings that are a small program ---


@pytest.fixture
def page(make: Callable[[str], Runs], service: Service) -> Callable[[str], TestClient]:
    """A Studio whose trainings are a program, as its page asks it."""

    def page(program: str) -> TestClient:
        return TestClient(make_app(service, make(program), Access()), base_url="http://127.0.0.1:8000")

    return page


def test_a_training_is_started_watched_and_ended_by_the_routes(page: Callable[[str], TestClient]) -> None:
    client = page(SLEEPER)
    begun = client.post("/studio/api/runs", json={"task": "tag", "steps": 90, "settings": ["model.layers=1"]}).json()
    name = begun["name"]
    assert (begun["task"], begun["data"], begun["state"], begun["steps"]) == ("tag", "builtin", "running", 90)
    route = f"/studio/api/runs/{name}"
    until(lambda: "begun" in client.get(route).json()["said"])
    assert client.get(route).json()["metrics"] == []
    for action, state, offered in (
        ("pause", "paused", ["resume", "stop"]),
        ("resume", "running", ["pause", "stop"]),
        ("stop", "stopped", ["delete"]),
    ):
        client.post(f"{route}/{action}")
        until(lambda wanted=state: client.get(route).json()["state"] == wanted)  # type: ignore[misc]
        assert client.get(route).json()["actions"] == offered
    refused = client.post(f"{route}/finish")
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        f"{name} has no checkpoint yet, so there is no model to use: start it again",
    )
    assert client.delete(route).json() == {"deleted": name}
    assert client.get("/studio/api/runs").json()["runs"] == []


def test_a_file_is_uploaded_checked_and_trained_on_by_the_routes(
    page: Callable[[str], TestClient], tmp_path: Path
) -> None:
    client = page(FAILURE)
    content = "".join(f"{'good' if n % 2 else 'bad'} film {n}\t{'yes' if n % 2 else 'no'}\n" for n in range(41))
    stored = client.put("/studio/api/runs/uploads/my films.tsv", content=content.encode()).json()["name"]
    assert stored == "my-films.tsv"
    assert client.put("/studio/api/runs/uploads/my films.tsv", content=content.encode()).json()["name"] == stored
    other = client.put("/studio/api/runs/uploads/my films.tsv", content=b"a\tb\n" * 9).json()["name"]
    assert client.get("/studio/api/runs").json()["uploads"] == [other, stored] == ["my-films-2.tsv", "my-films.tsv"]
    found = client.get(f"/studio/api/runs/uploads/{stored}/check?task=classify").json()
    assert (found["kind"], found["train"] + found["validation"], found["first"][1]) == (
        "labelled",
        41,
        "good film 1\tyes",
    )
    for task, kind in (("classify", []), ("lm", ["data.kind=text"])):  # what the file is not by itself
        run = client.post("/studio/api/runs", json={"task": task, "upload": stored}).json()
        record = Runs(tmp_path).record(run["name"])
        assert record.data == stored
        assert [word for word in record.words if word.startswith("data.")] == kind
    refused = client.post("/studio/api/runs", json={"task": "vision", "upload": stored})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "vision learns from a folder of images, which cannot be uploaded: use clearhead train",
    )


def test_a_finished_model_is_shown_used_and_exported_by_the_routes(
    page: Callable[[str], TestClient], tmp_path: Path, model: Callable[[str], Predictor], service: Service
) -> None:
    client, critic = page(WRITER), model("critic")
    name = client.post("/studio/api/runs", json={"task": "classify"}).json()["name"]
    route = f"/studio/api/runs/{name}"
    until(lambda: client.get(route).json()["state"] == "finished")
    shutil.rmtree(tmp_path / name)
    shutil.copytree(critic.run.path, tmp_path / name)
    for step in (7, 3):
        log_attention(tmp_path / name / "attention", step, critic.network, critic.prepare("a warm film"))
    assert client.get(f"{route}/attention").json()["steps"] == [3, 7]
    try:
        assert client.post(f"{route}/use").json()["state"] == "finished"
        text = "a warm film"
        answer = client.post("/classify", json={"model": name, "text": text}).json()
        assert answer["label"] == critic.predict(text)["label"]
    finally:
        service.models.pop(name, None)
    assert client.get("/studio/api/exports").json() == EXPORTS.names()
    out = tmp_path / "exports" / f"{name}-onnx"
    out.mkdir(parents=True)
    (out / "model.onnx").write_bytes(b"written before")
    done = client.post(f"{route}/export", json={"format": "onnx"})
    assert done.json() == {"out": str(out), "files": {"model.onnx": 14}}


def test_a_training_that_was_killed_says_so_and_a_lost_config_has_no_steps(
    make: Callable[[str], Runs], tmp_path: Path
) -> None:
    runs = make("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    name = ended(runs)
    assert runs.describe(name)["why"] == (
        "it ended without a word: perhaps it was killed, or the machine ran out of memory"
    )
    (tmp_path / name / "checkpoints" / "step-00000020").mkdir(parents=True)
    (tmp_path / name / "config.yaml").write_text("train: {}\n", encoding="utf-8")
    runs.resume(name)
    assert runs.steps(name) == 0
