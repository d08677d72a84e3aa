"""An SVG that is built of text, lines and boxes, and how wide a text is on it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from html import escape

WIDTH = 384
MARGIN = 12
FONT_SIZE = 12.0
LINE_HEIGHT = 16.0

_FONTS = "system-ui,-apple-system,'Segoe UI','Noto Sans','PingFang SC','Microsoft YaHei','Noto Sans CJK SC',sans-serif"
#: Class, light, dark. Each pair has a contrast of 4.5 or more on its paper.
INKS = (
    ("ink", "#1c2733", "#e4e9ee"),
    ("faint", "#566370", "#a3b0bd"),
    ("lost", "#b42318", "#ff8f85"),
    ("mend", "#0a5ca8", "#7cbcff"),
)
GROUNDS = (("paper", "#ffffff", "#161b22"), ("box", "#f3f5f8", "#222a34"), ("band", "#e6f0fa", "#15293f"))


class Ink(StrEnum):
    """What a colour says."""

    INK = "ink"
    FAINT = "faint"
    LOST = "lost"
    MEND = "mend"


def _styles(theme: int) -> str:
    fills = "".join(f".{name}{{fill:{inks[theme]}}}.{name}-line{{stroke:{inks[theme]}}}" for name, *inks in INKS)
    return fills + "".join(f".{name}{{fill:{grounds[theme]}}}" for name, *grounds in GROUNDS)


#: Widths in thousandths of the font's size, of DejaVu Sans: the widest of the fonts that systems have.
_NARROW = dict.fromkeys("ijlI'|", 290) | dict.fromkeys(".,:;!()[] ", 360) | dict.fromkeys("frt-/", 400)
_WIDE = dict.fromkeys("mwMW%@", 960) | dict.fromkeys("+=<>·→", 838)
_DIGIT, _SMALL, _CAPITAL, _IDEOGRAPH = 636, 612, 720, 1000


def width_of(text: str, size: float = FONT_SIZE, *, is_bold: bool = False) -> float:
    """At most this wide, in the picture's units."""
    thousandths = sum(_width(letter) for letter in text)
    return thousandths * size / 1000 * (1.12 if is_bold else 1)


def _width(letter: str) -> int:
    if ord(letter) >= 0x2E80:
        return _IDEOGRAPH
    known = _NARROW.get(letter) or _WIDE.get(letter)
    return known or (_DIGIT if letter.isdigit() else _CAPITAL if letter.isupper() or letter == "_" else _SMALL)


#: No line begins with one of these.
_CLOSING = "，。；：、）」》,.;:)"  # noqa: RUF001  these marks are meant


def wrapped(text: str, room: float, size: float = FONT_SIZE) -> list[str]:
    """The lines of a text that has so much room: broken between words, and between ideographs."""
    lines, line = [], ""
    for piece in _pieces(text):
        if line and width_of((line + piece).rstrip(), size) > room:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def _pieces(text: str) -> Iterator[str]:
    """What is never broken: a word with the space behind it, an ideograph with the marks behind it."""
    piece = ""
    for letter in text:
        starts = ord(letter) >= 0x2E80 or (piece and ord(piece[-1]) >= 0x2E80)
        if piece and letter not in _CLOSING and letter != " " and (piece.endswith(" ") or starts):
            yield piece
            piece = ""
        piece += letter
    yield piece


class Canvas:
    """Collects shapes; what was drawn later lies above. Confined to one caller."""

    def __init__(self) -> None:
        self._shapes: list[str] = []

    def lie_above(self, other: Canvas) -> None:
        """What the other one has lies below all of this one's."""
        self._shapes[:0] = other._shapes

    def text(
        self, x: float, y: float, words: str, ink: Ink = Ink.INK, *, size: float = FONT_SIZE, is_bold: bool = False,
        anchor: str = "start",
    ) -> None:  # fmt: skip
        """A line of text with its baseline at y. Raises ValueError if it does not fit on the picture."""
        width = width_of(words, size, is_bold=is_bold)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        if left < 0 or left + width > WIDTH:
            raise ValueError(
                f"{words!r} reaches from {left:.0f} to {left + width:.0f} of {WIDTH}: say it in fewer words"
            )
        style = f' font-size="{size:g}"' if size != FONT_SIZE else ""
        style += ' font-weight="bold"' if is_bold else ""
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._shapes.append(f'<text x="{x:g}" y="{y:g}" class="{ink}"{style}>{escape(words)}</text>')

    def line(
        self, x1: float, y1: float, x2: float, y2: float, ink: Ink, *, width: float = 1.5, dashes: str = ""
    ) -> None:
        """From one point to the other."""
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._shapes.append(
            f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{ink}-line" stroke-width="{width:g}"{dashed}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, ink: Ink, *, dashes: str = "") -> None:
        """Straight, along an axis, with its tip at the second point."""
        long, wide = 7, 3.5
        dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        self.line(x1, y1, x2 - dx * 4, y2 - dy * 4, ink, dashes=dashes)
        bx, by = x2 - dx * long, y2 - dy * long
        self._shapes.append(
            f'<path d="M{x2:g} {y2:g}L{bx + dy * wide:g} {by + dx * wide:g}L{bx - dy * wide:g} {by - dx * wide:g}z" class="{ink}"/>'
        )

    def cross(self, x: float, y: float, ink: Ink = Ink.LOST, *, arm: float = 6) -> None:
        """Crosses something out."""
        self.line(x - arm, y - arm, x + arm, y + arm, ink, width=2.5)
        self.line(x - arm, y + arm, x + arm, y - arm, ink, width=2.5)

    def dot(self, x: float, y: float, ink: Ink, *, radius: float = 3.5) -> None:
        """A point on a line."""
        self._shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{ink}"/>')

    def ground(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        name: str,
        *,
        edge: Ink | None = None,
        round_by: float = 4,
    ) -> None:
        """A filled box: paper, box or band."""
        edged = f" {edge}-line" if edge else ""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}" class="{name}{edged}"/>'
        )

    def finished(self, height: float, *, title: str, told: str, language: str) -> str:
        """The file; what it shows is told to those who do not see it."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * 1.5:g}" height="{height * 1.5:g}"'
            f' viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="title told" xml:lang="{language}"'
            f' font-family="{_FONTS}" font-size="{FONT_SIZE:g}" fill="none">'
        )
        style = f"<style>{_styles(0)}@media (prefers-color-scheme:dark){{{_styles(1)}}}</style>"
        paper = f'<rect width="{WIDTH}" height="{height:g}" rx="6" class="paper"/>'
        words = (f'<title id="title">{escape(title)}</title>', f'<desc id="told">{escape(told)}</desc>')
        return "\n".join((head, *words, style, paper, *self._shapes, "</svg>")) + "\n"
