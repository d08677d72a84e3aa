"""`python -m reconciler.audit audit|statement|package ...`: a process of its own; `reconciler audit` starts it."""

from __future__ import annotations

import json
import sys

_OURS = frozenset({"reconciler"})


def run() -> int:
    """Runs the command; without the extra `audit` says what to install. Returns the exit code."""
    try:
        import pyspark  # noqa: F401 - named here and not in the middle of an audit

        from reconciler.audit.command import main
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _OURS:
            raise
        message = f"the package {error.name} is missing: pip install 'checkback-reconciler[audit]'"
        sys.stderr.write(f"reconciler: no answer (configuration): {message}\n")
        if "json" in sys.argv or "--output=json" in sys.argv:
            nothing = {"classes": {}, "violations": 0, "gaps": 0, "rows": 0, "seconds": 0.0, "engine": None}
            document = {
                "schema_version": 1,
                "verdict": "no answer",
                "reason": "configuration",
                "message": message,
                **nothing,
            }
            sys.stdout.write(json.dumps(document) + "\n")
        return 2
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
