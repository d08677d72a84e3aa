"""Puts classes into groups that a chart can show, and a window's hours into as many bars as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.audit.report.charts import Bar
from reconciler.audit.report.texts import Texts
from reconciler.audit.report.words import hour_label
from reconciler.audit.result.classes import RULES, VIOLATIONS
from reconciler.audit.result.values import JudgedWindow

#: CSS name of a series -> classes of the series, from the bottom of a bar to the top. The text `series.NAME` has the
#: name for people.
SERIES: Mapping[str, frozenset[str]] = {
    "in-time": frozenset({"EFFECT_IN_TIME"}),
    "repaired": frozenset({"REPAIRED"}),
    "late": frozenset({"EFFECT_LATE"}),
    "none": frozenset({"FILTERED", "REJECTED", "ROLLED_BACK"}),
    "pending": frozenset({"PENDING"}),
    "quarantined": frozenset({"QUARANTINED"}),
    "violation": VIOLATIONS,
}

#: Series in the order of a table's columns. What people look for comes first. The text `of-series.NAME` has the short
#: name.
COLUMNS = ("violation", "quarantined", "late", "repaired", "in-time", "none", "pending")

#: Largest number of bars of a chart.
BARS_MAX = 96
#: Possible numbers of hours of one bar.
_BIN_HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 2_016, 8_760)
_HOUR_MS = 3_600_000


def stack_of(classes: Mapping[str, int]) -> dict[str, int]:
    """Counts the keys of each series. An empty series has the count 0."""
    return {name: sum(classes.get(one, 0) for one in members) for name, members in SERIES.items()}


def worst_first(classes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Lists violation classes that have keys. The class with the most keys comes first.

    Classes with equally many keys keep the order of the list.
    """
    found = [(rule.name, classes.get(rule.name, 0)) for rule in RULES if rule.violation and classes.get(rule.name, 0)]
    return sorted(((str(name), count) for name, count in found), key=lambda one: -one[1])


def words_of(stack: Mapping[str, int], texts: Texts) -> str:
    """Says in words which series have keys."""
    of_series = [
        texts("of-stack", series=texts(f"series.{name}"), number=f"{keys:,}") for name, keys in stack.items() if keys
    ]
    return texts.listed(of_series) or texts("no-keys")


@dataclass(frozen=True, slots=True)
class BinnedVolume:
    """Hours of the window in bars of `bin_hours` hours. Hours without keys are included."""

    bin_hours: int
    #: Beginning of each bar, and the bar's keys by class.
    bins: tuple[tuple[int, Mapping[str, int]], ...]

    def bars(self, texts: Texts) -> list[Bar]:
        """Makes the bars of the chart."""
        bars: list[Bar] = []
        for start_ms, classes in self.bins:
            stack = stack_of(classes)
            label = hour_label(start_ms, self.bin_hours)
            title = texts("of-bar", label=label, words=words_of(stack, texts))
            bars.append(Bar(label, title, stack, stack["violation"]))
        return bars

    @property
    def bars_a_day(self) -> int:
        """Number of bars per day, at least 1."""
        return max(1, 24 // self.bin_hours)

    def width(self, texts: Texts) -> str:
        """Says how much time a bar covers."""
        if self.bin_hours % 24 == 0:
            return texts.counted(self.bin_hours // 24, "day")
        return texts.counted(self.bin_hours, "hour")


def binned_volume(judged: JudgedWindow) -> BinnedVolume:
    """Sums the hours of all subscriptions. An hour outside of the window would be shown, but does not occur."""
    hours: dict[int, Counter[str]] = {}
    for one in judged.subscriptions:
        for hour in one.volume:
            hours.setdefault(hour.hour_start_ms // _HOUR_MS, Counter()).update(hour.classes)
    first, last = _range(hours, judged)
    bin_hours = next((n for n in _BIN_HOURS if last // n - first // n < BARS_MAX), last - first + 1)
    bins: dict[int, Counter[str]] = {}
    if hours:
        bins = {index: Counter() for index in range(first // bin_hours, last // bin_hours + 1)}
    for index, classes in hours.items():
        bins[index // bin_hours].update(classes)
    return BinnedVolume(bin_hours, tuple((i * bin_hours * _HOUR_MS, classes) for i, classes in sorted(bins.items())))


def _range(hours: Iterable[int], judged: JudgedWindow) -> tuple[int, int]:
    window = judged.window
    ends = (window.start_ms // _HOUR_MS, max(window.start_ms, window.end_ms - 1) // _HOUR_MS)
    return min([ends[0], *hours]), max([ends[1], *hours])
