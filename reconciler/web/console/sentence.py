"""The sentence of `reconciler status` in the language of the page; in English the same, word for word (tested)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markupsafe import Markup

from reconciler.commands.status.report import StatusReport
from reconciler.policy.account import Summary, SummaryKind
from reconciler.policy.ports import COUNTED_MAX
from reconciler.web.console.catalogue import Catalogue
from reconciler.web.console.told import as_told
from reconciler.web.excerpts import shown

#: A time element of a time in milliseconds.
Moment = Callable[[object], Markup]


def sentence(report: StatusReport, words: Catalogue, moment: Moment) -> Markup:
    """What a person reads first."""
    said = report.summed_up
    if said is None:
        return words.text("sentence.classic")
    what = "announced" if said.sees_announced_only else "every"
    about = {"subscription": str(said.subscription), "cause": as_told(said.cause, words)}
    if said.kind is SummaryKind.LATE:
        more = words.text("sentence.more", number=said.more) if said.more else ""
        if said.until_ms is None:
            return words.text(f"sentence.{what}.late", more=more, **about)
        return words.text(f"sentence.{what}.late_after", more=more, at=moment(said.until_ms), **about)
    if said.kind is SummaryKind.NOT_YET:
        return words.text(f"sentence.{what}.nothing_yet", **about)
    if said.until_ms is None:
        until = words.text(f"sentence.{what}.not_yet", **about)
    else:
        until = words.text(f"sentence.{what}.until", at=moment(said.until_ms))
    return words.text(f"sentence.said.{said.kind.value}", about=_about(report, said, words), until=until)


def count_as_told(count: int, words: Catalogue) -> Markup:
    """A count of ledger rows, or a sum of such counts."""
    if count <= COUNTED_MAX:
        return Markup("{}").format(count)
    return words.text("sentence.more_than", number=COUNTED_MAX)


def need_lines(report: StatusReport, words: Catalogue) -> Iterator[Markup]:
    """What a person must look at, one line each."""
    for need in report.needs:
        yield words.text(f"sentence.need.{need.kind.value}", count=count_as_told(need.count, words), topic=need.topic)
    yield from (as_told(line, words) for line in (*report.doubled, *report.undecided, *report.damaged))


def _about(report: StatusReport, said: Summary, words: Catalogue) -> Markup:
    if said.kind is SummaryKind.PERSON:
        return words.text("sentence.between").join(need_lines(report, words))
    if said.kind is SummaryKind.LOST:
        return count_as_told(report.lost, words)
    if said.kind is SummaryKind.HELD:
        return words.text("sentence.comma").join(map(shown, said.about))
    return words.text("sentence.between").join(as_told(line, words) for line in said.about)
