"""`python -m reconciler.audit audit|statement|package ...`: a process of its own; `reconciler audit` starts it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise

from reconciler.audit.streams import answer, json_line, no_answer, remark
from reconciler.contract.extras import install


def run() -> int:
    """Runs the command and returns its exit code: 2 with what to install where the extra `audit` is missing.

    An error while the command is loaded is "no answer", too: Python's own exit code 1 would mean violations.
    """
    try:
        from reconciler.audit.command import main
    except ModuleNotFoundError as error:
        return _refused(
            "configuration",
            f"the package {error.name} is missing: {install('audit-here' if _is_here(sys.argv) else 'audit')}",
        )
    except Exception as error:  # noqa: BLE001 - a broken installation must not look like violations
        remark(traceback.format_exc())
        return _refused("configuration", f"the audit cannot be loaded: {type(error).__name__}: {error}")
    return main(sys.argv[1:])


def _is_here(arguments: Sequence[str]) -> bool:
    """Whether it is asked to judge without Spark."""
    return "--engine=here" in arguments or ("--engine", "here") in pairwise(arguments)


def _refused(reason: str, message: str) -> int:
    remark(f"reconciler: no answer ({reason}): {message}\n")
    if "json" in sys.argv or "--output=json" in sys.argv:
        answer(json_line(no_answer(reason, message)))
    return 2


if __name__ == "__main__":
    sys.exit(run())
