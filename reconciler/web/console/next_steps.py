"""The next steps: links to the page that shows or ends what is wrong now, and to its runbook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reconciler.commands.status.report import StatusReport
from reconciler.commands.status.standstill import NeedKind
from reconciler.contract.tables import HoldKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """One link. The list of links begins with the most urgent one."""

    #: Last word of the catalogue key of the link's text.
    name: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    #: A page of docs/runbooks. Empty: there is none.
    runbook: str = ""
    #: Number in the text of the link.
    count: int = 0
    topic: str = ""


_OF_NEED = {
    NeedKind.QUARANTINED: ("/losses", {"state": "QUARANTINED", "loss": "all"}, "Quarantined"),
    NeedKind.FAILED: ("/repairs", {"state": "FAILED"}, "RepairFailing"),
    NeedKind.BREAKER: ("/brakes", {}, "BreakerOpen"),
}


def next_steps(report: StatusReport) -> Iterator[NextStep]:
    """Yields the links. Nothing is yielded if nothing is wrong."""
    if report.away:
        yield NextStep(name="away", path="/health")
    if any(outage.closed_at_ms is None for outage in report.outages):
        yield NextStep(name="outage", path="/outages", runbook="RedisMemoryLost")
    if report.remarks["late"]:
        yield _why_late(report)
    for need in report.needs:
        path, query, runbook = _OF_NEED[need.kind]
        name = f"{need.kind.value}"
        yield NextStep(name=name, path=path, query=query, runbook=runbook, count=need.count, topic=need.topic)
    lost = report.lost
    if lost:
        yield NextStep(name="lost", path="/losses", query={"state": "OPEN"}, runbook="LostMessages", count=lost)
    if report.undecided:
        query = {"verdict": "UNKNOWN", "loss": "all"}
        yield NextStep(name="undecided", path="/losses", query=query, runbook="LookupsUnknown")
    if report.damaged:
        yield NextStep(name="damaged", path="/docs/how-to/troubleshooting.md")
    if report.behind:
        query = {"verdict": "LAGGING", "loss": "all"}
        yield NextStep(name="lagging", path="/losses", query=query, runbook="WatermarkStuck")
    if report.handed_out:
        yield NextStep(name="handed_out", path="/losses", query={"verdict": "UNKNOWN", "loss": "all"})
    for hold in report.holds:
        if hold.kind is HoldKind.HOLD:
            yield NextStep(name="held", path="/brakes", topic=hold.topic)


def _why_late(report: StatusReport) -> NextStep:
    """Makes the link to the page of what is late. If rounds are late, it leads to the rounds, because the page of
    health does not show them."""
    said, runbook = report.summed_up, "AccountedUntilStale"
    for status in report.subscriptions:
        of, account = status.subscription, status.accounted
        if account.is_late_by_rounds and of == said.subscription:
            query = {"topic": of.topic, "group": of.group}
            return NextStep(name="rounds", path="/rounds", query=query, runbook=runbook, topic=of.topic)
    return NextStep(name="late", path="/health", runbook=runbook)
