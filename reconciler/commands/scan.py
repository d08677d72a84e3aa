"""`reconciler scan` finds halves that are stuck or given up. The report says why, and until when brokers still ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.visible_text import excerpt
from reconciler.halves.outcomes import HalfOutcomes
from reconciler.halves.scan import Progress
from reconciler.halves.values import UNDELIVERED, BrokerFindings, Half, HalfFate
from reconciler.policy.commit_query import BusinessState
from reconciler.wiring.commit_queries import OF_TOPIC
from reconciler.wiring.half_scan import ScanRequest, scan_halves
from reconciler.wiring.query_trials import UNFIT
from reconciler.words import said

#: Sentences that say what to do about the halves of a row.
START_PRODUCER = Code("scan.start-producer", group=Field.NAME, until_ms=Field.TIME)
LOOK_AT_ANSWERS = Code("scan.look-at-answers", group=Field.NAME, until_ms=Field.TIME)
LET_IT_BE_ASKED = Code("scan.let-it-be-asked", until_ms=Field.TIME)
SEE_PRODUCERS = Code("scan.see-producers", group=Field.NAME, until_ms=Field.TIME)
MEND_CHECK_SERVICE = Code("scan.mend-check-service", broker=Field.NAME)
NOBODY_ASKS = Code("scan.nobody-asks", kept_until_ms=Field.TIME)
LAST_QUESTION_IS_OVER = Code("scan.last-question-is-over")
LOOK_AGAIN = Code("scan.look-again")
NOTHING_LOST = Code("scan.nothing-lost")
ROLLED_BACK_UNSEEN = Code("scan.rolled-back-unseen")
DECIDE_GIVEN_UP = Code("scan.decide-given-up", kept_until_ms=Field.TIME)
LOST = Code("scan.lost", kept_until_ms=Field.TIME)
COMMITTED_AND_STUCK = Code("scan.committed-and-stuck", next=Field.FACT)
COMMITTED_UNSEEN = Code("scan.committed-unseen", kept_until_ms=Field.TIME)
ROLLED_BACK_THERE = Code("scan.rolled-back-there")
NO_ROW_THERE = Code("scan.no-row-there")
NOT_ASKED_THERE = Code("scan.not-asked-there", next=Field.FACT)
NOT_KNOWN_THERE = Code("scan.not-known-there", why=Field.FACT, next=Field.FACT)
PROVED = Code("scan.proved", lost=Field.NUMBER, stuck=Field.NUMBER, harmless=Field.NUMBER, unknown=Field.NUMBER)
STANDS = Code("scan.stands", broker=Field.NAME, minutes=Field.NUMBER)
STOPPED_EARLY = Code("scan.stopped-early", broker=Field.NAME)
OF_BROKER = Code("scan.of-broker", broker=Field.NAME, told=Field.FACT)
NOT_LOOKED_UP = Code("scan.not-looked-up", number=Field.NUMBER)
SUMMARY = Code(
    "scan.summary",
    brokers=Field.NUMBER,
    stuck=Field.NUMBER,
    given_up=Field.NUMBER,
    fresh=Field.NUMBER,
    delivered=Field.NUMBER,
)

#: After this number of questions about a half, a connected producer evidently does not decide.
_ASKED_IN_VAIN = 3
#: Halves without an answer come first.
_ORDER = (*sorted(UNDELIVERED, reverse=True), *sorted(set(HalfFate) - UNDELIVERED))
#: Columns of the table of groups.
GROUP_COLUMNS = (
    "topic",
    "producer group",
    "state",
    "business",
    "halves",
    "oldest",
    "asked",
    "producers",
    "questions left",
    "last question",
    "kept until",
    "next",
)
OUTCOME_COLUMNS = ("topic", "producer group", "halves", "committed", "rolled back", "committed again")
HALF_COLUMNS = ("topic", "unique key", "keys", "state", "business", "age", "asked", "broker")
#: Maximum number of characters of a half's keys in a row.
KEYS_SHOWN_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfGroup:
    """Halves of one topic and producer group that have the same state and the same answer of the business."""

    topic: str
    producer_group: str
    state: HalfFate
    business: BusinessState | None
    halves: tuple[Half, ...]
    #: Number of clients that the halves' brokers could ask now. None: a broker gave no number.
    producers: int | None
    next_step: Fact

    @property
    def keys(self) -> int:
        """Number of halves. A half on two brokers counts once."""
        return len({half.copy.identity for half in self.halves})

    @property
    def oldest_born_ms(self) -> int:
        """The time at which the oldest half was born."""
        return min(half.copy.born_ms for half in self.halves)

    @property
    def asked(self) -> tuple[int, int]:
        """The fewest and the most questions that producers were asked about a half."""
        times = [half.copy.asked for half in self.halves]
        return min(times), max(times)

    @property
    def questions_left(self) -> int | None:
        """Number of questions that are left for the half with the fewest questions left."""
        return min((half.questions_left for half in self.halves if half.questions_left is not None), default=None)

    @property
    def asked_until_ms(self) -> int | None:
        """The time at which the first half is given up."""
        return min((half.asked_until_ms for half in self.halves if half.asked_until_ms is not None), default=None)

    @property
    def kept_until_ms(self) -> int | None:
        """The time from which on the first half may be deleted."""
        return min((half.kept_until_ms for half in self.halves if half.kept_until_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The report of a scan."""

    scanned_at_ms: int
    older_than_seconds: float
    findings: Sequence[BrokerFindings]
    groups: Sequence[HalfGroup]
    #: Topic -> why its commit query was not asked.
    query_problems: Mapping[str, Sequence[Fact]] = field(default_factory=dict)
    #: Topic -> further remarks about its commit query.
    query_notes: Mapping[str, Sequence[Fact]] = field(default_factory=dict)

    @property
    def outcomes(self) -> list[tuple[str, str, HalfOutcomes]]:
        """(Topic, producer group, how the halves ended on all brokers). Empty: the scan did not ask for outcomes."""
        found: dict[tuple[str, str], HalfOutcomes] = {}
        for one in self.findings:
            for pair, outcome in (one.outcomes or {}).items():
                found.setdefault(pair, HalfOutcomes()).add(outcome)
        return [(*pair, outcome) for pair, outcome in sorted(found.items())]

    @property
    def halves(self) -> list[Half]:
        """All halves. Stuck and given-up halves come first. Halves of one state are ordered by age."""
        found = [half for one in self.findings for half in one.halves]
        return sorted(found, key=lambda half: (_ORDER.index(half.state), half.copy.born_ms, half.copy.identity))

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 130: the scan was stopped.
        Exit code 3: the halves of a broker could not be read, or a commit query was not asked.
        Exit code 1: a half that may be lost is too old.
        Exit code 0: every other case.
        """
        if not self.is_finished:
            return 130
        if any(one.unread is not None for one in self.findings) or any(self.query_problems.values()):
            return 3
        limit_ms = self.scanned_at_ms - round(self.older_than_seconds * 1000)
        return int(any(may_be_lost(half) and half.copy.since_ms < limit_ms for half in self.halves))

    @property
    def is_finished(self) -> bool:
        """True unless the scan was stopped before its end."""
        return all(one.is_finished for one in self.findings)

    def summary(self) -> Fact:
        """Returns the counts in one sentence."""

        def count(*states: HalfFate) -> int:
            return len({half.copy.identity for half in self.halves if half.state in states})

        return SUMMARY(
            brokers=len(self.findings),
            stuck=count(HalfFate.OPEN),
            given_up=count(HalfFate.GIVEN_UP),
            fresh=count(HalfFate.FRESH),
            delivered=count(HalfFate.DELIVERED, HalfFate.GIVEN_UP_DELIVERED),
        )

    def proved(self) -> Fact | None:
        """Returns what the tables of the business say, in one sentence. None: these tables were not asked."""
        asked = {half.copy.identity: half for half in self.halves if half.business is not None}.values()
        if not asked:
            return None

        def count(*states: BusinessState, given_up: bool | None = None) -> int:
            return sum(
                half.business_state in states and given_up in (None, half.state is HalfFate.GIVEN_UP) for half in asked
            )

        return PROVED(
            lost=count(BusinessState.COMMITTED, given_up=True),
            stuck=count(BusinessState.COMMITTED, given_up=False),
            harmless=count(BusinessState.ROLLED_BACK, BusinessState.NO_ROW),
            unknown=count(BusinessState.UNKNOWN),
        )

    def notes(self) -> Iterator[Fact]:
        """Yields remarks: what the business says, which check services do not move, and what could not be read."""
        if (proved := self.proved()) is not None:
            yield proved
        for of_topics in (self.query_problems, self.query_notes):
            for topic, told_of_query in of_topics.items():
                yield from (OF_TOPIC(topic=topic, told=one) for one in told_of_query)
        for one in self.findings:
            if one.stands_seconds is not None:
                yield STANDS(broker=one.broker, minutes=round(one.stands_seconds / 60))
            told = [one.unread] if one.unread is not None else []
            for note in (*told, *(one.notes or ())):
                yield OF_BROKER(broker=one.broker, told=note)
            if not one.is_finished:
                yield STOPPED_EARLY(broker=one.broker)
        if blind := sum(not half.is_looked_up for half in self.halves):
            yield NOT_LOOKED_UP(number=blind)

    def as_dict(self) -> dict[str, Any]:
        """Returns the whole report for programs."""
        summary, notes = self.summary(), list(self.notes())
        return {
            "scanned_at_ms": self.scanned_at_ms,
            "summary": said(summary),
            "counts": dict(summary.values),
            "brokers": [_broker(one) for one in self.findings],
            "groups": [_group(one) for one in self.groups],
            "halves": [half_row(half) for half in self.halves],
            "outcomes": [outcome_row(*row) for row in self.outcomes],
            "notes": [_told(note) for note in notes],
        }

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yields the whole report as many small objects. `kind` says what an object is."""
        whole = self.as_dict()
        parts = {kind: whole.pop(kind) for kind in ("brokers", "groups", "halves", "outcomes", "notes")}
        yield {"kind": "scan", **whole}
        for kind, members in parts.items():
            yield from ({"kind": kind.removesuffix("s").replace("halve", "half"), **member} for member in members)


