"""What `status` says of one subscription or two, in every way that it can be."""

from __future__ import annotations

from dataclasses import replace

from reconciler.commands.asking.environment import OTHER_CLUSTER
from reconciler.commands.status.report import NO_INBOX, NO_OUTBOX, StatusReport, SubscriptionStatus
from reconciler.contract.facts import COUNTED_MAX, Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.telling.account import Account
from reconciler.telling.ports.reports import RepairCount, VerdictCount

NOW_MS = 1_700_000_000_000
ORDERS = Subscription(environment="production", topic="ORDERS", group="billing")
KNOWN = Watermark(state=WatermarkState.KNOWN, at_ms=NOW_MS - 5_000, detail=CONSUMED())


def fact_of(text: str) -> Fact:
    """A fact whose sentence is the text, as in lines that show somebody else's."""
    return OTHER_CLUSTER(why=text)


def facts_of(*texts: str) -> tuple[Fact, ...]:
    return tuple(map(fact_of, texts))


def status_of(
    subscription: Subscription = ORDERS, *, late: tuple[str, ...] = (), **other: object
) -> SubscriptionStatus:
    """Calm, but for what is given."""
    waits = fact_of("it waits for a round")
    found = SubscriptionStatus(
        subscription=subscription,
        pending=0,
        oldest_pending_ms=None,
        watermark=KNOWN,
        last_round_ms=NOW_MS,
        accounted=Account(subscription=subscription, until_ms=NOW_MS - 1_000, cause=waits, late=facts_of(*late)),
        weaker=(),
    )
    return replace(found, **other)  # type: ignore[arg-type]  # fields by name


def report_of(*subscriptions: SubscriptionStatus, **other: object) -> StatusReport:
    """Of one calm subscription where none is given."""
    calm = StatusReport(
        subscriptions=subscriptions or (status_of(),),
        verdicts=(),
        repairs=(),
        holds=(),
        outages=(),
        away=(),
        asked_ms=NOW_MS,
    )
    return replace(calm, **other)  # type: ignore[arg-type]  # fields by name


def verdicts(state: CandidateState, verdict: Verdict, *, count: int = 3, loss: Verdict | None = None) -> VerdictCount:
    """Keys of ORDERS/billing, the oldest an hour old."""
    return VerdictCount(
        subscription=ORDERS, state=state, verdict=verdict, loss_verdict=loss, count=count, oldest_ms=NOW_MS - 3_600_000
    )


QUARANTINED = verdicts(CandidateState.QUARANTINED, Verdict.DEAD_LETTERED)
LOST = verdicts(CandidateState.OPEN, Verdict.LOST_CONFIRM, loss=Verdict.LOST_CONFIRM)
REPAIRED = verdicts(CandidateState.SETTLED, Verdict.CONSUMED, count=2, loss=Verdict.PARKED)
FAILED = RepairCount(topic="ORDERS", scope="*", state=RepairState.FAILED, rung=Rung.END, attempted=2, count=2)
HELD = HeldTopic(topic="ORDERS", kind=HoldKind.HOLD, since_ms=NOW_MS, by="ann", reason="release")
OPEN = replace(HELD, kind=HoldKind.BREAKER)
_NOT_YET = Account(subscription=ORDERS, until_ms=None, cause=fact_of("there never was a round"))
_NEVER = replace(_NOT_YET, late=facts_of("nobody reads it", "no sweep"))

#: Name -> one report for each form of the sentence.
REPORTS = {
    "calm": report_of(),
    "calm of what is announced": report_of(status_of(weaker=(NO_OUTBOX(),))),
    "losses on their way back": report_of(verdicts=(LOST, REPAIRED)),
    "losses that nobody counts further": report_of(verdicts=(replace(LOST, count=COUNTED_MAX + 1), LOST)),
    "held": report_of(holds=(HELD, replace(HELD, topic="PAYMENTS"))),
    "away": report_of(away=facts_of("Redis is away", "a broker, too")),
    "a loss without a repair": report_of(
        late=facts_of(
            "3 losses were proved and have no repair",
        )
    ),
    "a person is needed": report_of(
        verdicts=(QUARANTINED, LOST, REPAIRED), repairs=(FAILED,), holds=(OPEN,), undecided=facts_of("one", "two")
    ),
    "a person is needed for more than are counted": report_of(
        verdicts=(replace(QUARANTINED, count=COUNTED_MAX + 1), replace(LOST, count=COUNTED_MAX + 1)),
        repairs=(replace(FAILED, count=COUNTED_MAX), replace(FAILED, count=7)),
    ),
    "damaged": report_of(
        damaged=facts_of(
            "a row",
        ),
        doubled=facts_of(
            "two effects",
        ),
        rejected=facts_of(
            "a foreign one",
        ),
    ),
    "late": report_of(
        status_of(late=("nobody reads it", "no sweep")),
        away=facts_of(
            "a broker",
        ),
    ),
    "late by one": report_of(status_of(late=("nobody reads it",))),
    "late since ever": report_of(status_of(accounted=_NEVER)),
    "late of what is announced": report_of(status_of(accounted=_NEVER, weaker=(NO_OUTBOX(), NO_INBOX()))),
    "late of what is announced, since": report_of(status_of(late=("nobody reads it",), weaker=(NO_OUTBOX(),))),
    "nothing yet": report_of(status_of(accounted=_NOT_YET)),
    "nothing yet of what is announced": report_of(status_of(accounted=_NOT_YET, weaker=(NO_OUTBOX(),))),
    "nothing yet, and Redis is away": report_of(
        status_of(accounted=_NOT_YET, pending=None),
        away=facts_of(
            "Redis is away",
        ),
    ),
    "nothing yet of what is announced, and held": report_of(
        status_of(accounted=_NOT_YET, weaker=(NO_OUTBOX(),)), holds=(HELD,)
    ),
}
