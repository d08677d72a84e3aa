"""What status shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from reconciler.commands.asking.availability import AWAY, BROKER_AWAY, DATABASE_AWAY
from reconciler.commands.listings import LISTINGS, text_of
from reconciler.commands.status.standstill import Need, before_since, persons_needed
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import later_end
from reconciler.contract.subscription import Subscription
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.ports.ledger import HeldTopic, Outage
from reconciler.telling.account import Account, Summary, summary_of
from reconciler.telling.lag import Lag
from reconciler.telling.ports.reports import RepairCount, VerdictCount
from reconciler.words import counted, said, said_and_coded

if TYPE_CHECKING:
    from reconciler.history.reader import HistoryOverview

LATE = Code("status.late", subscription=Field.NAME, cause=Field.FACT)
#: Without an outbox, commits that were never announced cannot be seen.
NO_OUTBOX = Code("status.no-outbox")
NO_INBOX = Code("status.no-inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """The present state of one subscription."""

    subscription: Subscription
    #: None: Redis did not answer.
    pending: int | None
    oldest_pending_ms: int | None
    watermark: Watermark
    #: Time of the last round, or of the last look that found all shards at rest. None: no round has run.
    last_round_ms: int | None
    accounted: Account
    #: What cannot be proved here.
    weaker: tuple[Fact, ...]
    #: None: no message waits for the group, or not for long.
    lag: Lag | None = None
    #: Messages that the group was given before this time never count as lost. 0: every message can count as lost. None:
    #: the subscription has had no round yet.
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """Everything `reconciler status` shows."""

    subscriptions: tuple[SubscriptionStatus, ...]
    verdicts: tuple[VerdictCount, ...]
    repairs: tuple[RepairCount, ...]
    holds: tuple[HeldTopic, ...]
    outages: tuple[Outage, ...]
    #: One fact for each dependency that did not answer. Without an answer the report may be incomplete.
    away: tuple[Fact, ...]
    #: None: no history is configured, or the history did not answer.
    history: HistoryOverview | None = None
    #: One fact for each reason why "0 lost" means nothing, such as an open outage or losses without a repair.
    late: tuple[Fact, ...] = ()
    #: Facts about keys that had no verdict for half of the brokers' retention. Brokers will soon delete the messages.
    undecided: tuple[Fact, ...] = ()
    #: One fact for each subscription with UNKNOWN keys that this configuration cannot decide. Such keys are no alarm.
    undecidable: tuple[Fact, ...] = ()
    #: One fact for each popping group that was handed messages long ago, and shows no effect of them.
    handed_out: tuple[Fact, ...] = ()
    #: One fact for each producer group that no section names, so that no sweeper announces its commits. No alarm.
    unswept: tuple[Fact, ...] = ()
    #: One fact for each broker whose check service does not move. This is no alarm.
    standing: tuple[Fact, ...] = ()
    #: Facts about keys that were settled because no configured outbox has them. A person should look. This is no alarm.
    rejected: tuple[Fact, ...] = ()
    #: One fact for each subscription with keys that took effect in two inboxes of the group.
    doubled: tuple[Fact, ...] = ()
    #: One fact for each outbox or inbox that may lack or hide rows. A database that proves nothing is in `late`, too.
    unproved: tuple[Fact, ...] = ()
    #: Facts about damaged values, about refused announcements, and about recorders that write no valid keys.
    damaged: tuple[Fact, ...] = ()
    #: At most one fact: the person who works on the open losses. This fact silences no alarm.
    acknowledged: tuple[Fact, ...] = ()
    #: Pairs of a dependency that is away and a fact of `late` that follows from its absence.
    late_by_away: tuple[tuple[Fact, Fact], ...] = ()
    #: The ledger's time before the first question. 0: the ledger was not asked.
    asked_ms: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 3: a dependency is away, or commits are not accounted for.
        Exit code 1: something needs a person.
        Exit code 0: every other case.
        """
        if self.away or self.late_lines:
            return 3
        return 1 if self.needs_a_person else 0

    @property
    def needs_a_person(self) -> bool:
        """True for a quarantined key, a failed repair, an open breaker, keys that stay undecided, or damaged values."""
        return bool(self._persons)

    @property
    def late_lines(self) -> tuple[Fact, ...]:
        """Every reason why "0 lost" means nothing. Reasons that follow from a dependency that is away are included."""
        of_accounts = (_late(one, cause) for one in self._accounts for cause in one.late)
        return (*of_accounts, *self._stopped, *(line for _, line in self.late_by_away))

    @property
    def brokers_away(self) -> tuple[Fact, ...]:
        """Facts of `away` about brokers. If name servers know no broker, there is one fact."""
        return tuple(fact for fact in self.away if fact.code in (BROKER_AWAY, AWAY["rocketmq"]))

    @property
    def databases_away(self) -> tuple[Fact, ...]:
        """Facts of `away` about databases of the services."""
        return tuple(fact for fact in self.away if fact.code is DATABASE_AWAY)

    @property
    def following(self) -> Mapping[Fact, tuple[Fact, ...]]:
        """A dependency that is away -> facts that follow from its absence.

        People need not read these facts until the dependency is back.
        """
        found: dict[Fact, list[Fact]] = {}
        for account in self._accounts:
            for gone, causes in account.following.items():
                found.setdefault(gone, []).extend(_late(account, cause) for cause in causes)
        for gone, line in self.late_by_away:
            found.setdefault(gone, []).append(line)
        return {gone: tuple(lines) for gone, lines in found.items()}

    @property
    def behind(self) -> tuple[Fact, ...]:
        """One fact for each group above whose offset messages have waited for long. A group without members is in
        `late` instead."""
        return tuple(s.lag.fact for s in self.subscriptions if s.lag is not None and not s.lag.is_deserted)

    @property
    def lagging(self) -> tuple[Fact, ...]:
        """One fact for each group whose messages have waited for long, above its offset or handed out."""
        return (*self.behind, *self.handed_out)

    @property
    def before_since(self) -> tuple[Fact, ...]:
        """Facts about messages that a group was given before the `since` of its subscription. This is no alarm."""
        return tuple(before_since(self.verdicts, {s.subscription: s.since_ms for s in self.subscriptions}))

    @property
    def remarks(self) -> Mapping[str, tuple[Fact, ...]]:
        """Name of a part of the report -> its lines. Parts without lines are included.

        The line of a dependency that is away stands for the facts that follow from its absence.
        """
        of_accounts = (_late(one, cause) for one in self._accounts for cause in one.late if cause not in one.following)
        return {
            "away": self.away,
            "late": (*of_accounts, *self._stopped),
            "undecided": self.undecided,
            "doubled": self.doubled,
            "damaged": self.damaged,
            "unproved": self.unproved,
            "rejected": self.rejected,
            "before_since": self.before_since,
            "lagging": self.lagging,
            "undecidable": self.undecidable,
            "unswept": self.unswept,
            "standing": self.standing,
            "acknowledged": self.acknowledged,
        }

    @property
    def summary(self) -> Fact:
        """One sentence: until when all is well, or what needs a person."""
        return self.summed_up.fact

    @property
    def summed_up(self) -> Summary:
        """The sentence, and its subject."""
        return summary_of(
            self._accounts,
            troubles=(*self.away, *self._stopped),
            persons=self._persons,
            held=sorted({hold.topic for hold in self.holds}),
            held_until_ms=reduce(later_end, (hold.until_ms for hold in self.holds)) if self.holds else None,
            lost=self.lost,
            lagging=self.lagging,
            unswept=self.unswept,
            sees_announced_only=any(weak.code is NO_OUTBOX for s in self.subscriptions for weak in s.weaker),
        )

    @property
    def needs(self) -> Sequence[Need]:
        """Troubles that only a person can end. Further troubles are in `doubled`, `undecided` and `damaged`."""
        return persons_needed(verdicts=self.verdicts, repairs=self.repairs, holds=self.holds)

    @property
    def lost(self) -> int:
        """Number of proved losses that neither arrived nor were given up.

        Each subscription adds COUNTED_MAX + 1 at most.
        """
        return sum(v.count for v in self.verdicts if v.is_open_loss)

    @property
    def _accounts(self) -> list[Account]:
        return [s.accounted for s in self.subscriptions]

    @property
    def _stopped(self) -> tuple[Fact, ...]:
        deserted = (s.lag.fact for s in self.subscriptions if s.lag is not None and s.lag.is_deserted)
        return (*deserted, *self.late)

    @property
    def _persons(self) -> list[Fact]:
        return [*(need.fact for need in self.needs), *self.doubled, *self.undecided, *self.damaged]

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        sentences, facts = said_and_coded({**self.remarks, "late": self.late_lines})
        followed = {gone: said_and_coded({"lines": lines}) for gone, lines in self.following.items()}
        return {
            "summary": said(self.summary),
            "needs_a_person": self.needs_a_person,
            **sentences,
            "facts": {"summary": self.summary.as_dict(), **facts},
            "following": [
                {"away": said(gone), **of, "facts": coded["lines"]} for gone, (of, coded) in followed.items()
            ],
            **{name: [dict(zip(columns, row, strict=True)) for row in rows] for name, columns, rows in self._parts()},
            "holds": [
                dict(zip(_HOLD, _hold_row(h), strict=True))
                | {"fact": None if h.reason_fact is None else h.reason_fact.as_dict()}
                for h in self.holds
            ],
            "subscriptions": [
                dict(zip(_SUBSCRIPTION, _subscription_row(s), strict=True))
                | {"accounted_until_ms": s.accounted.until_ms}
                | {"waiting": s.watermark.waiting, "waiting_since_ms": s.watermark.waiting_since_ms}
                | {"since_ms": s.since_ms}
                for s in self.subscriptions
            ],
        }

    def tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[object]]]]:
        """Yields tables for people. Except for the first table, empty tables are left out."""
        accounts = [
            (a.subscription.topic, a.subscription.group, a.until_ms, "yes" if a.late else "") for a in self._accounts
        ]
        if accounts:
            yield "Accounted for", ("topic", "group", "until_ms", "late"), accounts
        for name, columns, rows in self._parts():
            if rows or name == "subscriptions":
                yield name.capitalize(), columns, [_with_count_texts(columns, row) for row in rows]

    def _parts(self) -> Iterator[tuple[str, Sequence[str], list[tuple[object, ...]]]]:
        yield "subscriptions", _SUBSCRIPTION, [_subscription_row(s) for s in self.subscriptions]
        yield (
            "verdicts",
            ("topic", "group", "state", "verdict", "loss_verdict", "keys", "oldest_ms"),
            [
                (
                    v.subscription.topic,
                    v.subscription.group,
                    str(v.state),
                    str(v.verdict),
                    text_of(v.loss_verdict),
                    v.count,
                    v.oldest_ms,
                )
                for v in self.verdicts
            ],
        )
        yield (
            "repairs",
            ("topic", "scope", "state", "rung", "attempted", "repairs"),
            [(r.topic, r.scope, str(r.state), str(r.rung), r.attempted, r.count) for r in self.repairs],
        )
        yield "holds", _HOLD, [_hold_row(h) for h in self.holds]
        yield (
            "outages",
            ("started_at_ms", "reason", "scanned", "closed_at_ms", "left_out"),
            list(map(LISTINGS["outages"].row, self.outages)),
        )
        yield (
            "history",
            ("topic", "group", "captured_until_ms", "recent_rounds", "gaps", "spool_bytes", "problems"),
            [] if self.history is None else list(_history_rows(self.history)),
        )


