"""Live values of runbooks: the words that a page names in `<!-- live: ... -->`, and their values.

The page is shown even without a reading. Then it says that nothing is known now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from reconciler.commands.status.report import StatusReport, SubscriptionStatus
from reconciler.contract.facts import Fact
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.telling.ports.reports import VerdictCount
from reconciler.web.console.overview import severity
from reconciler.web.services import WebServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A column with numbers of keys. Each number links to the listing of these keys."""

    query: Mapping[str, str]
    of: Callable[[VerdictCount], bool]


#: Word -> column that counts keys. The column has one number per subscription.
COUNTED: Mapping[str, Counted] = {
    "lost": Counted(query={"state": "OPEN"}, of=lambda v: v.is_open_loss),
    "quarantined": Counted(
        query={"state": "QUARANTINED", "loss": "all"}, of=lambda v: v.state is CandidateState.QUARANTINED
    ),
    "unknown": Counted(query={"verdict": "UNKNOWN", "loss": "all"}, of=lambda v: v.verdict is Verdict.UNKNOWN),
    "lagging": Counted(query={"verdict": "LAGGING", "loss": "all"}, of=lambda v: v.verdict is Verdict.LAGGING),
    "rolled-back-wrongly": Counted(
        query={"verdict": "ROLLED_BACK_WRONGLY"}, of=lambda v: v.verdict is Verdict.ROLLED_BACK_WRONGLY
    ),
}
#: Words of the columns that count no keys. They also have one value per subscription.
COLUMNS = ("accounted", "round", "watermark", "pending")
#: Lines of the status. The words are their names in the status.
LINES = ("away", "late", "undecided", "undecidable", "doubled", "damaged", "unproved", "lagging-groups", "unswept")
#: Lists and forms below the lines of the status. Each is a macro of templates/live_values.html.
BLOCKS = ("holds", "hold", "failed", "outages", "rebuild", "repair-all", "health")
WORDS = frozenset((*COUNTED, *COLUMNS, *LINES, *BLOCKS))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRow:
    """The live values of one subscription."""

    status: SubscriptionStatus
    #: Word -> number of keys.
    counts: Mapping[str, int]


def values(services: WebServices, words: Set[str]) -> Mapping[str, object]:
    """Returns the values that templates/live_values.html needs for the words of one page."""
    report = services.status.get()
    return {
        "report": report,
        "severity": "" if report is None else severity(report),
        "counted_words": {word: one.query for word, one in COUNTED.items() if word in words},
        "columns": [word for word in COLUMNS if word in words],
        "rows": [] if report is None else _rows(report, words),
        "lines": [] if report is None else _lines(report, words),
        "failed": 0 if report is None else _failed(report),
        "topics": sorted({subscription.topic for subscription in services.settings.subscriptions}),
    }


def _rows(report: StatusReport, words: Set[str]) -> Sequence[LiveRow]:
    return [
        LiveRow(
            status=status,
            counts={
                word: sum(v.count for v in report.verdicts if v.subscription == status.subscription and one.of(v))
                for word, one in COUNTED.items()
                if word in words
            },
        )
        for status in report.subscriptions
    ]


def _lines(report: StatusReport, words: Set[str]) -> Sequence[Fact]:
    named = [report.remarks[word.removesuffix("-groups")] for word in LINES if word in words]
    return [line for lines in named for line in lines]


def _failed(report: StatusReport) -> int:
    return sum(repair.count for repair in report.repairs if repair.state is RepairState.FAILED)
