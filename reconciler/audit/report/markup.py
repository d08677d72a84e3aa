"""HTML as values: what is no Markup is escaped, always.

Thirty lines instead of a template engine: no dependency, and no page can forget to escape, since nothing but `tag`
makes a tag.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from reconciler.contract.visible_text import visible

#: Elements without an end tag.
_VOID = frozenset({"meta", "link", "input", "col", "br", "hr"})


class Markup(str):
    """Text that is HTML already; only this module makes it from parts, and report.py from its own style and script."""

    __slots__ = ()


def tag(_name: str, *children: object, **attributes: object) -> Markup:
    """An element. Attributes: a trailing "_" goes, other "_" become "-"; None and False are left out, True is bare."""
    shown = "".join(
        f" {name.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(visible(str(value)), quote=True)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if _name in _VOID:
        return Markup(f"<{_name}{shown}>")
    return Markup(f"<{_name}{shown}>{join(children)}</{_name}>")


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other; None is left out."""
    return Markup(html.escape(between).join(_escaped(part) for part in parts if part is not None))


def name(text: object) -> Markup:
    """A name from outside: it runs in its own direction and cannot turn the text around it."""
    return tag("bdi", text)


def _escaped(part: object) -> str:
    return part if isinstance(part, Markup) else html.escape(visible(str(part)), quote=True)
