"""Starts the audit as a separate program, which judges without the service's code."""

from __future__ import annotations

import sys
from pathlib import Path


def audit_program(*arguments: str) -> list[str]:
    """Returns the program and its arguments."""
    # Python must not import a file of the working folder as a library. Only a checkout without installation needs the
    # working folder.
    is_checkout = sys.path[0] in ("", str(Path.cwd()))
    flags = [] if is_checkout else ["-P"]
    return [sys.executable, *flags, "-m", "reconciler.audit", *arguments]
