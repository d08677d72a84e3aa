"""Computes until when every commit is accounted for. Pure.

A commit passes a chain of links. The accounted-until time is the time of the link that is furthest behind.

1. The outbox row of the commit is announced.

2. A round takes the announcement from the unique-key topic.

3. Rounds continue.

4. Redis still has the memory that the last round left.

5. The key gets a verdict once it is due.

6. A verdict that rests on a missing outbox row is reviewed: the half confirms the absence, or denies it.

The six links do not show a row that was announced to another environment. A further link finds such a row in the
outbox, without effect and without verdict.

A commit that has passed all links is matched, not taken, settled, waits for its group, or is listed by its key. Each
link is read again every time and nothing is remembered, so the time also advances without traffic. A link that cannot
be read counts as not passed, because silence is no proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from reconciler.contract.facts import Code, Fact, Field, FieldValue
from reconciler.contract.subscription import Shard, Subscription
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.ledger import Candidates, UndecidedRows
from reconciler.policy.ports.rounds import PendingKey, RoundDone, ShardMemory, ShardState
from reconciler.telling.ports.reports import EnvironmentTraces, StoredRound

#: Maximum number of pages of one shard's pending keys that are compared with the ledger's rows. Open rows have no such
#: limit.
PAGES_MAX = 40

#: A subscription without a round is an alarm if another subscription already had a round this long ago. After a start
#: of `run`, every subscription has a round within seconds.
RUN_LIVES_MS = 300_000
#: Names of dependencies without which no round ends.
_OF_ROUNDS = ("redis", "ledger")
#: Longest time of one turn of rounds, in which each shard that is in use has a round.
TURN_MS = 600_000

_QUEUE: Mapping[str, Field] = {"broker": Field.NAME, "queue": Field.NUMBER, "topic": Field.NAME, "remedy": Field.FACT}

PASSED = Code("account.passed")
UNREADABLE_TIME = Code("account.unreadable-time", group=Field.NAME, unique_key=Field.NAME)
SWEPT_LAST = Code("account.swept-last", group=Field.NAME, at_ms=Field.TIME)
UNANNOUNCED = Code("account.unannounced", group=Field.NAME, unique_key=Field.NAME, at_ms=Field.TIME)
CLOCK_SET_BACK = Code("account.clock-set-back", group=Field.NAME, at_ms=Field.TIME, seconds=Field.NUMBER)

QUEUE_NOT_TAKEN = Code("account.queue-not-taken", **_QUEUE)
QUEUE_CUT = Code("account.queue-cut", **_QUEUE, end=Field.NUMBER, taken=Field.NUMBER)
QUEUE_EXPIRED = Code("account.queue-expired", **_QUEUE, first=Field.NUMBER, last=Field.NUMBER)
QUEUE_WAITS = Code("account.queue-waits", **_QUEUE, offset=Field.NUMBER, number=Field.NUMBER)
NO_ANNOUNCEMENT_CONSUMER = Code("account.no-announcement-consumer")
NO_READER = Code("account.no-reader")

NO_ROUND = Code("account.no-round")
NO_ROUND_BESIDE_OTHERS = Code("account.no-round-beside-others", environment=Field.NAME)
UNKNOWN_ENVIRONMENT = Code("account.unknown-environment", environment=Field.NAME, known=Field.NAMES)
SHARDS_WITHOUT_ROUND = Code("account.shards-without-round", shards=Field.NAMES)
LAST_ROUND = Code("account.last-round", shard=Field.NUMBER, at_ms=Field.TIME)
MEMORY_LOST = Code("account.memory-lost", shard=Field.NUMBER)
NO_VERDICT = Code("account.no-verdict", unique_key=Field.NAME, at_ms=Field.TIME)
NOT_REVIEWED = Code("account.not-reviewed", unique_key=Field.NAME, at_ms=Field.TIME)
NOT_REVIEWED_KEYS = Code("account.not-reviewed-keys", unique_key=Field.NAME, at_ms=Field.TIME, number=Field.NUMBER)
UNHEARD = Code("account.unheard", unique_key=Field.NAME, group=Field.NAME, at_ms=Field.TIME)

_MORE: Mapping[str, Field] = {"cause": Field.FACT, "number": Field.NUMBER}
MORE_QUEUES = Code("account.more-queues", **_MORE)
MORE_SHARDS = Code("account.more-shards", **_MORE)
MORE_OUTBOXES = Code("account.more-outboxes", **_MORE)
MORE_BELOW = Code("account.more-below", **_MORE)

_NOTHING: Mapping[str, Fact] = MappingProxyType({})

_CAUSE: Mapping[str, Field] = {"subscription": Field.NAME, "cause": Field.FACT}
LATE = Code("account.late", **_CAUSE)
LATE_AFTER = Code("account.late-after", at_ms=Field.TIME, **_CAUSE)
NOT_YET = Code("account.not-yet", **_CAUSE)
NOTHING_YET = Code("account.nothing-yet", **_CAUSE)
UNTIL = Code("account.until", at_ms=Field.TIME)
ANNOUNCED_LATE = Code("account.announced-late", **_CAUSE)
ANNOUNCED_LATE_AFTER = Code("account.announced-late-after", at_ms=Field.TIME, **_CAUSE)
ANNOUNCED_NOT_YET = Code("account.announced-not-yet", **_CAUSE)
ANNOUNCED_NOTHING_YET = Code("account.announced-nothing-yet", **_CAUSE)
ANNOUNCED_UNTIL = Code("account.announced-until", at_ms=Field.TIME)
WELL = Code("account.well", until=Field.FACT)
TROUBLED = Code("account.troubled", trouble=Field.FACT, until=Field.FACT)
PERSON = Code("account.person", needs=Field.FACTS, until=Field.FACT)
HELD = Code("account.held", topics=Field.NAMES, until=Field.FACT)
HELD_UNTIL = Code("account.held-until", topics=Field.NAMES, at_ms=Field.TIME, until=Field.FACT)
LOST = Code("account.lost", number=Field.COUNT, until=Field.FACT)
LAGGING = Code("account.lagging", groups=Field.FACTS, until=Field.FACT)
UNSWEPT = Code("account.unswept", outboxes=Field.FACTS, until=Field.FACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The progress of one link of the chain."""

    #: Every commit until this time has passed the link, by the clock of the asking process. None: not known.
    until_ms: int | None
    #: Why the link is not further, and what a person can do.
    cause: Fact
    #: The time by which a link may be older than a monitor allows.
    pace_ms: int = 0
    #: True: no round has run yet. This is an alarm only if a monitor has named an age.
    is_new: bool = False
    #: The kind of the link. Late links of one kind show one cause, and this code adds the number of the others. None:
    #: the link has no kind.
    more: Code | None = None
    #: True: the cause is about rounds. A shard had no round for long, or its rounds gave due keys no verdict.
    is_of_rounds: bool = False
    #: Names of the dependencies that the link needs to advance. If one is away, it is the reason for `cause`.
    needs: tuple[str, ...] = ()

    def away_of(self, away: Mapping[str, Fact]) -> Fact | None:
        """Returns the fact about a dependency that the link needs and that is away."""
        return next((away[name] for name in self.needs if name in away), None)

    def is_late(self, *, asked_ms: int, within_ms: int, is_given: bool) -> bool:
        """Returns True if the link is older than `within_ms` and its pace allow, or if its time is unknown."""
        if self.until_ms is None:
            return is_given or not self.is_new
        return asked_ms - self.until_ms > within_ms + self.pace_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The time until which every commit of a subscription is accounted for."""

    subscription: Subscription
    #: The accounted-until time. None: not known.
    until_ms: int | None
    #: Why the accounted-until time is not later.
    cause: Fact
    #: Causes of the late links. Dependencies that are away come first, then the cause that is furthest behind.
    late: tuple[Fact, ...] = ()
    #: True: the first cause of `late` is about rounds.
    is_late_by_rounds: bool = False
    #: A dependency that is away -> causes that follow from its absence. `late` has the dependency instead of these
    #: causes.
    following: Mapping[Fact, tuple[Fact, ...]] = field(default_factory=dict)


def account_of(
    subscription: Subscription,
    links: Sequence[Link],
    *,
    asked_ms: int,
    within_ms: int,
    is_given: bool,
    away: Mapping[str, Fact] = _NOTHING,
) -> Account:
    """Returns the account for the link that is furthest behind. There must be at least one link.

    `within_ms`: the age up to which a link is not late. `is_given`: True if a monitor has named this age. `away`: facts
    about dependencies that do not answer. Such a fact replaces every cause that follows from the absence.
    """
    ordered = sorted(links, key=lambda link: _order(link.until_ms))
    late = [link for link in ordered if link.is_late(asked_ms=asked_ms, within_ms=within_ms, is_given=is_given)]
    least = ordered[0]
    others, waiting = list[Link](), dict[Fact, list[Link]]()
    for link in late:
        gone = link.away_of(away)
        (others if gone is None else waiting.setdefault(gone, [])).append(link)
    return Account(
        subscription=subscription,
        until_ms=least.until_ms,
        cause=least.away_of(away) or least.cause,
        late=(*waiting, *_causes(others)),
        is_late_by_rounds=not waiting and bool(others) and others[0].is_of_rounds,
        following={gone: tuple(_causes(links)) for gone, links in waiting.items()},
    )


def _causes(late: Sequence[Link]) -> Iterator[Fact]:
    """Yields the first cause of each kind."""
    alike = Counter(link.more or link.cause for link in late)
    for link in late:
        others = alike.pop(link.more or link.cause, 0) - 1
        if others >= 0:
            yield link.more(cause=link.cause, number=others) if others and link.more else link.cause


def _order(until_ms: int | None) -> int:
    return -1 if until_ms is None else until_ms


def passed(asked_ms: int) -> Link:
    """Returns a link that every commit has passed."""
    return Link(until_ms=asked_ms, cause=PASSED())


# ----------------------------------------------------------------- outboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxReading:
    """A producer group's outbox rows of a topic, read by one statement. Times are by the database's clock."""

    producer_group: str
    now_ms: int
    #: Time of the last sweep. Every commit until then is visible here, even on a replica. None: no sweep is on record.
    swept_at_ms: int | None
    #: Key of the oldest row that is not announced. None: every row is announced.
    oldest_key: str | None = None
    #: The time at which this row was written. None if there is no such row, or if its stored time is unreadable.
    oldest_ms: int | None = None


def outbox_link(seen: OutboxReading, *, asked_ms: int, pace_ms: int) -> Link:
    """Returns the link for announcing: all rows older than the oldest NEW row are announced.

    The time of the link is that of the last sweep at the latest, because a dead sweeper announces nothing.
    """
    group, now_ms = seen.producer_group, seen.now_ms
    if seen.oldest_key is not None and seen.oldest_ms is None:
        return Link(until_ms=None, cause=UNREADABLE_TIME(group=group, unique_key=seen.oldest_key))
    at_ms = now_ms if seen.swept_at_ms is None else seen.swept_at_ms
    cause, needs = SWEPT_LAST(group=group, at_ms=at_ms), tuple[str, ...]()
    if seen.oldest_ms is not None and mirrored(seen.oldest_ms, now_ms) < mirrored(at_ms, now_ms):
        at_ms = seen.oldest_ms
        cause, needs = UNANNOUNCED(group=group, unique_key=seen.oldest_key or "", at_ms=at_ms), ("rocketmq",)
    if at_ms > now_ms:
        cause, needs = CLOCK_SET_BACK(group=group, at_ms=at_ms, seconds=round((at_ms - now_ms) / 1000)), ()
    until_ms = asked_ms - (now_ms - mirrored(at_ms, now_ms))
    return Link(until_ms=until_ms, cause=cause, pace_ms=pace_ms, needs=needs)


def mirrored(at_ms: int, now_ms: int) -> int:
    """Returns a past time unchanged. Returns a future time as far in the past as it lies ahead.

    A time lies ahead if its clock was set back since. So the time may be as old as the step of the clock.
    """
    return now_ms - abs(now_ms - at_ms)


# ----------------------------------------------------------------- queues of the unique-key topic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReading:
    """The messages that a queue's master has, and the messages that the last round of the shard had taken."""

    queue: AnnouncementQueue
    #: `begin` is the offset of the first message. `end` is the offset behind the last message.
    begin: int
    end: int
    #: The next offset that the round knew. None: the round knew no offset.
    taken: int | None
    #: Store time of the first message of the topic that was not taken. None: no such message can be read.
    waiting_since_ms: int | None = None
    #: True: the queue has no shard, because its number is not below the number of shards.
    is_extra: bool = False
    #: True: the queue is a half queue. A half queue never begins again at 0. If its end is 0, its broker has just
    #: failed over and has not built the queue yet.
    has_halves: bool = False


