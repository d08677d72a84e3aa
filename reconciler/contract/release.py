"""Tells which release this is, and from which revision of the source it was built.

The build writes the revision into the file REVISION of the package `reconciler`, in sdist and wheel, by the hook that
pyproject.toml names. A checkout has no such file, whether it is installed editable or not. The code of a checkout may
change under a running process, so no revision would be true. This module never starts git.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

DISTRIBUTION = "checkback-reconciler"
#: The revision if no build has written one.
CHECKOUT = "checkout"


def release() -> str:
    """Returns the installed release."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """Returns the commit, with `+changes` if the tree differed from the commit. `unknown`: the build had no git.
    `checkout`: this is a checkout."""
    try:
        return files("reconciler").joinpath("REVISION").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return CHECKOUT


def version_line() -> str:
    """Returns the release and the revision in one line for people."""
    return f"reconciler {release()} (revision {revision()})"