def run_scan(request: ScanRequest, *, older_than_seconds: float, topic: str | None, progress: Progress) -> ScanReport:
    """Runs one scan. Raises BrokerUnavailable if no name server answers."""
    findings = scan_halves(request, progress=progress)
    if topic is not None:
        for one in findings:
            one.halves = tuple(half for half in one.halves if half.copy.topic == topic)
            one.outcomes = {pair: outcome for pair, outcome in (one.outcomes or {}).items() if pair[0] == topic}
    report = report_of(findings, clock=request.clock, older_than_seconds=older_than_seconds)
    if request.business is None:
        return report
    problems, notes = (
        {of: facts for of, facts in told.items() if topic in (None, of)}
        for told in (request.business.problems, request.business.notes)
    )
    return replace(report, query_problems=problems, query_notes=notes)


def report_of(findings: Sequence[BrokerFindings], *, clock: Clock, older_than_seconds: float) -> ScanReport:
    """Returns the report for the findings of all brokers."""
    standing = {one.broker for one in findings if one.stands_seconds is not None}
    halves = [half for one in findings for half in one.halves]
    return ScanReport(
        scanned_at_ms=clock.now_ms(),
        older_than_seconds=older_than_seconds,
        findings=findings,
        groups=list(_groups(halves, standing)),
    )