def queue_link(seen: QueueReading, *, asked_ms: int) -> Link:
    """Returns the link for taking announcements. Its time is that of the first message that was not taken, or now."""
    is_cut = seen.taken is not None and seen.taken > seen.end
    if seen.taken == seen.end or (seen.end <= seen.begin and not (is_cut and seen.has_halves)):
        return passed(asked_ms)
    of_queue: dict[str, FieldValue] = {
        "broker": seen.queue.broker,
        "queue": seen.queue.queue_id,
        "topic": seen.queue.unique_key_topic,
        "remedy": NO_READER() if seen.is_extra else NO_ANNOUNCEMENT_CONSUMER(),
    }
    needs = () if seen.is_extra else _OF_ROUNDS
    # If a broker's clock is ahead, messages may have waited for as long as it is ahead.
    waiting_ms = None if seen.waiting_since_ms is None else mirrored(seen.waiting_since_ms, asked_ms)
    if seen.taken is None:
        return Link(until_ms=waiting_ms, cause=QUEUE_NOT_TAKEN(**of_queue), more=MORE_QUEUES, needs=needs)
    if seen.taken > seen.end:
        return Link(until_ms=None, cause=QUEUE_CUT(**of_queue, end=seen.end, taken=seen.taken))
    if seen.taken < seen.begin:
        return Link(until_ms=None, cause=QUEUE_EXPIRED(**of_queue, first=seen.taken, last=seen.begin - 1))
    if waiting_ms is None:  # only messages of other topics wait, and the offset passes them now and then
        return passed(asked_ms)
    waits = QUEUE_WAITS(**of_queue, offset=seen.taken, number=seen.end - seen.taken)
    return Link(until_ms=waiting_ms, cause=waits, more=MORE_QUEUES, needs=needs)


