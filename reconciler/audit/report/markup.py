"""HTML as values. Text that is no Markup is always escaped.

Thirty lines replace a template engine. Only `tag` makes a tag, so no page can forget to escape.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from reconciler.contract.visible_text import visible

#: Elements without an end tag.
_VOID = frozenset({"meta", "link", "input", "col", "br", "hr"})


class Markup(str):
    """Text that is HTML already. This module makes it from parts, and page.py from its own style and script."""

    __slots__ = ()


def tag(_name: str, *children: object, **attributes: object) -> Markup:
    """Makes an element. In names of attributes a trailing "_" is removed, and other "_" become "-".

    None and False leave the attribute out. True leaves its value out.
    """
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
    """Joins parts, one after the other. None is left out."""
    return Markup(html.escape(between).join(_escaped(part) for part in parts if part is not None))


def name(text: object) -> Markup:
    """Marks a name from outside, so that its direction of writing cannot turn the text around it."""
    return tag("bdi", text)


def _escaped(part: object) -> str:
    return part if isinstance(part, Markup) else html.escape(visible(str(part)), quote=True)
