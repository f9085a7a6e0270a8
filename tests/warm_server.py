"""A `python` without its imports: a process that has imported everything forks one child per command.

    python warm_server.py serve SOCKET PID       the server, until process PID ends; prints a line when it is ready
    python warm_server.py run SOCKET ARG …       like `python ARG …`, with its own input, output and environment

Tests and pages start dozens of processes, and importing torch is most of the time that each takes. ARG … is `-c CODE`,
`-m MODULE` or a script, each with its arguments. A child ends with the process that asked for it, however that ends.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from threading import Thread

# What is imported late: by the trainer and its optimizers, by several processes of one training, by figures.
LATE = (
    "matplotlib.pyplot",
    "rich.progress",
    "sacrebleu",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.run",
)


def serve(path: str, until: int) -> None:
    """Accept commands until a process has ended."""
    import_everything()
    gc.freeze()  # so that children do not copy what they only read
    load_a_model()  # which counts the frozen objects, once for all children
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    print("ready", flush=True)
    while is_running(until):
        if not select.select([listening], [], [], 1)[0]:
            continue
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            attend(connection)
        connection.close()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def attend(connection: socket.socket) -> None:
    """Run one command in a child, and kill it if the other end goes away."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, *_ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if child == 0:
        connection.close()
        command = json.loads(request)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(command["environment"])
        os.chdir(command["folder"])
        os._exit(exit_code(command["arguments"]))  # without freeing every object, which takes longer than most commands
    for file in files:
        os.close(file)
    connection.sendall(f"{child}\n".encode())
    Thread(target=lambda: connection.recv(1) or os.kill(child, signal.SIGKILL), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
    finally:
        os._exit(0)


def exit_code(words: list[str]) -> int:
    """Do what `python` does with these words, to the end."""
    try:
        run(words)
        code: object = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def run(words: list[str]) -> None:
    if words[:2] == ["-m", "clearhead"]:
        from clearhead.cli.main import main

        sys.argv = ["clearhead", *words[2:]]
        main()
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")


def import_everything() -> None:
    """All modules of the package, with what they need. One thread: a pool of threads does not survive a fork."""
    from importlib import import_module
    from pkgutil import walk_packages

    import clearhead

    for name in LATE:
        import_module(name)
    load_a_model()  # what torch imports on first use
    for module in walk_packages(clearhead.__path__, "clearhead."):
        if not module.name.endswith("__main__") and ".bench" not in module.name:
            import_module(module.name)


def load_a_model() -> None:
    import clearhead

    clearhead.load("en-es").translate("hello")


def ask(path: str, arguments: list[str]) -> int:
    """Run one command and return its exit code; signals are passed on to it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        answer = connection.makefile()
        child = int(answer.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda sent, _frame: os.kill(child, sent))
        return int(answer.readline() or 1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
