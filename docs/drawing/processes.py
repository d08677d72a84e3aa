"""The architecture: which processes there are, and what each reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from docs.drawing.canvas import Canvas, Ink, width_of
from docs.drawing.sequence import Words

NAME = "architecture"
TITLE = "The processes, and what each reads and writes"
_NAME, _SMALL = 11.0, 10.5
_INDENT = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A service, a process or a store."""

    x: float
    y: float
    width: float
    height: float
    name: str
    lines: tuple[str, ...] = ()
    #: Added by this product; the others were there before.
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """What goes from one box to another, straight along an axis."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str = ""
    #: Where the label stands: its left end, and its baseline.
    label_at: tuple[float, float] = (0, 0)
    is_ours: bool = False
    is_lost: bool = False


_BOXES = (
    Box(x=6, y=8, width=210, height=88, name="service that sends", lines=("half message", "one transaction, then END", "announcement of the key")),
    Box(x=224, y=8, width=154, height=88, name="service that receives", lines=("one transaction", "records consumed keys", "runs hand-overs")),
    Box(x=6, y=136, width=138, height=58, name="database", lines=("business rows,", "outbox rows")),
    Box(x=270, y=136, width=86, height=58, name="database", lines=("effects,", "inbox rows")),
    Box(x=160, y=136, width=100, height=174, name="RocketMQ", lines=("half messages", "business topics", "unique keys")),
    Box(x=24, y=236, width=120, height=74, name="reconciler sweep", lines=("announces for", "the dead; settles"), is_ours=True),
    Box(x=300, y=350, width=78, height=100, name="Redis", lines=("half sets", "pending", "commit sets", "no evidence"), is_ours=True),
    Box(x=6, y=350, width=274, height=100, name="reconciler run", lines=("reads announcements", "rounds: announced, not consumed", "asks outbox, inbox, every broker", "repairs once, verifies the effect"), is_ours=True),
    Box(x=6, y=478, width=182, height=58, name="ledger", lines=("verdicts, repairs,", "claims, who did what"), is_ours=True),
    Box(x=196, y=478, width=182, height=58, name="history", lines=("what rounds moved,", "chained Parquet files"), is_ours=True),
    Box(x=6, y=564, width=182, height=58, name="reconciler web", lines=("console and API,", "acts of people"), is_ours=True),
    Box(x=196, y=564, width=182, height=58, name="reconciler audit", lines=("judges all anew,", "signs its answer"), is_ours=True),
)  # fmt: skip

_WAYS = (
    Way(60, 96, 60, 134, "commits", (66, 119)),
    Way(170, 96, 170, 134, "half", (134, 119)),
    Way(184, 96, 184, 134, "END", (188, 110), is_lost=True),
    Way(208, 96, 208, 134, "key", (212, 128), is_ours=True),
    Way(240, 136, 240, 98, "message", (245, 119)),
    Way(320, 96, 320, 134),
    Way(367, 96, 367, 348, "keys", (340, 119), is_ours=True),
    Way(80, 236, 80, 196, "row", (86, 219), is_ours=True),
    Way(144, 275, 158, 275, is_ours=True),
    Way(14, 350, 14, 196, is_ours=True),
    Way(172, 310, 172, 348, "keys", (177, 335), is_ours=True),
    Way(208, 350, 208, 312, "END again", (213, 335), is_ours=True),
    Way(275, 350, 275, 196, is_ours=True),
    Way(280, 392, 298, 392, is_ours=True),
    Way(300, 412, 282, 412, is_ours=True),
    Way(97, 450, 97, 476, is_ours=True),
    Way(240, 450, 240, 476, is_ours=True),
    Way(97, 536, 97, 562, is_ours=True),
    Way(287, 536, 287, 562, is_ours=True),
)


def drawn(words: Words, *, language: str) -> str:
    """The SVG, with every text as `words` has it in this language."""
    canvas = Canvas()
    for box in _BOXES:
        _box(canvas, box, words)
    for way in _WAYS:
        _way(canvas, way, words)
    return canvas.finished(630, title=words(TITLE), told=_told(words), language=language)


def sentences() -> list[str]:
    """Every text that is drawn."""
    boxes = [text for box in _BOXES for text in (box.name, *box.lines)]
    return [TITLE, *boxes, *(way.label for way in _WAYS if way.label)]


def _told(words: Words) -> str:
    return " ".join(f"{words(box.name)}: {' '.join(words(line) for line in box.lines)}." for box in _BOXES)


def _box(canvas: Canvas, box: Box, words: Words) -> None:
    edge = Ink.MEND if box.is_ours else Ink.FAINT
    wide = [width_of(words(box.name), _NAME, is_bold=True), *(width_of(words(line), _SMALL) for line in box.lines)]
    if max(wide) > box.width - _INDENT:
        raise ValueError(
            f"{words(box.name)}: {max(wide):.0f} of text in a box of {box.width:.0f}: say it in fewer words"
        )
    canvas.ground(box.x, box.y, box.width, box.height, "band" if box.is_ours else "box", edge=edge)
    canvas.text(
        box.x + _INDENT, box.y + 17, words(box.name), edge if box.is_ours else Ink.INK, is_bold=True, size=_NAME
    )
    for number, line in enumerate(box.lines, 1):
        canvas.text(box.x + _INDENT, box.y + 18 + 17 * number, words(line), size=_SMALL)


def _way(canvas: Canvas, way: Way, words: Words) -> None:
    ink = Ink.LOST if way.is_lost else Ink.MEND if way.is_ours else Ink.INK
    if way.is_lost:
        middle = (way.y1 + way.y2) / 2
        canvas.line(way.x1, way.y1, way.x1, middle, Ink.INK)
        canvas.line(way.x1, middle, way.x1, way.y2, ink, dashes="2 4")
        canvas.cross(way.x1, middle)
    else:
        canvas.arrow(way.x1, way.y1, way.x2, way.y2, ink)
    if way.label:
        canvas.text(*way.label_at, words(way.label), ink, size=_SMALL)
