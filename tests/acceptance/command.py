"""The installed command, run as people run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.marked_secrets import require_unmarked
from tests.acceptance.warm_commands import warm_command
from tests.ended import Ended
from tests.polling import PATIENCE

RECONCILER = Path(sys.executable).parent / "reconciler"


def reconciler(
    *arguments: str | Path,
    timeout_seconds: float = 600,
    environment: dict[str, str] | None = None,
    answer: str = "",
) -> Ended:
    """Runs `reconciler ...` and waits; the product's variables come from `environment` only, its input is `answer`.

    The process has imported the command line before: half of the time of most commands.
    """
    require_unmarked(*map(str, arguments))
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RECONCILER_")} | (environment or {})
    ended = subprocess.run(
        [str(warm_command()), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_seconds * PATIENCE,
        env=variables,
        input=answer,
        check=False,
    )
    require_unmarked(ended.stdout, ended.stderr)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def one_object(ended: Ended, *, code: int = 0) -> dict[str, Any]:
    """The one JSON object that the command printed, and nothing else, when it ended as expected."""
    assert ended.exit_code == code, ended.stderr
    assert ended.stdout.count("\n") == 1
    assert ended.document["schema_version"] == 1
    return ended.document
