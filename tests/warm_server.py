"""`clearhead` without its imports: a process that has imported everything forks one child per command.

    python warm_server.py serve SOCKET        the server; it prints a line when it is ready
    python warm_server.py run SOCKET ARG …    like `clearhead ARG …`, with its own input, output and environment

A page runs dozens of commands, and importing torch is most of the time that each takes. The child calls the same `main`
as the installed command.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path


def serve(path: str) -> None:
    """Accept commands until the process is killed."""
    import_everything()
    from clearhead.cli.main import main

    gc.freeze()  # so that children do not copy what they only read
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request, files, *_ = socket.recv_fds(connection, 1 << 20, 3)
        child = os.fork()
        if child:
            connection.sendall(f"{child}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
            os._exit(0)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        connection.close()
        listening.close()
        command = json.loads(request)
        os.environ.clear()
        os.environ.update(command["environment"])
        os.chdir(command["folder"])
        sys.argv = ["clearhead", *command["arguments"]]
        try:
            main()
        except SystemExit as end:
            atexit._run_exitfuncs()
            os._exit(int(end.code or 0))  # without freeing every object, which takes longer than most commands


def import_everything() -> None:
    """All modules of the package, with what they need. One thread: a pool of threads does not survive a fork."""
    from importlib import import_module
    from pkgutil import walk_packages

    import matplotlib.pyplot  # noqa: F401
    import torch  # noqa: F401

    import clearhead

    clearhead.load("en-es").translate("hello")  # what torch imports on first use
    for module in walk_packages(clearhead.__path__, "clearhead."):
        if not module.name.endswith("__main__") and ".bench" not in module.name:
            import_module(module.name)


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
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
