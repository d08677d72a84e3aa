"""Entry point of the command `reconciler`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; without the extra `daemon` says what to install and exits with 2."""
    try:
        from reconciler.cli.app import run  # the plug-ins install this command without its libraries
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"reconciler", "producers", "consumers"}:
            raise
        sys.stderr.write(
            f"reconciler: the package {error.name} is missing: pip install 'checkback-reconciler[daemon]'\n"
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