# ----------------------------------------------------------------- rounds and verdicts


def never_link(subscription: Subscription, traces: EnvironmentTraces) -> Link:
    """Returns the link of a subscription without a round.

    The missing round is an alarm if another subscription had a round more than RUN_LIVES_MS ago (`traces`), or if the
    ledger knows only other environments.
    """
    if traces.has_earlier_round:
        cause = NO_ROUND_BESIDE_OTHERS(environment=subscription.environment)
    elif (unknown := unknown_environment(subscription.environment, traces)) is not None:
        cause = unknown
    else:
        return _not_yet()
    return Link(until_ms=None, cause=cause, is_of_rounds=True, needs=_OF_ROUNDS)


def unknown_environment(environment: str, traces: EnvironmentTraces) -> Fact | None:
    """Returns the fact that no process ever ran with this environment although others are known.

    None: the environment is known, or the installation is new.
    """
    if traces.is_known or not traces.others:
        return None
    return UNKNOWN_ENVIRONMENT(environment=environment, known=tuple(traces.others))


def _not_yet() -> Link:
    return Link(until_ms=None, cause=NO_ROUND(), is_new=True, is_of_rounds=True, needs=_OF_ROUNDS)


def rounds_link(rounds: Sequence[StoredRound], *, shards: int, asked_ms: int) -> Link:
    """Returns the link for rounds: its time is that of the newest round of the shard that has waited longest.

    `rounds`: the newest round of every shard below `shards`. A round in the future counts as far in the past as it lies
    ahead of `asked_ms`: the ledger's clock was set back, and rounds may have stopped. A shard without a round counts
    only once another shard has had a second round, because until then the first turn may still run.
    """
    if not rounds:
        return _not_yet()
    missing = sorted(set(range(shards)) - {stored.done.shard.number for stored in rounds})
    if missing and any(stored.done.generation > 1 for stored in rounds):
        cause = SHARDS_WITHOUT_ROUND(shards=tuple(map(str, missing)))
        return Link(until_ms=None, cause=cause, is_of_rounds=True, needs=_OF_ROUNDS)
    oldest = min(rounds, key=lambda stored: mirrored(stored.stored_at_ms, asked_ms))
    since = LAST_ROUND(shard=oldest.done.shard.number, at_ms=oldest.stored_at_ms)
    until_ms = mirrored(oldest.stored_at_ms, asked_ms)
    return Link(until_ms=until_ms, cause=since, is_of_rounds=True, needs=_OF_ROUNDS)


