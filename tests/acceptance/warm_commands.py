"""The command `reconciler` for tests and their shells, without the second that its imports cost.

python -m tests.acceptance.warm_commands SOCKET is a server that has imported the command line. A client hands over
arguments, variables, folder and standard streams; the server forks a process that runs the entry point of the
installed command with them, and one that keeps it. The client is a program for a shell's PATH (`warm_command`), which
passes SIGTERM and SIGINT on, or a `WarmProcess`. The command is killed when its client ends. The server ends with the
process of the tests, however that ends.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from reconciler.__main__ import main as entry_point
from tests.services.processes import Child

__all__ = ["WarmProcess", "warm_command"]

#: Rooms of the product whose modules commands load when they begin their work.
PRELOADED = (
    "cli",
    "commands",
    "wiring",
    "policy",
    "telling",
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
#: How long a request is; then a process id, and later an exit code as subprocess has it.
NUMBER = struct.Struct("!i")

_CLIENT = """\
#!{python} -IS
import json, os, signal, socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({path!r})
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [struct.pack("!i", len(asked))], [0, 1, 2])
server.sendall(asked)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: server.sendall(bytes([number])))
told = server.makefile("rb").read(8)  # reads on after a signal
code = struct.unpack("!ii", told)[1] if len(told) == 8 else -signal.SIGKILL
os._exit(code if code >= 0 else 128 - code)
"""


@cache
def warm_command() -> Path:
    """The command, alone in its folder, for the front of PATH. Its server is one for all tests of the process."""
    folder = Path(tempfile.mkdtemp(prefix="commands-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path, root = _socket_of(folder), Path(__file__).parents[2]
    server = [sys.executable, "-m", "tests.acceptance.warm_commands", str(path)]
    child = Child(server, log=folder / "commands.log", cwd=root, environment={"PYTHONPATH": str(root)})
    child.until(path.exists, within_seconds=60, what="the warm command")
    program = folder / "reconciler"
    program.write_text(_CLIENT.format(python=sys.executable, path=str(path)))
    program.chmod(0o755)
    return program


class WarmProcess:
    """`reconciler` with these arguments; has what subprocess.Popen has. It is killed when the tests' process ends."""

    def __init__(self, arguments: Sequence[str], *, output: int, variables: Mapping[str, str]) -> None:
        """`output`: file descriptor of standard output and error. `variables`: its whole environment."""
        program = warm_command()
        self._arguments = [str(program), *arguments]
        self._code: int | None = None
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.connect(str(_socket_of(program.parent)))
        asked = json.dumps([self._arguments, os.getcwd(), dict(variables)]).encode()
        with open(os.devnull, "rb") as nothing:
            socket.send_fds(self._server, [NUMBER.pack(len(asked))], [nothing.fileno(), output, output])
        self._server.sendall(asked)
        self.pid = NUMBER.unpack(_received(self._server, NUMBER.size))[0]

    def poll(self) -> int | None:
        """The exit code, as subprocess has it; None: it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._arguments, timeout)
            self._code = NUMBER.unpack(_received(self._server, NUMBER.size))[0]
            self._server.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def serve(path: str) -> None:
    """Forks a keeper for each client, until the tests' process is gone."""
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
            return _keep(client)
        client.close()
    shutil.rmtree(Path(path).parent, ignore_errors=True)
    return None


def _keep(client: socket.socket) -> None:
    """Forks the command, passes signals on and tells its exit code. Without its client the command is killed."""
    head, streams, _, _ = socket.recv_fds(client, NUMBER.size, 3)
    arguments, folder, variables = json.loads(_received(client, NUMBER.unpack(head)[0]))
    child = os.fork()
    if child == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        paths = variables.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        sys.argv = arguments
        return _become_the_command()
    for stream in (*range(3), *streams):  # a pipe ends with the command
        os.close(stream)
    with suppress(OSError):
        client.sendall(NUMBER.pack(child))
    ended = os.pidfd_open(child)
    while ended not in select.select([ended, client.fileno()], [], [])[0]:
        asked = client.recv(1)
        os.kill(child, asked[0] if asked else signal.SIGKILL)
        if not asked:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        client.sendall(NUMBER.pack(code))
    os._exit(0)


def _become_the_command() -> None:
    code = 70

    @atexit.register  # the first that is registered is the last that is done
    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code & 0xFF)  # taking all the modules down takes longer than most commands

    try:
        entry_point()
    except SystemExit as end_of_main:
        code = end_of_main.code if isinstance(end_of_main.code, int) else bool(end_of_main.code)
        raise


def _socket_of(folder: Path) -> Path:
    return folder / "commands.sock"


def _received(stream: socket.socket, size: int) -> bytes:
    """Raises ConnectionError at the end of the stream."""
    parts = b""
    while len(parts) < size:
        part = stream.recv(size - len(parts))
        if not part:
            raise ConnectionError("the server of the warm command has ended")
        parts += part
    return parts


if __name__ == "__main__":
    serve(sys.argv[1])
