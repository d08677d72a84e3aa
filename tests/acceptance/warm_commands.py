"""The command `reconciler` for shells of tests, without the second that its imports cost.

python -m tests.acceptance.warm_commands SOCKET is a server that has imported the command line. A program in the
shell's PATH (`warm_command`) hands its arguments, variables, folder and standard streams over; the server forks a
process that runs the entry point of the installed command with them. SIGTERM and SIGINT go on to that process, and it
ends at once when its client is killed. The server ends with the process of the tests, however that ends.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from reconciler.__main__ import main as entry_point
from tests.services.processes import Child

__all__ = ["warm_command"]

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


@cache
def warm_command() -> Path:
    """The command, alone in its folder, for the front of PATH. Its server is one for all tests of the process."""
    folder = Path(tempfile.mkdtemp(prefix="commands-"))
    path, root = folder / "commands.sock", Path(__file__).parents[2]
    server = [sys.executable, "-m", "tests.acceptance.warm_commands", str(path)]
    child = Child(server, log=folder / "commands.log", cwd=root, environment={"PYTHONPATH": str(root)})
    child.until(path.exists, within_seconds=60, what="the warm command")
    program = folder / "reconciler"
    program.write_text(_CLIENT.format(python=sys.executable, path=str(path), killed=KILLED))
    program.chmod(0o755)
    return program


def serve(path: str) -> None:
    """Forks a process for each client, until the tests' process is gone."""
    parent = os.getppid()
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
    listener.settimeout(1.0)
    os.rename(f"{path}.new", path)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            client.settimeout(None)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become_the_command(client)
            return
        client.close()
    shutil.rmtree(Path(path).parent, ignore_errors=True)


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
