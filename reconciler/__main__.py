"""Entry point of the command `reconciler`."""

from __future__ import annotations

import itertools
import os
import sys

from reconciler.commands import docs
from reconciler.contract.extras import install
from reconciler.contract.late_names import without_collector
from reconciler.contract.release import version_line
from reconciler.errors import UsageError
from reconciler.instrumentation.console import StandardStreams, remark, say


def main() -> None:
    """Runs the command line. Without the extra `daemon`, only docs and the audit run. Any other command then says what
    to install, with exit code 2."""
    if "--version" in itertools.takewhile(lambda argument: argument != "--", sys.argv[1:]):  # of every command
        say(version_line())
        sys.exit(0)
    try:
        with without_collector():
            from reconciler.cli.app import run  # the plug-ins install this command, but not its libraries
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"reconciler", "checkback_producers", "checkback_consumers"}:
            raise
        if sys.argv[1:2] in (["audit"], ["statement"]):  # a start with the extra `audit` alone
            os.execv(sys.executable, [sys.executable, "-P", "-m", "reconciler.audit", *sys.argv[1:]])  # noqa: S606
        if sys.argv[1:2] == ["docs"] and not any(word.startswith("-") for word in sys.argv):
            sys.exit(_show(*sys.argv[2:3]))
        missing = f"reconciler: the package {error.name} is missing: {install('daemon')}"
        remark(missing, *docs.ways_to([missing]))
        sys.exit(2)
    streams = StandardStreams()
    sys.exit(streams.exit_code(run(sys.argv[1:])))


def _show(page: str = docs.INDEX) -> int:
    try:
        say(*docs.find(page).splitlines())
    except UsageError as error:
        remark(f"reconciler: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    main()