def memory_link(last: RoundDone, state: ShardState, *, asked_ms: int) -> Link:
    """Returns the link for the memory of a shard: Redis must have the memory that the last round left.

    `last`: the shard's newest round in the ledger. `state`: the shard's state in Redis, read after `last`. If Redis
    has lost the pending keys of that round, a later round has to read their announcements again.
    """
    if not state.has_lost(last):
        return passed(asked_ms)
    lost = MEMORY_LOST(shard=last.shard.number)
    return Link(until_ms=None, cause=lost, more=MORE_SHARDS, is_of_rounds=True)


def shards_that_differ(rounds: Sequence[StoredRound], shards: int) -> int | None:
    """Returns the number of shards with which the rounds were made, if it differs from `shards`; otherwise None.

    `rounds`: the newest round of every shard. There are more shards if a shard with a higher number had a round at
    about the time of the newest round. There are fewer shards if the highest numbers have no round after the first
    turn.
    """
    if not rounds:
        return None
    newest_ms = max(stored.stored_at_ms for stored in rounds)
    numbers = [stored.done.shard.number for stored in rounds]
    lately = [n for n, stored in zip(numbers, rounds, strict=True) if newest_ms - stored.stored_at_ms < TURN_MS]
    if max(lately) >= shards:
        return max(lately) + 1
    is_turn_over = any(stored.done.generation > 1 for stored in rounds)
    return max(numbers) + 1 if is_turn_over and max(numbers) + 1 < shards else None


