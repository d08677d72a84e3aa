"""How the audit is started: as a program of its own, which judges without the service's code."""

from __future__ import annotations

import sys
from pathlib import Path


def audit_program(*arguments: str) -> list[str]:
    """The program and its arguments."""
    # A file in the working folder must not be imported as a library; a checkout that is not installed needs the folder.
    is_checkout = sys.path[0] in ("", str(Path.cwd()))
    flags = [] if is_checkout else ["-P"]
    return [sys.executable, *flags, "-m", "reconciler.audit", *arguments]