def _groups(halves: Iterable[Half], standing: set[str]) -> Iterator[HalfGroup]:
    rows: dict[tuple[int, str, str, str], list[Half]] = {}
    for half in halves:
        key = (_ORDER.index(half.state), half.copy.topic, half.copy.producer_group, half.business_state or "")
        rows.setdefault(key, []).append(half)
    for (order, topic, group, _), members in sorted(rows.items()):
        told = {half.copy.broker: half.producers for half in members}
        counts = [number for number in told.values() if number is not None]
        producers = None if len(counts) < len(told) else sum(counts)
        yield HalfGroup(
            topic=topic,
            producer_group=group,
            state=_ORDER[order],
            business=members[0].business_state,
            halves=tuple(members),
            producers=producers,
            next_step=_next(_ORDER[order], members, producers=producers, standing=standing),
        )


def may_be_lost(half: Half) -> bool:
    """Returns True if the business has committed the message, or if the half is undelivered and without an answer."""
    if half.business_state is BusinessState.COMMITTED:
        return True
    return half.state in UNDELIVERED and half.business_state in (None, BusinessState.UNKNOWN)


def _next(state: HalfFate, halves: Sequence[Half], *, producers: int | None, standing: set[str]) -> Fact:
    """Returns what to do about the halves of a row. The answer of the business decides first."""
    business = halves[0].business
    kept_until_ms = min((half.kept_until_ms or 0 for half in halves), default=0)
    by_itself = next_step(state, halves, producers=producers, standing=standing)
    match None if business is None else business.state:
        case BusinessState.ROLLED_BACK:
            return ROLLED_BACK_THERE()
        case BusinessState.NO_ROW:
            return NO_ROW_THERE()
        case BusinessState.UNKNOWN if business is not None and business.why is not None:
            if business.why.code is UNFIT:  # the notes have the reason
                return NOT_ASKED_THERE(next=by_itself)
            return NOT_KNOWN_THERE(why=business.why, next=by_itself)
        case BusinessState.COMMITTED if state is HalfFate.GIVEN_UP:
            return LOST(kept_until_ms=kept_until_ms)
        case BusinessState.COMMITTED if state is HalfFate.ENDED:
            return COMMITTED_UNSEEN(kept_until_ms=kept_until_ms)
        case BusinessState.COMMITTED:
            return COMMITTED_AND_STUCK(next=by_itself)
    return by_itself


