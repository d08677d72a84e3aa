"""The words for a missing package. A message names the extra, and the page that says how to install the extra."""

from __future__ import annotations


def install(extra: str) -> str:
    """Returns, as a part of a sentence, how to install the packages of an extra."""
    return f"install the extra {extra} (docs/how-to/install.md#extras)"