def due_for_long_until_ms(
    watermark: Watermark, *, asked_ms: int, grace_ms: int, margin_ms: int, within_ms: int
) -> int | None:
    """Returns the time before which a key must have been first seen to be due for at least `within_ms`.

    A round should have judged the keys before that time. None: the watermark is not known. If a group catches up, many
    keys become due at once, and rounds have `within_ms` for all of them.
    """
    if watermark.state is WatermarkState.UNKNOWN:
        return None
    return min(asked_ms - grace_ms, watermark.at_ms - margin_ms) - within_ms


def oldest_unlisted(
    memory: ShardMemory, candidates: Candidates, shard: Shard, *, seen_until_ms: int
) -> PendingKey | None:
    """Returns the oldest pending key without a ledger row that was first seen until `seen_until_ms`.

    At most PAGES_MAX pages are read. Raises RedisAway and DatabaseAway.
    """
    after: PendingKey | None = None
    for _ in range(PAGES_MAX):
        page = memory.due(shard, first_seen_until_ms=seen_until_ms, limit=PAGE_KEYS, after=after)
        rows = candidates.of_keys(shard.subscription, [pending.unique_key for pending in page]) if page else {}
        for pending in page:
            if pending.unique_key not in rows:
                return pending
        if len(page) < PAGE_KEYS:
            break
        after = page[-1]
    return None


def verdicts_link(unlisted: PendingKey | None, *, asked_ms: int) -> Link:
    """Returns the link for verdicts. `unlisted`: the oldest key that is due for long and has no row in the ledger."""
    if unlisted is None:
        return passed(asked_ms)
    due = NO_VERDICT(unique_key=unlisted.unique_key, at_ms=unlisted.first_seen_ms)
    return Link(until_ms=unlisted.first_seen_ms, cause=due, more=MORE_SHARDS, is_of_rounds=True)


def unreviewed_link(found: UndecidedRows, *, asked_ms: int) -> Link:
    """Returns the link for announced keys that no outbox has. The outbox that was asked may be the wrong one, so such a
    key is accounted for once a round has looked for its half.

    `found`: the REJECTED keys that no round has reviewed yet.
    """
    row = found.oldest
    if row is None:
        return passed(asked_ms)
    of: dict[str, FieldValue] = {"unique_key": row.unique_key, "at_ms": row.first_seen_ms}
    cause = NOT_REVIEWED_KEYS(**of, number=found.count - 1) if found.count > 1 else NOT_REVIEWED(**of)
    return Link(until_ms=mirrored(row.first_seen_ms, asked_ms), cause=cause, is_of_rounds=True, needs=("rocketmq",))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRow:
    """An announced outbox row of which neither inbox nor ledger knows anything."""

    unique_key: str
    producer_group: str
    #: Time of the announcement by the clock of the outbox.
    announced_ms: int


def unheard_link(unheard: OrphanRow | None, *, asked_ms: int, ahead_ms: int) -> Link:
    """Returns the link for rows that were announced to another environment.

    `unheard`: the oldest such row, to which a round should have given a verdict long ago. `ahead_ms`: how far the clock
    of the outbox is ahead of the asking process' clock.
    """
    if unheard is None:
        return passed(asked_ms)
    until_ms = unheard.announced_ms - ahead_ms
    cause = UNHEARD(unique_key=unheard.unique_key, group=unheard.producer_group, at_ms=until_ms)
    return Link(until_ms=until_ms, cause=cause, more=MORE_OUTBOXES)


