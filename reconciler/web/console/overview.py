"""The first page: one sentence, the next steps, one card per subscription, and the charts of the last hours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from reconciler.commands.activity import WIDTHS_MINUTES
from reconciler.commands.status.report import StatusReport, SubscriptionStatus
from reconciler.commands.status.standstill import NeedKind
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.telling.account import SummaryKind
from reconciler.telling.ports.activity import Activity
from reconciler.telling.ports.reports import VerdictCount
from reconciler.web.console.next_steps import next_steps
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices

HOURS_DEFAULT = 4
#: Maximum number of calm subscriptions that get a card each. More calm subscriptions share one line.
CALM_CARDS_MAX = 6
#: Maximum number of causes on the card of losses. The same limit holds for holds and for subscriptions. A link leads to
#: all of them.
INCIDENT_LINES_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCard:
    """The contents of a subscription's card."""

    status: SubscriptionStatus
    #: Number of lost messages that have not arrived yet, and the first time at which the earliest was seen.
    lost: int
    lost_since_ms: int | None
    #: Number of lost messages that have arrived later.
    repaired: int
    quarantined: int
    #: True: a hold, an open breaker or shadow mode stops all sends of the subscription's topic.
    is_stopped: bool

    @property
    def severity(self) -> str:
        """A class of the style."""
        if self.status.accounted.late:
            return "bad"
        return "warn" if self.lost or self.quarantined else "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calm:
    """Subscriptions that need nobody. One line shows them all."""

    number: int
    #: The earliest accounted-until time of these subscriptions. None: the time is unknown.
    accounted_until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums of all subscriptions. The page shows them in large type, because people look for them first."""

    lost: int
    #: Time since which messages are lost. None: nothing is lost.
    lost_since_ms: int | None
    quarantined: int
    failed: int
    #: Topics for which nothing is sent.
    stopped: Sequence[str]
    #: The earliest accounted-until time of all subscriptions. None: the time is unknown.
    accounted_until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The open losses of one subscription that have the same verdict."""

    subscription: Subscription
    verdict: Verdict
    count: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The present losses, as the called person needs them."""

    #: Causes, beginning with the largest. This list and the following lists have at most INCIDENT_LINES_MAX entries.
    causes: Sequence[Cause]
    #: Number of messages whose causes are left out.
    left_out: int
    #: Holds of topics with losses.
    holds: Sequence[HeldTopic]
    #: Subscriptions whose rounds are late. Their messages are not repaired automatically.
    still: Sequence[Subscription]
    #: Topics in shadow mode that have losses.
    shadow: Sequence[str]

    @property
    def severity(self) -> str:
        """A class of the style."""
        return "warn" if self.holds or self.still or self.shadow else "notice"


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows whether messages are lost, since when and why, and the next steps."""
    hours = _hours(request)
    services.activities[hours].begin()  # reading goes on while the status is read
    return page(
        services,
        request,
        "overview.html",
        **_now(services, request),
        hours=hours,
        choices=tuple(WIDTHS_MINUTES),
        width_ms=WIDTHS_MINUTES[hours] * 60_000,
        activity=services.activities[hours].get(),
    )