def _late(account: Account, cause: Fact) -> Fact:
    return LATE(subscription=str(account.subscription), cause=cause)


#: Columns with rows that are counted up to a limit.
_COUNTS = frozenset({"keys", "attempted", "repairs"})
_HOLD = ("topic", "kind", "since_ms", "until_ms", "by", "reason")
_SUBSCRIPTION = (
    "topic", "group", "pending", "oldest_pending_ms", "watermark_ms", "watermark_detail", "last_round_ms", "weaker",
)  # fmt: skip


def _with_count_texts(columns: Sequence[str], row: Sequence[object]) -> Sequence[object]:
    return [
        counted(value) if column in _COUNTS and isinstance(value, int) else value
        for column, value in zip(columns, row, strict=True)
    ]


def _hold_row(held: HeldTopic) -> tuple[object, ...]:
    return held.topic, str(held.kind), held.since_ms, held.until_ms, held.by, held.reason


def _subscription_row(s: SubscriptionStatus) -> tuple[object, ...]:
    is_known = s.watermark.state is not WatermarkState.UNKNOWN
    return (
        s.subscription.topic,
        s.subscription.group,
        s.pending,
        s.oldest_pending_ms,
        s.watermark.at_ms if is_known else None,
        said(s.watermark.detail),
        s.last_round_ms,
        ", ".join(map(said, s.weaker)),
    )


def _history_rows(history: HistoryOverview) -> Iterator[tuple[object, ...]]:
    for s in history.subscriptions:
        about = (s.subscription.topic, s.subscription.group, s.captured_until_ms, s.rounds, s.gaps)
        yield (*about, history.spool_bytes, "; ".join(history.problems[:3]))
