"""Starts the audit as a separate program, which judges without the service's code."""

from __future__ import annotations

import sys
from pathlib import Path


def audit_program(*arguments: str) -> list[str]:
    """Returns the program and its arguments."""
    # A file in the working folder must not be imported as a library, but a checkout without installation needs the
    # folder.
    is_checkout = sys.path[0] in ("", str(Path.cwd()))
    flags = [] if is_checkout else ["-P"]
    return [sys.executable, *flags, "-m", "reconciler.audit", *arguments]
