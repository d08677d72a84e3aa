"""Entry point of `python -m reconciler.audit audit|statement|package ...`. `reconciler audit` starts this process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise

from reconciler.audit.streams import answer, json_line, no_answer, remark
from reconciler.contract.extras import install


def run() -> int:
    """Runs the command and returns its exit code.

    Exit code 2: the extra `audit` is missing. The message says what to install.
    Exit code 2: loading failed. Python itself would end with 1, which means violations.
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
    """Looks for `--engine here` among the arguments."""
    return "--engine=here" in arguments or ("--engine", "here") in pairwise(arguments)


def _refused(reason: str, message: str) -> int:
    remark(f"reconciler: no answer ({reason}): {message}\n")
    if "json" in sys.argv or "--output=json" in sys.argv:
        answer(json_line(no_answer(reason, message)))
    return 2


if __name__ == "__main__":
    sys.exit(run())