def next_step(state: HalfFate, halves: Sequence[Half], *, producers: int | None, standing: set[str]) -> Fact:
    """Returns what to do about halves of a row for which the answer of the business decides nothing."""
    oldest = min(halves, key=lambda half: half.copy.born_ms)
    match state:
        case HalfFate.FRESH:
            return LOOK_AGAIN()
        case HalfFate.DELIVERED | HalfFate.GIVEN_UP_DELIVERED:
            return NOTHING_LOST()
        case HalfFate.ENDED:
            return ROLLED_BACK_UNSEEN()
        case HalfFate.GIVEN_UP:
            return DECIDE_GIVEN_UP(kept_until_ms=oldest.kept_until_ms or 0)
    stands = sorted({half.copy.broker for half in halves} & standing)
    if stands:
        return MEND_CHECK_SERVICE(broker=stands[0])
    if all(half.asked_until_ms is None for half in halves):
        return NOBODY_ASKS(kept_until_ms=oldest.kept_until_ms or 0)
    until_ms = min(half.asked_until_ms or 0 for half in halves)
    group = oldest.copy.producer_group
    if all(half.questions_left == 0 for half in halves):
        return LAST_QUESTION_IS_OVER()
    if producers is None:
        return SEE_PRODUCERS(group=group, until_ms=until_ms)
    if producers == 0:
        return START_PRODUCER(group=group, until_ms=until_ms)
    if oldest.copy.asked < _ASKED_IN_VAIN:
        return LET_IT_BE_ASKED(until_ms=until_ms)
    return LOOK_AT_ANSWERS(group=group, until_ms=until_ms)


def outcome_row(topic: str, group: str, outcome: HalfOutcomes) -> dict[str, Any]:
    """Returns the outcomes of halves of a topic and producer group as plain data for JSON."""
    return {
        "topic": topic,
        "producer_group": group,
        "halves": outcome.halves,
        "committed": outcome.committed,
        "rolled_back": outcome.rolled_back,
        "committed_again": outcome.committed_again,
    }


def keys_text(half: Half) -> str:
    """Returns the key by which a person finds the business of a half: the key of its commit query, otherwise KEYS."""
    return excerpt(half.copy.business_key or half.copy.keys, KEYS_SHOWN_MAX)


def half_row(half: Half) -> dict[str, Any]:
    """Returns a half as plain data for JSON."""
    copy = half.copy
    return {
        "broker": copy.broker,
        "topic": copy.topic,
        "producer_group": copy.producer_group,
        "unique_key": copy.unique_key,
        "keys": copy.keys or None,
        "state": half.state.value,
        "business": None if half.business_state is None else half.business_state.value,
        "business_why": None if half.business is None or half.business.why is None else _told(half.business.why),
        "business_key": copy.business_key or None,
        "born_at_ms": copy.born_ms,
        "stored_at_ms": copy.store_ms,
        "asked": copy.asked,
        "producers": half.producers,
        "questions_left": half.questions_left,
        "asked_until_ms": half.asked_until_ms,
        "kept_until_ms": half.kept_until_ms,
        "is_looked_up": half.is_looked_up,
        "queue_offset": copy.queue_offset,
        "commit_log_offset": copy.commit_log_offset,
        "message_id": copy.offset_message_id,
    }


def _group(group: HalfGroup) -> dict[str, Any]:
    fewest, most = group.asked
    return {
        "topic": group.topic,
        "producer_group": group.producer_group,
        "state": group.state.value,
        "business": None if group.business is None else group.business.value,
        "halves": group.keys,
        "oldest_born_at_ms": group.oldest_born_ms,
        "asked_min": fewest,
        "asked_max": most,
        "producers": group.producers,
        "questions_left": group.questions_left,
        "asked_until_ms": group.asked_until_ms,
        "kept_until_ms": group.kept_until_ms,
        "next": _told(group.next_step),
    }


def _broker(one: BrokerFindings) -> dict[str, Any]:
    return {
        "broker": one.broker,
        "address": one.address,
        "version": one.version,
        "records_read": one.records_read,
        "check_service_stands_seconds": one.stands_seconds,
        "unread": None if one.unread is None else _told(one.unread),
        "is_finished": one.is_finished,
    }


def _told(fact: Fact) -> dict[str, Any]:
    return {"text": said(fact), **fact.as_dict()}


def age_text(milliseconds: int) -> str:
    """Returns an age in its two largest units."""
    seconds = max(0, milliseconds) // 1000
    days, hours, minutes = seconds // 86_400, seconds % 86_400 // 3_600, seconds % 3_600 // 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"
