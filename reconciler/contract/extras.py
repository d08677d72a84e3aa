"""The words for a missing package: messages name the extra, and the page that says how to install it."""

from __future__ import annotations


def install(extra: str) -> str:
    """Returns how to install the packages of an extra, as a part of a sentence."""
    return f"install the extra {extra} (docs/how-to/install.md#extras)"
