"""Which release this is, and the revision of the source that it was built from.

The build writes the revision into the file REVISION of the package `reconciler`, in sdist and wheel, by the hook that
pyproject.toml names. A checkout has no such file, whether it is installed editable or not: its code may change under a
running process, so no revision would be true. This module never starts git.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

DISTRIBUTION = "checkback-reconciler"
#: The revision where no build has written one.
CHECKOUT = "checkout"


def release() -> str:
    """The installed release."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """The commit, with `+changes` for a tree that differed from it; `unknown`: built without git; or `checkout`."""
    try:
        return files("reconciler").joinpath("REVISION").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return CHECKOUT


def version_line() -> str:
    """For people: what is installed."""
    return f"reconciler {release()} (revision {revision()})"
