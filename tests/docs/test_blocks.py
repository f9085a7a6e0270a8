"""Every block of README.md and docs/ runs, in the order of its page, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from .pages import PAGES, PYTHON, ROOT, SHELL, SHOWN, Block, Command, blocks, commands, differs

pytest.importorskip("fastapi", reason="needs clearhead[studio]")
if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)

# Blocks that are left out, by their page, and why. Everything else runs.
NOT_RUN = [
    ("README.md", "trains for two minutes, after an installation from the network"),
    ("docs/contrasts.md", "six trainings of seven minutes each, on a dataset from the network"),
    ("docs/contrasts.md", "half an hour of training, on datasets from the network"),
    ("docs/decoding.md", "needs a GGUF file"),
    ("docs/export.md", "it trains for a minute"),
    ("docs/interop.md", "it needs the package rxnmapper"),
    ("docs/training.md", "two hours of training"),
]
DATA = os.environ.get("CLEARHEAD_DATA")
SERVERS = re.compile(r"^clearhead (serve|studio)\b.*$", re.MULTILINE)
PORTS = {"serve": 8000, "studio": 8765}  # the defaults, which the pages show
SECONDS = 120  # for one block, on a busy machine


class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    def __init__(self, folder: Path, commands_folder: Path):
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.ports = {verb: free_port() for verb in PORTS}
        path = os.pathsep.join([str(commands_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {
            **os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": ""
        }  # fmt: skip
        self.environment.pop("CLEARHEAD_PLUGINS", None)

    def follow(self, block: Block) -> None:
        if block.language == PYTHON:
            self.compare(block.where, block.output, self.run_python(block))
        else:
            for command in commands(block):
                self.compare(f"{block.page}:{command.line}", command.output, self.run_shell(block.page, command))

    def compare(self, where: str, shown: str | None, printed: str) -> None:
        for verb, port in PORTS.items():
            printed = printed.replace(f"127.0.0.1:{self.ports[verb]}", f"127.0.0.1:{port}")
        if shown is not None and differs(shown, printed):
            pytest.fail(f"{where} prints\n{printed}\nand the page shows\n{shown}", pytrace=False)

    def run_python(self, block: Block) -> str:
        # Blank lines before it, so that a traceback has the line of the page.
        code = compile("\n" * (block.line - 1) + self.with_ports(block.code), block.page, "exec")
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            try:
                exec(code, self.names)
            except Exception:
                pytest.fail(f"{block.where}\n{traceback.format_exc()}", pytrace=False)
        return printed.getvalue()

    def run_shell(self, page: str, command: Command) -> str:
        """Standard output and errors; a server is started in the background and stays until the page ends."""
        rest = SERVERS.sub(lambda found: self.start(page, found), command.text)
        exported = self.folder / ".environment"
        done = subprocess.run(
            ["bash", "-e", "-c", f"trap 'env -0 > {exported}' EXIT\n{self.with_ports(rest)}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
            encoding="utf-8",
        )
        # A page may show an error of Clearhead, which ends with exit code 2; it then shows the sentence.
        if done.returncode and not (done.returncode == 2 and command.output):
            pytest.fail(f"{page}:{command.line}: exit code {done.returncode}\n{rest}\n{done.stdout}", pytrace=False)
        variables = exported.read_text(encoding="utf-8").split("\0")
        self.environment = dict(variable.split("=", 1) for variable in variables if variable)
        return done.stdout

    def start(self, page: str, found: re.Match[str]) -> str:
        """Start a server on a free port and wait until it answers."""
        verb = found[1]
        more = " --no-browser" if verb == "studio" else ""
        line = found[0].split("  #")[0] + f" --port {self.ports[verb]}{more}"
        with (self.folder / "server.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        self.servers.append(server)
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[verb]}/health", timeout=SECONDS) as answer:
                    assert answer.status == 200
                return ":"
            log_text = (self.folder / "server.log").read_text(encoding="utf-8")
            assert server.poll() is None, f"{page}: {line} ended\n{log_text}"
            assert time.monotonic() < deadline, f"{page}: {line} does not answer\n{log_text}"
            time.sleep(0.05)

    def with_ports(self, text: str) -> str:
        for verb, port in PORTS.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[verb]}")
        return text

    def stop_servers(self) -> None:
        """Ctrl-C, to which a server answers with exit code 0."""
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        assert [server.wait(SECONDS) for server in self.servers] == [0] * len(self.servers)


@pytest.fixture
def reader(tmp_path: Path, commands_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """In a folder with the recipes and figures of a clone."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    shutil.copytree(ROOT / "docs" / "figures", tmp_path / "docs" / "figures")
    monkeypatch.delenv("CLEARHEAD_PLUGINS", raising=False)
    reader = Reader(tmp_path, commands_folder)
    yield reader
    reader.stop_servers()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, reader: Reader) -> None:
    every = blocks(page)
    for block in every:
        if block.file:
            (reader.folder / block.file).write_text(f"{block.code}\n", encoding="utf-8")
    for block in every:
        if block.is_run and not block.not_run and (DATA or not block.needs_data):
            reader.follow(block)


def test_every_block_has_a_language_and_few_are_left_out() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    for block in every:
        assert block.language in (PYTHON, *SHELL, *SHOWN), f"{block.where}: a block of the language {block.language!r}"
    assert [(block.page, block.not_run) for block in every if block.not_run] == NOT_RUN


# --- the reading of pages itself ---


def test_an_output_may_leave_out_what_varies() -> None:
    assert not differs("loss … in 3 s\n…\nend", "loss 1.25 in 3 s \nsome\nlines\nend\n")
    assert not differs("a\n…\nb", "a\nb\n")
    assert differs("a\nb", "a\nc\n")
    assert differs("a …\nb", "a 1\n2\nb\n")
    assert differs("a", "a\nmore\n")


def test_a_console_block_has_commands_and_their_outputs() -> None:
    block = Block("x.md", 10, "console", "$ echo a \\\n  b\na b\n$ true\n$ echo c\nc")
    assert commands(block) == [
        Command(10, "echo a \\\n  b", "a b"),
        Command(13, "true", ""),
        Command(14, "echo c", "c"),
    ]


def test_marks_titles_and_outputs_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1)\n```\n\n```text\n1\n```\n\nwords\n\n```text\nno output\n```\n"
        '<!-- not run: takes\nhours -->\n```shell\nmake\n```\n```yaml title="a.yaml"\na: 1\n```\n'
    )
    first, second, third, fourth = blocks(page, tmp_path)
    assert (first.line, first.code, first.output) == (2, "print(1)", "1")
    assert (second.language, second.output, second.is_run) == ("text", None, False)
    assert (third.not_run, third.is_run) == ("takes hours", True)
    assert (fourth.file, fourth.is_run) == ("a.yaml", False)