# ----------------------------------------------------------------- what a person reads first


class SummaryKind(StrEnum):
    """The subject of the sentence that a person reads first. The first kind that is true counts."""

    LATE = "late"
    TROUBLED = "troubled"
    PERSON = "person"
    HELD = "held"
    LOST = "lost"
    LAGGING = "lagging"
    UNSWEPT = "unswept"
    NOT_YET = "not-yet"
    WELL = "well"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The sentence that a person reads first: until when commits are accounted for, or what needs a person."""

    kind: SummaryKind
    #: The sentence.
    fact: Fact
    #: The accounted-until time. Commits after this time are late if the kind is LATE. None: not known.
    until_ms: int | None
    #: The subscription that has this time.
    subscription: Subscription


def summary_of(
    accounts: Sequence[Account],
    *,
    troubles: Sequence[Fact],
    persons: Sequence[Fact],
    held: Sequence[str] = (),
    held_until_ms: int | None = None,
    lost: int = 0,
    lagging: Sequence[Fact] = (),
    unswept: Sequence[Fact] = (),
    sees_announced_only: bool = False,
) -> Summary:
    """Returns the summary of all accounts. There must be at least one account.

    `troubles`: facts about other parts that are away or have stopped.

    `persons`: facts that a person must look at.
    `held`: topics whose losses stay unrepaired because of a person's hold. `held_until_ms`: when the last hold ends.
    `lost`: number of proved losses that neither arrived nor were given up.
    `lagging`: groups for which messages have waited for long.
    `unswept`: outbox rows that nobody announces.
    `sees_announced_only`: True if there is no outbox, so that commits without an announcement are not seen.
    """
    behind = [one for one in accounts if one.late]
    least = min(behind or accounts, key=lambda one: (not one.following, _order(one.until_ms)))
    if behind:
        own = sum(len(one.late) - len(one.following) for one in behind)
        others = own + len({*troubles, *(gone for one in behind for gone in one.following)}) - 1
        kind, fact = SummaryKind.LATE, _late(least, others, announced_only=sees_announced_only)
    else:
        until = _until(least, announced_only=sees_announced_only)
        kind, fact = SummaryKind.WELL, WELL(until=until)
        if troubles:
            kind, fact = SummaryKind.TROUBLED, TROUBLED(trouble=troubles[0], until=until)
        elif persons:
            kind, fact = SummaryKind.PERSON, PERSON(needs=tuple(persons), until=until)
        elif held:
            kind, fact = SummaryKind.HELD, _held(tuple(held), held_until_ms, until)
        elif lost:
            kind, fact = SummaryKind.LOST, LOST(number=lost, until=until)
        elif lagging:
            kind, fact = SummaryKind.LAGGING, LAGGING(groups=tuple(lagging), until=until)
        elif unswept:
            kind, fact = SummaryKind.UNSWEPT, UNSWEPT(outboxes=tuple(unswept), until=until)
        elif least.until_ms is None:
            nothing = ANNOUNCED_NOTHING_YET if sees_announced_only else NOTHING_YET
            kind, fact = SummaryKind.NOT_YET, nothing(**_cause(least))
    return Summary(kind=kind, fact=fact, until_ms=least.until_ms, subscription=least.subscription)


def _held(topics: tuple[str, ...], at_ms: int | None, until: Fact) -> Fact:
    return HELD(topics=topics, until=until) if at_ms is None else HELD_UNTIL(topics=topics, at_ms=at_ms, until=until)


def _late(behind: Account, others: int, *, announced_only: bool) -> Fact:
    cause = behind.late[0]
    if others:
        cause = MORE_BELOW(cause=cause, number=others)
    of: dict[str, FieldValue] = {"subscription": str(behind.subscription), "cause": cause}
    if behind.until_ms is None:
        return (ANNOUNCED_LATE if announced_only else LATE)(**of)
    return (ANNOUNCED_LATE_AFTER if announced_only else LATE_AFTER)(at_ms=behind.until_ms, **of)


def _until(least: Account, *, announced_only: bool) -> Fact:
    if least.until_ms is None:
        return (ANNOUNCED_NOT_YET if announced_only else NOT_YET)(**_cause(least))
    return (ANNOUNCED_UNTIL if announced_only else UNTIL)(at_ms=least.until_ms)


def _cause(account: Account) -> dict[str, FieldValue]:
    return {"subscription": str(account.subscription), "cause": account.cause}
