"""`python forked.py PROCESSES PORT SCRIPT ARG …`: the processes of torchrun, forked from one that has imported torch.

Restarts need torchrun itself.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback


def main() -> None:
    """Run the script in each process; fail if one has failed."""
    processes, port, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.argv = sys.argv[3:]
    children = [fork(script, rank, processes, port) for rank in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


def fork(script: str, rank: int, processes: int, port: str) -> int:
    """A child that runs the script as one process of a group; returns its number."""
    if child := os.fork():
        return child
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ |= {name: str(value) for name, value in place.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
