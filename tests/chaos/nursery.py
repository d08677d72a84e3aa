"""A process that has everything imported and forks actors: a new one costs milliseconds of processor, not a second.

`python -m tests.chaos.nursery` takes one order a line on standard input, {"number", "role", "arguments", "log",
"sentence"}, answers {"born": number, "pid"}, and tells {"dead": pid, "code"} as it happens. When its input ends it
kills its children and leaves. It starts no thread, so that forking is safe.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any

from tests.chaos import failpoints

#: Role -> module whose `main(*arguments)` is the process.
MODULES = {
    "producer": "tests.chaos.producer",
    "consumer": "tests.chaos.consumer",
    "run": "tests.chaos.service",
    "sweep": "tests.chaos.service",
}
#: Loaded by the commands only when they are used.
_LATE = ("sqlalchemy.dialects.postgresql.psycopg", "psycopg", "reconciler.cli.app", "reconciler.commands.run",
         "reconciler.commands.sweep")  # fmt: skip
#: How soon a death is told.
REAP_SECONDS = 0.05


def main() -> int:
    """0 when its input ends."""
    for module in (*MODULES.values(), *_LATE):
        importlib.import_module(module)
    for role in failpoints.CLASSES:
        failpoints.steps_of(role)
    gc.freeze()  # collections in children would copy every page
    children: set[int] = set()
    rest = b""
    _tell({"ready": os.getpid()})
    while True:
        if select.select([0], [], [], REAP_SECONDS)[0]:
            block = os.read(0, 65536)
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _become(order)
                children.add(pid)
                _tell({"born": order["number"], "pid": pid})
        children -= _reap(children)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return 0


def _reap(children: set[int]) -> set[int]:
    dead: set[int] = set()
    while len(dead) < len(children):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        dead.add(pid)
        _tell({"dead": pid, "code": os.waitstatus_to_exitcode(status)})
    return dead


def _become(order: dict[str, Any]) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setsid()
        _be_as_nice_among_sessions()
        _be_called(order["role"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(number, target)
        os.environ[failpoints.SENTENCE] = order["sentence"]
        code = int(importlib.import_module(MODULES[order["role"]]).main(*order["arguments"]) or 0)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _be_as_nice_among_sessions() -> None:
    """Linux shares the processor among sessions first (sched(7), autogroup): niceness alone counts within one only."""
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(os.nice(0)))


def _be_called(name: str) -> None:
    """What ps and top show; otherwise all actors look like their nursery."""
    with suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(name)


def _tell(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
