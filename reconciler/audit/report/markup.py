"""HTML as values. A text is always escaped, unless it is Markup.

Thirty lines replace a template engine. Only `tag` makes a tag, so no page can forget the escaping.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from reconciler.contract.visible_text import visible

#: Names of elements without an end tag.
_VOID = frozenset({"meta", "link", "input", "col", "br", "hr"})


class Markup(str):
    """Text that is HTML already.

    This module makes Markup from parts, and page.py makes Markup from its own style and script.
    """

    __slots__ = ()


def tag(_name: str, *children: object, **attributes: object) -> Markup:
    """Makes an element. In names of attributes a trailing "_" is removed, and other "_" become "-".

    An attribute that is None or False is left out. An attribute that is True has no value.
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
    """Joins parts in the given order. A part that is None is left out."""
    return Markup(html.escape(between).join(_escaped(part) for part in parts if part is not None))


def name(text: object) -> Markup:
    """Marks a name from outside, so that the name's direction of writing cannot change the text around the name."""
    return tag("bdi", text)


def _escaped(part: object) -> str:
    return part if isinstance(part, Markup) else html.escape(visible(str(part)), quote=True)
