"""The command `reconciler` for shells of tests, without the second that its imports cost.

python -m tests.acceptance.warm_commands SOCKET is a server that has imported the command line. A program in the
shell's PATH (`client_text`) hands its arguments, variables, folder and standard streams over; the server forks a
process that runs the entry point of the installed command with them. SIGTERM and SIGINT go on to that process, and it
ends at once when its client is killed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import TracebackType
from typing import Self

from reconciler.__main__ import main as entry_point
from tests.services.processes import Child

__all__ = ["WarmCommands"]

#: Rooms of the product whose modules commands load when they begin their work.
PRELOADED = (
    "cli",
    "commands",
    "wiring",
    "policy",
    "ledger",
    "evidence",
    "shards",
    "settings",
    "announcing",
    "rocketmq",
)
#: What these import only when they need it.
LIBRARIES = (
    "alembic.command",
    "encodings.idna",
    "greenlet",
    "pydantic.type_adapter",
    "rich.progress",
    "rich.table",
    "structlog",
)
HEAD = struct.Struct("!I")
KILLED = 137

_CLIENT = """\
#!{python} -IS
import json, os, signal, socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({path!r})
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [struct.pack("!I", len(asked))], [0, 1, 2])
server.sendall(asked)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: server.sendall(bytes([number])))
code = server.recv(1)
os._exit(code[0] if code else {killed})
"""


def client_text(path: Path) -> str:
    """The program that stands for the command."""
    return _CLIENT.format(python=sys.executable, path=str(path), killed=KILLED)


class WarmCommands:
    """The server as a process of the test's own; `folder` holds the command, for the front of PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket = folder / "commands.sock"
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.acceptance.warm_commands", str(self._socket)]
        root = str(Path(__file__).parents[2])
        self._child = Child(command, log=self.folder / "commands.log", cwd=Path(root), environment={"PYTHONPATH": root})
        self._child.until(self._socket.exists, within_seconds=60, what="the warm command")
        program = self.folder / "reconciler"
        program.write_text(client_text(self._socket))
        program.chmod(0o755)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child is not None
        self._child.kill()


def serve(path: str) -> None:
    """Forks a process for each client, until it is killed."""
    for room in PRELOADED:
        for module in walk_packages(import_module(f"reconciler.{room}").__path__, f"reconciler.{room}."):
            import_module(module.name)
    for library in LIBRARIES:
        import_module(library)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{path}.new")
    listener.listen(64)
    os.rename(f"{path}.new", path)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become_the_command(client)
            return
        client.close()


def _become_the_command(client: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(client, HEAD.size, 3)
    arguments, folder, variables = json.loads(_received(client, HEAD.unpack(head)[0]))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = arguments
    threading.Thread(target=_obey, args=[client], daemon=True).start()
    code = 70

    @atexit.register  # the first that is registered is the last that is done
    def tell() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        client.sendall(bytes([code & 0xFF]))
        os._exit(code & 0xFF)  # taking all the modules down takes longer than most commands

    try:
        entry_point()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
        raise


def _obey(client: socket.socket) -> None:
    """Signals that the client got; its end is the end of this process."""
    while number := client.recv(1):
        os.kill(os.getpid(), number[0])
    os._exit(KILLED)


def _received(client: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        parts += client.recv(size - len(parts))
    return parts


if __name__ == "__main__":
    serve(sys.argv[1])
