"""Runs a program on the native client in a process of its own with a deadline: it may crash, or hang at exit."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.import_path import import_path

RUN_SECONDS = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What the process said, and how it ended."""

    events: list[dict[str, Any]]
    code: int
    log: str

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of one kind, in order."""
        return [each for each in self.events if each["event"] == event]


def play(
    python: Path, program: str, *arguments: str, home: Path, library_folder: Path | None = None, clean: bool = True
) -> Played:
    """Runs tests/native/`program`; `clean`: it must have ended by itself, having said so last."""
    paths = [import_path()] if library_folder is None else [str(library_folder), import_path()]
    done = subprocess.run(
        [python, Path(__file__).parent / program, *arguments],
        # The library writes its log to HOME, and does not start if it cannot.
        env={**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
        cwd=home,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
    if clean:
        said = f"{arguments} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert done.returncode == 0, said
        assert events[-1:] == [{"event": "end"}], said
    return Played(events=events, code=done.returncode, log=done.stderr)
