"""Pages whose commands are run as they stand: blocks marked ```bash are fed to one shell.

A comment before a block says what its output must contain: `shows:` at once, `soon:` when what follows its `sleep` is
repeated for a while.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from tests.polling import PATIENCE, eventually

BLOCK = re.compile(r"(?:<!-- (?P<when>shows|soon): (?P<text>.+?) -->\n)?```bash\n(?P<commands>.*?)^```$", re.M | re.S)
BLOCK_SECONDS = 60.0
SOON_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block with its promise."""

    commands: str
    #: What is repeated until it prints the expected text; empty: the commands print it at once.
    repeated: str
    expected: str


def blocks_of(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(page):
        commands, repeated = found["commands"], ""
        if found["when"] == "soon":
            # The page waits for people, this polls.
            commands, repeated = re.split(r"sleep \d+; ", commands)
        yield Block(commands=commands, repeated=repeated, expected=found["text"] or "")


class Shell:
    """One bash for all blocks, so that exports and background jobs live on."""

    def __init__(
        self,
        folder: Path,
        *,
        within: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        block_seconds: float = BLOCK_SECONDS,
    ) -> None:
        """`within`: words before the shell's; it and all its children end with the block."""
        self._block_seconds = block_seconds * PATIENCE
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
        self._process = subprocess.Popen(
            [*within, "bash", "--norc"],
            cwd=folder,
            env={**clean, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, commands: str) -> tuple[int, str]:
        """Exit code of the last command, and everything that was printed."""
        assert self._process.stdin is not None
        mark = f"--{uuid4().hex}"
        self._process.stdin.write(f"{commands}\necho {mark} $?\n".encode())
        self._process.stdin.flush()
        printed = self._read_until(mark)
        output, _, code = printed.rpartition(mark)
        return int(code), output

    def _read_until(self, mark: str) -> str:
        assert self._process.stdout is not None
        read, deadline = b"", time.monotonic() + self._block_seconds
        while not re.search(rf"{mark} \d+\n".encode(), read):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            assert part, f"the shell says nothing more: {read.decode(errors='replace')}"
            read += part
        return read.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # the session of its own: the shell and its jobs
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def run_step(shell: Shell, step: Block) -> None:
    code, output = shell.run(step.commands)
    assert code == 0, f"{step.commands}\nexit code {code}\n{output}"
    if not step.repeated:
        assert step.expected in output, f"{step.commands}\n{output}"
        return

    def is_shown() -> bool:
        code, output = shell.run(step.repeated)
        assert code == 0, f"{step.repeated}\nexit code {code}\n{output}"
        assert step.expected in output, f"{step.repeated}\n{output}"
        return True

    eventually(is_shown, within_seconds=SOON_SECONDS, message=step.repeated)
