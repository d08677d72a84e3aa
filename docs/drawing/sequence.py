"""A sequence drawing: who sends what to whom, one step under the other, and what an accident takes away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from docs.drawing.canvas import FONT_SIZE, LINE_HEIGHT, MARGIN, WIDTH, Canvas, Ink, width_of, wrapped


class Lane(Enum):
    """One that takes part, from left to right. The outbox lies in the database, the inbox at the consumer's."""

    PRODUCER = "producer"
    DATABASE = "database"
    BROKER = "broker"
    CONSUMER = "consumer"
    REDIS = "Redis"
    RECONCILER = "reconciler"

    @property
    def x(self) -> float:
        """Of its line."""
        return _FIRST_X + _STEP_X * list(Lane).index(self)


_FIRST_X, _STEP_X = 36.0, 62.5
_LABEL_SIZE = 10.5
_ROW = 21.0


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something that is sent; one that is lost does not arrive."""

    tail: Lane
    head: Lane
    label: str = ""
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happens to one alone; an accident is crossed out."""

    lane: Lane
    label: str
    is_accident: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence and what it looks like."""

    sentence: str
    shown: tuple[Arrow | Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Steps that belong together. A heading and an end are optional."""

    steps: tuple[Step, ...]
    heading: str = ""
    #: The number of its first step.
    first: int = 1
    end: str = ""
    is_repair: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A drawing."""

    #: Of its file.
    name: str
    title: str
    parts: tuple[Part, ...]


Words = Callable[[str], str]


def drawn(story: Story, words: Words, *, language: str) -> str:
    """The SVG, with every text as `words` has it in this language."""
    canvas, above = _Columns(), 34.0
    told: list[str] = []
    canvas.names(words)
    for part in story.parts:
        above = canvas.part(part, words, above)
        told += [_told(part, words)]
    height = above + 4
    canvas.close(height)
    return canvas.finished(height, title=words(story.title), told=" ".join(told), language=language)


def _told(part: Part, words: Words) -> str:
    lines = [words(part.heading)] if part.heading else []
    lines += [f"{number}. {words(step.sentence)}" for number, step in enumerate(part.steps, part.first)]
    return " ".join([*lines, words(part.end)] if part.end else lines)


class _Columns(Canvas):
    """The lanes' lines lie below all that is drawn upon them."""

    def __init__(self) -> None:
        super().__init__()
        self._bands = Canvas()
        #: What lies behind the text of this part.
        self._ground = "paper"

    def names(self, words: Words) -> None:
        for lane in Lane:
            self.text(lane.x, 20, words(lane.value), is_bold=True, size=_LABEL_SIZE, anchor="middle")

    def close(self, height: float) -> None:
        for lane in Lane:
            self._bands.line(lane.x, 28, lane.x, height - 6, Ink.FAINT, width=1, dashes="2 3")
        self.lie_above(self._bands)

    def part(self, part: Part, words: Words, above: float) -> float:
        """Gives where it ends."""
        began = above
        self._ground = "band" if part.is_repair else "paper"
        if part.heading:
            above = self._written(words(part.heading), above + 6, Ink.MEND, is_bold=True) + 4
        for number, step in enumerate(part.steps, part.first):
            above = self._step(f"{number}. ", step, words, above)
        if part.end:
            above = self._written(words(part.end), above, Ink.MEND if part.is_repair else Ink.LOST, is_bold=True) + 2
        if part.is_repair:
            self._bands.ground(2, began, WIDTH - 4, above - began + 4, "band")
            above += 4
        return above + 4

    def _step(self, number: str, step: Step, words: Words, above: float) -> float:
        ink = Ink.MEND if self._ground == "band" else Ink.INK
        above = self._written(words(step.sentence), above, Ink.INK, number=number)
        above += 2
        for shown in step.shown:
            above += 5 * (isinstance(shown, Arrow) and shown.is_lost)
            row = above + _ROW - 7
            if isinstance(shown, Arrow):
                self._arrow(shown, words(shown.label) if shown.label else "", row, ink)
            else:
                self._mark(shown, words(shown.label), row, ink)
            above += _ROW
        return above + 6

    def _written(self, text: str, above: float, ink: Ink, *, number: str = "", is_bold: bool = False) -> float:
        """Lines of text across all lanes, on paper of their own. Gives where they end."""
        indent = width_of(number)
        room = (WIDTH - 2 * MARGIN - indent) / (1.12 if is_bold else 1)
        for index, line in enumerate(wrapped(text, room)):
            wide = indent + width_of(line, is_bold=is_bold)
            self.ground(MARGIN - 2, above, wide + 4, LINE_HEIGHT, self._ground, round_by=0)
            if number and not index:
                self.text(MARGIN, above + FONT_SIZE, number.strip(), Ink.FAINT)
            self.text(MARGIN + indent, above + FONT_SIZE, line, ink, is_bold=is_bold)
            above += LINE_HEIGHT
        return above

    def _arrow(self, arrow: Arrow, label: str, y: float, ink: Ink) -> None:
        tail, head = arrow.tail.x, arrow.head.x
        middle = (tail + head) / 2
        if arrow.is_lost:
            self.line(tail, y, middle, y, ink)
            self.line(middle, y, head, y, Ink.LOST, dashes="2 4")
            self.cross(middle, y)
        else:
            self.arrow(tail, y, head, y, ink)
            self.dot(tail, y, ink, radius=2.5)
        if label:
            over, above = Ink.LOST if arrow.is_lost else ink, y - 4 - 4 * arrow.is_lost
            wide = width_of(label, _LABEL_SIZE)
            self.ground(middle - wide / 2 - 1, above - 9, wide + 2, 11, self._ground, round_by=0)
            self.text(middle, above, label, over, size=_LABEL_SIZE, anchor="middle")

    def _mark(self, mark: Mark, label: str, y: float, ink: Ink) -> None:
        x, own = mark.lane.x, Ink.LOST if mark.is_accident else ink
        if mark.is_accident:
            self.cross(x, y, arm=5)
        else:
            self.dot(x, y, own)
        wide = width_of(label, _LABEL_SIZE)
        is_right = x + 10 + wide < WIDTH - 8
        self.ground(x + 9 if is_right else x - 11 - wide, y - 6, wide + 2, 12, self._ground, round_by=0)
        self.text(
            x + (10 if is_right else -10), y + 4, label, own, size=_LABEL_SIZE, anchor="start" if is_right else "end"
        )


def sentences(stories: Sequence[Story]) -> list[str]:
    """Every text that is drawn, each once."""
    found: dict[str, None] = dict.fromkeys(lane.value for lane in Lane)
    for story in stories:
        found[story.title] = None
        for part in story.parts:
            labels = [shown.label for step in part.steps for shown in step.shown]
            found |= dict.fromkeys(
                text for text in (part.heading, part.end, *(step.sentence for step in part.steps), *labels) if text
            )
    return list(found)