def show_now(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the part that the page reads repeatedly."""
    return page(services, request, "overview_now.html", **_now(services, request))


def show_table(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the figures of the charts as a table."""
    hours = _hours(request)
    return page(services, request, "activity_table.html", hours=hours, activity=services.newest_activity(hours))


def draw(services: WebServices, request: WebRequest) -> WebResponse:
    """Returns the figures of the charts as JSON."""
    return json_response(activity_document(services.newest_activity(_hours(request))))


def activity_document(activity: Activity) -> dict[str, Any]:
    """Makes the data of the charts. Each series is a list, all lists have the same length, and times are in seconds.

    The unfinished bucket is left out. Otherwise the line would fall at its end and look like an accident.
    """
    rows = [asdict(bucket) for bucket in activity.buckets[:-1]]
    series = {name: [row[name] for row in rows] for name in ("announced", "matched", "losses", "repairs")}
    for name in ("detection_mean_ms", "detection_max_ms"):
        seconds = [None if row[name] is None else row[name] / 1000 for row in rows]
        series[name.replace("_ms", "_seconds")] = seconds
    return {"at_seconds": [row["from_ms"] / 1000 for row in rows], **series}


def severity(report: StatusReport) -> str:
    """Returns a class of the style. The class is also the last word of its name's key in the catalogues."""
    if report.exit_code == 3:
        return "bad"
    if report.needs_a_person:
        return "warn"
    said = report.summed_up
    return "good" if said.kind is SummaryKind.WELL else "notice"


def _now(services: WebServices, request: WebRequest) -> dict[str, Any]:
    report, is_whole = services.newest_status(), request.asked("calm") == "each"
    stopped = {hold.topic for hold in report.holds}
    is_enabled_for = services.settings.repairs.is_enabled_for
    shadow = {one.subscription.topic for one in report.subscriptions if not is_enabled_for(one.subscription.topic)}
    stopped |= shadow
    # A line is left out if the sentence already says the same.
    said = report.summed_up
    told = {"late"} if len(report.late_lines) == len(report.remarks["late"]) == 1 and not report.late else set()
    told.add("acknowledged")  # the card of losses shows it
    told |= {said.kind.value} if said.kind in (SummaryKind.LAGGING, SummaryKind.UNSWEPT) else set()
    cards = _cards(report, stopped)
    calm = [card for card in cards if card.severity == "good"]
    is_told_once = len(calm) > CALM_CARDS_MAX and not is_whole
    return {
        "report": report,
        "severity": severity(report),
        "steps": tuple(next_steps(report)),
        "incident": incident_of(report, shadow=shadow),
        "figures": _figures(report, sorted(stopped)),
        "cards": cards[: len(cards) - len(calm)] if is_told_once else cards,
        "calm": _calm(calm) if is_told_once else None,
        "is_each_calm_shown": is_whole,
        "keep_days": services.settings.ledger.keep_days,
        "remarks": {name: lines for name, lines in report.remarks.items() if lines and name not in told},
    }


def incident_of(report: StatusReport, *, shadow: Set[str]) -> Incident | None:
    """Returns the present losses. None: nothing is lost."""
    found: dict[tuple[Subscription, Verdict], list[VerdictCount]] = {}
    for one in report.verdicts:
        if one.is_open_loss:
            found.setdefault((one.subscription, one.verdict), []).append(one)
    if not found:
        return None
    causes = [
        Cause(
            subscription=of,
            verdict=verdict,
            count=sum(one.count for one in counts),
            since_ms=min(one.oldest_ms for one in counts),
        )
        for (of, verdict), counts in found.items()
    ]
    causes.sort(key=lambda cause: -cause.count)
    lost = {of for of, _ in found}
    topics = {of.topic for of in lost}
    return Incident(
        causes=causes[:INCIDENT_LINES_MAX],
        left_out=sum(cause.count for cause in causes[INCIDENT_LINES_MAX:]),
        holds=[hold for hold in report.holds if hold.topic in topics][:INCIDENT_LINES_MAX],
        still=[
            one.subscription
            for one in report.subscriptions
            if one.subscription in lost and one.accounted.is_late_by_rounds
        ][:INCIDENT_LINES_MAX],
        shadow=sorted(shadow & topics)[:INCIDENT_LINES_MAX],
    )


def _figures(report: StatusReport, stopped: Sequence[str]) -> Figures:
    accounts = [status.accounted for status in report.subscriptions]
    known = [one.until_ms for one in accounts if one.until_ms is not None]
    lost = [verdict for verdict in report.verdicts if verdict.is_open_loss]
    return Figures(
        lost=report.lost,
        lost_since_ms=min((verdict.oldest_ms for verdict in lost), default=None),
        quarantined=sum(need.count for need in report.needs if need.kind is NeedKind.QUARANTINED),
        failed=sum(need.count for need in report.needs if need.kind is NeedKind.FAILED),
        stopped=stopped,
        accounted_until_ms=min(known) if known and len(known) == len(accounts) else None,
    )


def _calm(cards: Sequence[SubscriptionCard]) -> Calm:
    untils = [card.status.accounted.until_ms for card in cards]
    known = [until_ms for until_ms in untils if until_ms is not None]
    return Calm(number=len(cards), accounted_until_ms=min(known) if len(known) == len(untils) else None)


def _cards(report: StatusReport, stopped: Set[str]) -> Sequence[SubscriptionCard]:
    """Makes the cards. Cards that need somebody come first. Then the order of the settings counts."""
    cards, verdicts = [], defaultdict[Subscription, list[VerdictCount]](list)
    for one in report.verdicts:
        verdicts[one.subscription].append(one)
    for status in report.subscriptions:
        of = verdicts[status.subscription]
        lost = [v for v in of if v.is_open_loss]
        cards.append(
            SubscriptionCard(
                status=status,
                lost=sum(v.count for v in lost),
                lost_since_ms=min((v.oldest_ms for v in lost), default=None),
                repaired=sum(v.count for v in of if v.is_repaired_loss),
                quarantined=sum(v.count for v in of if v.state is CandidateState.QUARANTINED),
                is_stopped=status.subscription.topic in stopped,
            )
        )
    return sorted(cards, key=lambda card: ("bad", "warn", "good").index(card.severity))


def _hours(request: WebRequest) -> int:
    asked = request.asked("hours", str(HOURS_DEFAULT))
    if asked not in map(str, WIDTHS_MINUTES):
        raise InvalidValue("hours", asked[:20], f"one of {', '.join(map(str, WIDTHS_MINUTES))}")
    return int(asked)
