"""Entry point of the command `reconciler`."""

from __future__ import annotations

import os
import sys

from reconciler.contract.extras import install
from reconciler.instrumentation.console import remark


def main() -> None:
    """Runs the command line; without the extra `daemon` only the audit, else says what to install and exits with 2."""
    try:
        from reconciler.cli.app import run  # the plug-ins install this command without its libraries
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"reconciler", "checkback_producers", "checkback_consumers"}:
            raise
        if sys.argv[1:2] in (["audit"], ["statement"]):  # with the extra `audit` alone: what the command line starts
            os.execv(sys.executable, [sys.executable, "-P", "-m", "reconciler.audit", *sys.argv[1:]])  # noqa: S606
        remark(f"reconciler: the package {error.name} is missing: {install('daemon')}")
        sys.exit(2)
    from reconciler.cli.streams import StandardStreams

    streams = StandardStreams()
    sys.exit(streams.exit_code(run(sys.argv[1:])))


if __name__ == "__main__":
    main()
