"""Charts as static SVG, without script or font. CSS classes give the colours.

The style sheet has light, dark and print. Each chart has a text alternative. A table beside the chart has the same
figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.audit.report.markup import Markup, join, tag
from reconciler.audit.report.words import duration, number

#: Lengths in the drawing in pixels. The drawing scales with the page.
_LEFT, _RIGHT = 64, 8
_TOP_PANEL, _LOW_PANEL, _BETWEEN, _HEAD, _FOOT = 190, 56, 34, 18, 30


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a drawing. A narrow screen has its own drawing, because words that are scaled down cannot be read."""

    #: CSS class of the drawing, and beginning of the drawing's ids.
    name: str
    width: int


WIDE, NARROW = Size("volume", 1040), Size("volume-narrow", 360)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin of the volume chart."""

    #: Text below the axis.
    label: str
    #: Text that is shown when the pointer is on the bar.
    title: str
    #: Series -> number of keys, from the bottom to the top.
    stack: Mapping[str, int]
    #: Number of keys in violation classes. They have a panel of their own, because seven would be invisible beside
    #: millions.
    violations: int


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution on the common scale of latencies, in milliseconds."""

    smallest: int
    middle: int
    high: int
    largest: int


def volume_chart(
    bars: Sequence[Bar], size: Size, *, bars_a_day: int, title: str, description: str, panels: tuple[str, str]
) -> Markup:
    """Draws stacked bars of all outcomes. Violations are drawn below on a scale of their own.

    `panels` names the two panels.
    """
    height = _HEAD + _TOP_PANEL + _BETWEEN + _LOW_PANEL + _FOOT
    floor, low_floor = _HEAD + _TOP_PANEL, _HEAD + _TOP_PANEL + _BETWEEN + _LOW_PANEL
    top = _ceiling(max((sum(bar.stack.values()) for bar in bars), default=0))
    low = _ceiling(max((bar.violations for bar in bars), default=0))
    step = (size.width - _LEFT - _RIGHT) / max(len(bars), 1)
    spoken = f"{size.name}-title", f"{size.name}-text"
    parts: list[Markup] = [tag("title", title, id=spoken[0]), tag("desc", description, id=spoken[1])]
    parts += _grid(top, floor, _TOP_PANEL, size, ticks=4) + _grid(low, low_floor, _LOW_PANEL, size, ticks=1)
    parts.append(tag("text", panels[0], x=_LEFT, y=10))
    parts.append(tag("text", panels[1], x=_LEFT, y=floor + 22))
    gap = min(2.0, step / 5)
    every = max(1, math.ceil(len(bars) * 118 / (size.width - _LEFT)))
    if 2 * every > bars_a_day:  # once every few days, at the same hour
        every = math.ceil(every / bars_a_day) * bars_a_day
    for index, bar in enumerate(bars):
        x = _LEFT + index * step
        parts.append(_bar(bar, x + gap / 2, min(step - gap, 60.0), (top, floor), (low, low_floor)))
        if index % every == 0 and index * step < size.width - _LEFT - 100:
            parts.append(tag("text", bar.label, x=_n(x), y=low_floor + 20))
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {size.width} {height}",
        role="img",
        aria_labelledby=" ".join(spoken),
        class_=f"volume {size.name}" if size != WIDE else size.name,
    )


def _bar(bar: Bar, x: float, width: float, upper: tuple[int, int], lower: tuple[int, int]) -> Markup:
    top, floor = upper
    low, low_floor = lower
    shapes: list[Markup] = [tag("title", bar.title)]
    y = float(floor)
    for series, keys in bar.stack.items():
        height = keys / top * _TOP_PANEL
        if keys:
            y -= height
            shapes.append(_rect(x, y, width, height, f"s-{series}"))
    if bar.violations:
        # At least two pixels, so that one violation is always visible.
        height = max(2.0, bar.violations / low * _LOW_PANEL)
        shapes.append(_rect(x, low_floor - height, max(width, 2.0), height, "s-violation"))
    return tag("g", *shapes)


def _grid(largest: int, floor: int, height: int, size: Size, *, ticks: int) -> list[Markup]:
    lines: list[Markup] = []
    ticks = min(ticks, largest)
    for tick in range(ticks + 1):
        y = floor - height * tick / ticks
        value = largest * tick // ticks
        css = "axis" if tick == 0 else "grid"
        lines.append(tag("line", x1=_LEFT, x2=size.width - _RIGHT, y1=_n(y), y2=_n(y), class_=css))
        lines.append(tag("text", number(value), x=_LEFT - 8, y=_n(y + 4), class_="tick"))
    return lines


def share_bar(stack: Mapping[str, int], *, text: str) -> Markup:
    """Draws how one whole divides into series."""
    whole = sum(stack.values())
    x = 0.0
    shapes: list[Markup] = []
    for series, keys in stack.items():
        if keys:
            width = keys / whole * 200
            shapes.append(_rect(x, 0, width, 10, f"s-{series}"))
            x += width
    return tag(
        "svg", *shapes, viewBox="0 0 200 10", preserveAspectRatio="none", role="img", aria_label=text, class_="share"
    )


#: Marks of the common scale of latencies.
SCALE_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)


def spread_line(spread: Spread, *, text: str) -> Markup:
    """Draws a distribution on a logarithmic scale.

    A line goes from smallest to largest, and a bar from the median to the 99th percentile. A mark shows the median.
    """
    marks = [tag("line", x1=_n(_on_scale(ms)), x2=_n(_on_scale(ms)), y1=0, y2=20, class_="grid") for ms in SCALE_MS]
    low, middle, high, largest = (_on_scale(ms) for ms in (spread.smallest, spread.middle, spread.high, spread.largest))
    shapes = [
        tag("line", x1=_n(low), x2=_n(max(largest, low + 1)), y1=10, y2=10, class_="range"),
        _rect(middle, 6, max(high - middle, 1.5), 8, "s-spread"),
        _rect(middle - 1, 2, 2.5, 16, "s-middle"),
    ]
    return tag("svg", *marks, *shapes, viewBox="0 0 240 20", role="img", aria_label=text, class_="spread")


def scale_header() -> Markup:
    """Draws the scale of spread_line. The scale is the head of the column of distributions."""
    shown = (1, 100, 10_000, 600_000, 86_400_000)
    labels = [tag("text", duration(ms).replace(" ", "\N{NO-BREAK SPACE}"), x=_n(_on_scale(ms)), y=11) for ms in shown]
    return tag("svg", join(labels), viewBox="0 0 240 14", aria_hidden="true", class_="spread")


def _on_scale(milliseconds: int) -> float:
    """Maps a duration between 0.5 ms and 3 days to a place from 12 to 228."""
    low, high = math.log10(0.5), math.log10(3 * 86_400_000)
    place = (math.log10(max(milliseconds, 0.5)) - low) / (high - low)
    return 12 + 216 * min(max(place, 0.0), 1.0)


def _ceiling(largest: int) -> int:
    """Finds a round number that is divisible by four, so that ticks are whole numbers."""
    if largest <= 4:
        return max(largest, 1)
    power: int = 10 ** (len(str(largest)) - 1)
    tops = (factor * power for factor in (1, 2, 4, 8, 12))
    return next(top for top in tops if top >= largest and top % 4 == 0)


def _rect(x: float, y: float, width: float, height: float, css: str) -> Markup:
    return tag("rect", x=_n(x), y=_n(y), width=_n(width), height=_n(height), class_=css)


def _n(value: float) -> str:
    """Writes a number with two decimals. The text is the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
