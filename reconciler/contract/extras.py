"""How a missing package is told: messages name the extra and the page that says how to get it."""

from __future__ import annotations


def install(extra: str) -> str:
    """What to do for the packages of an extra, in the middle of a sentence."""
    return f"install the extra {extra} (docs/how-to/install.md#extras)"
