"""Until when every commit is accounted for: the least of how far the links of the chain have come. Pure.

On its way a commit passes five links. Its outbox row is announced; its announcement is taken from the unique-key topic
by a round; rounds go on, with what the last one left in Redis; and once it is due, it gets a verdict. A row that was
announced to another environment passes these unseen: it is found in the outbox, without effect and verdict. Behind all
five it is matched, not taken, settled, waits for its group, or is listed by name. Each link is asked at that moment and
nothing is remembered, so the time moves without traffic. A link that cannot be read counts as not passed: silence is no
calm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from reconciler.clock import utc_text
from reconciler.contract.subscription import Shard, Subscription
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.ports import (
    Candidates,
    EnvironmentTraces,
    PendingKey,
    RoundDone,
    ShardMemory,
    ShardState,
    StoredRound,
    count_text,
)

#: Pages of one shard's pending keys that are compared with their ledger rows; open rows are all compared.
PAGES_MAX = 40

#: A subscription has its first round within seconds of the start of `run`; one without has none for another reason.
RUN_LIVES_MS = 300_000
#: A turn of rounds is over by then: each shard that is in use had one.
TURN_MS = 600_000

_CONSUMER = "does an announcement consumer run (`reconciler run`), and what does its log say?"
_EXTRA = "no process reads that queue: unique_key_topic.queues and `queues` of the producers must be the same"
_RUN = "is `reconciler run` alive, and what does its log say?"
_SWEEP = "is `reconciler sweep` alive, and what does its log say?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How far one link has come."""

    #: Every commit until then has passed it, by the clock of the asking process. None: not known.
    until_ms: int | None
    #: What holds it back, and what to do.
    cause: str
    #: Its own pace: it may be so much older than a monitor allows.
    pace_ms: int = 0
    #: Nothing has begun yet: an alarm only for a monitor that names its time.
    is_new: bool = False
    #: Links of one kind, such as "queues", show one cause and the number of the others. "": the link has no kind.
    kind: str = ""
    #: It tells of rounds: a shard had none for long, or none that gave what is due its verdict.
    is_of_rounds: bool = False

    def is_late(self, *, asked_ms: int, within_ms: int, is_given: bool) -> bool:
        """True if it is older than that and its pace, or unknown."""
        if self.until_ms is None:
            return is_given or not self.is_new
        return asked_ms - self.until_ms > within_ms + self.pace_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Until when every commit of a subscription is accounted for."""

    subscription: Subscription
    #: None: not known.
    until_ms: int | None
    #: What holds it there.
    cause: str
    #: Causes of the links that are late, the one that is furthest behind first.
    late: tuple[str, ...] = ()
    #: The first of them tells of rounds.
    is_late_by_rounds: bool = False


def account_of(
    subscription: Subscription, links: Sequence[Link], *, asked_ms: int, within_ms: int, is_given: bool
) -> Account:
    """The least of the links, of which there is one at least.

    `within_ms`: how old it may be; `is_given`: a monitor named that time.
    """
    ordered = sorted(links, key=lambda link: _order(link.until_ms))
    late = [link for link in ordered if link.is_late(asked_ms=asked_ms, within_ms=within_ms, is_given=is_given)]
    least = ordered[0]
    return Account(
        subscription=subscription,
        until_ms=least.until_ms,
        cause=least.cause,
        late=tuple(_causes(late)),
        is_late_by_rounds=bool(late) and late[0].is_of_rounds,
    )


def _causes(late: Sequence[Link]) -> Iterator[str]:
    """One of each kind, the first."""
    alike = Counter(link.kind or link.cause for link in late)
    for link in late:
        others = alike.pop(link.kind or link.cause, 0) - 1
        if others >= 0:
            yield f"{link.cause} (and {others} more {link.kind})" if others and link.kind else link.cause


def _order(until_ms: int | None) -> int:
    return -1 if until_ms is None else until_ms


# ----------------------------------------------------------------- outboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxReading:
    """What one statement read of a producer group's rows of a topic; times by the database's clock."""

    producer_group: str
    now_ms: int
    #: Last sweep: what was committed until then is visible here, on a replica, too. None: no sweep is on record.
    swept_at_ms: int | None
    #: The oldest row that is not announced; None: there is none.
    oldest_key: str | None = None
    #: When it was written. None although there is such a row: the stored time is unreadable.
    oldest_ms: int | None = None


def outbox_link(seen: OutboxReading, *, asked_ms: int, pace_ms: int) -> Link:
    """Announced is what is older than every NEW row, as far as the last sweep: a dead sweeper announces nothing."""
    outbox = f"the outbox of {seen.producer_group}"
    if seen.oldest_key is not None and seen.oldest_ms is None:
        return Link(until_ms=None, cause=f"{outbox}: created_at_ms of {seen.oldest_key} is no time: mend the value")
    swept_at_ms = seen.now_ms if seen.swept_at_ms is None else seen.swept_at_ms
    at_ms, cause = swept_at_ms, f"{outbox} was swept last at {utc_text(swept_at_ms)}: {_SWEEP}"
    if seen.oldest_ms is not None and _mirrored(seen.oldest_ms, seen.now_ms) < _mirrored(swept_at_ms, seen.now_ms):
        at_ms = seen.oldest_ms
        cause = f"{outbox} has had {seen.oldest_key} since {utc_text(at_ms)}, not announced: {_SWEEP}"
    if at_ms > seen.now_ms:
        ahead = f"{utc_text(at_ms)}, {(at_ms - seen.now_ms) / 1000:.0f} s ahead of its clock"
        cause = f"{outbox} has a time of the future, {ahead}, which was set back: {_SWEEP}"
    return Link(until_ms=asked_ms - (seen.now_ms - _mirrored(at_ms, seen.now_ms)), cause=cause, pace_ms=pace_ms)


def _mirrored(at_ms: int, now_ms: int) -> int:
    """A time of the future as far back as it lies ahead: its clock was set back, and it may be as old as that step."""
    return now_ms - abs(now_ms - at_ms)


# ----------------------------------------------------------------- queues of the unique-key topic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReading:
    """What a queue's master holds, and what the last round of its shard had taken of it."""

    name: str
    #: Offsets of the first message and behind the last one.
    begin: int
    end: int
    #: Next offset when the round ran; None: the round knew none.
    taken: int | None
    #: Store time of the first message that was not taken; None: there is none that can be read.
    waiting_since_ms: int | None = None
    #: Its number is not below the number of shards.
    is_extra: bool = False


def queue_link(seen: QueueReading, *, asked_ms: int) -> Link:
    """Taken is what was stored before the first message that was not; everything until now where there is none."""
    if seen.end <= seen.begin or seen.taken == seen.end:
        return Link(until_ms=asked_ms, cause="")
    remedy = _EXTRA if seen.is_extra else _CONSUMER
    # The clock of a broker may be ahead: what it has stored may have waited for as long.
    waiting_ms = None if seen.waiting_since_ms is None else _mirrored(seen.waiting_since_ms, asked_ms)
    if seen.taken is None:
        cause = f"no round has taken announcements of {seen.name}: {remedy}"
        return Link(until_ms=waiting_ms, cause=cause, kind="queues")
    if seen.taken > seen.end:
        lost = f"{seen.name} ends at {seen.end} although it was read to {seen.taken}: the broker lost its end, or"
        return Link(until_ms=None, cause=f"{lost} the topic was deleted and created again; {remedy}")
    if seen.taken < seen.begin:
        lost = f"announcements {seen.taken} to {seen.begin - 1} of {seen.name} were deleted before they were taken"
        return Link(until_ms=None, cause=f"{lost}: {remedy}")
    waits = f"announcements of {seen.name} wait from offset {seen.taken} on, {seen.end - seen.taken} of them"
    until_ms = asked_ms if waiting_ms is None else waiting_ms
    return Link(until_ms=until_ms, cause=f"{waits}: {remedy}", kind="queues")


# ----------------------------------------------------------------- rounds and verdicts


def never_link(subscription: Subscription, traces: EnvironmentTraces) -> Link:
    """Of a subscription without a round: an alarm where `run` has given others theirs for long, or where everybody but
    its environment is known. `traces`: of rounds of RUN_LIVES_MS ago."""
    if traces.has_earlier_round:
        cause = (
            f"there never was a round, while others of {subscription.environment} have had theirs: are topic and group "
            "right, and was `reconciler run` restarted since the section was added?"
        )
    elif traces.others and not traces.is_known:
        cause = (
            f"nothing ever ran with environment = {subscription.environment!r}; the ledger knows "
            f"{', '.join(traces.others)}: correct `environment`, or start `reconciler run`"
        )
    else:
        return _not_yet()
    return Link(until_ms=None, cause=cause, is_of_rounds=True)


def _not_yet() -> Link:
    return Link(until_ms=None, cause=f"there never was a round: {_RUN}", is_new=True, is_of_rounds=True)


def rounds_link(rounds: Sequence[StoredRound], *, shards: int, asked_ms: int) -> Link:
    """The round of the shard that has waited longest. `rounds`: the newest of every shard below `shards`.

    A round that is dated after `asked_ms` counts as far back as it lies ahead: the ledger's clock was set back since,
    and rounds may have stopped. A shard without one counts from the second round of another shard on: before, the
    first turn is under way.
    """
    if not rounds:
        return _not_yet()
    missing = sorted(set(range(shards)) - {stored.done.shard.number for stored in rounds})
    if missing and any(stored.done.generation > 1 for stored in rounds):
        never = f"shards {', '.join(map(str, missing))} never had a round"
        return Link(until_ms=None, cause=f"{never}: {_RUN}", is_of_rounds=True)
    oldest = min(rounds, key=lambda stored: _mirrored(stored.stored_at_ms, asked_ms))
    since = f"shard {oldest.done.shard.number} had its last round at {utc_text(oldest.stored_at_ms)}"
    return Link(until_ms=_mirrored(oldest.stored_at_ms, asked_ms), cause=f"{since}: {_RUN}", is_of_rounds=True)


def memory_link(last: RoundDone, state: ShardState, *, asked_ms: int) -> Link:
    """`last`: a shard's newest round in the ledger; `state`: what Redis has of the shard, asked after it. Keys that the
    round left pending are there, or nowhere until a later round has read their announcements again."""
    if not state.has_lost(last):
        return Link(until_ms=asked_ms, cause="")
    cause = (
        f"Redis lost what the last round of shard {last.shard.number} left there, and no round has run since: {_RUN}"
    )
    return Link(until_ms=None, cause=cause, kind="shards", is_of_rounds=True)


def shards_that_differ(rounds: Sequence[StoredRound], shards: int) -> int | None:
    """The number of shards that the rounds were made with, if it is another one; None: they do not say so.

    `rounds`: the newest of every shard. There are more shards if one beyond ours had a round about when the newest
    was; there are fewer if none beyond them ever had one, and the first turn is over.
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
    """Keys first seen by this time have been due for `within_ms` or longer: a round should have judged them.

    None: the watermark is not known. Keys that a group made due at once, by catching up, have the same `within_ms`.
    """
    if watermark.state is WatermarkState.UNKNOWN:
        return None
    return min(asked_ms - grace_ms, watermark.at_ms - margin_ms) - within_ms


def oldest_unlisted(
    memory: ShardMemory, candidates: Candidates, shard: Shard, *, seen_until_ms: int
) -> PendingKey | None:
    """The oldest pending key, first seen until then, of which the ledger has no row; it looks through PAGES_MAX pages.

    Raises RedisAway and DatabaseAway.
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
    """`unlisted`: the oldest key that has been due for long, and of which the ledger has no row (oldest_unlisted)."""
    if unlisted is None:
        return Link(until_ms=asked_ms, cause="")
    due = f"{unlisted.unique_key}, first seen at {utc_text(unlisted.first_seen_ms)}, is due and has no verdict"
    cause = f"{due}: rounds fail or do not keep up, their log says why"
    return Link(until_ms=unlisted.first_seen_ms, cause=cause, kind="shards", is_of_rounds=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRow:
    """An outbox row that was announced, and of which neither inbox nor ledger has anything."""

    unique_key: str
    producer_group: str
    #: By the outbox' clock.
    announced_ms: int


def unheard_link(unheard: OrphanRow | None, *, asked_ms: int, ahead_ms: int) -> Link:
    """`unheard`: the oldest such row of which a round should have written a verdict long ago; `ahead_ms`: how far its
    clock is ahead of that of the asking process."""
    if unheard is None:
        return Link(until_ms=asked_ms, cause="")
    until_ms = unheard.announced_ms - ahead_ms
    announced = f"{unheard.unique_key}, which {unheard.producer_group} announced at {utc_text(until_ms)}"
    cause = (
        f"{announced}, has neither effect nor verdict: is unique_key_topic the same in its service and here, and do "
        "rounds keep up?"
    )
    return Link(until_ms=until_ms, cause=cause, kind="outboxes")


# ----------------------------------------------------------------- words


class SummaryKind(StrEnum):
    """What the sentence is about: the first of these that is so."""

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
    """What a person reads first, as values: until when all is well, or what needs a person. Pages say it in several
    languages (`reconciler/web/console/`), everything else in that of `sentence`."""

    kind: SummaryKind
    #: LATE: commits after it are not accounted for; else every commit until then is. None: not known.
    until_ms: int | None
    #: Whose time it is, and what holds it there.
    subscription: Subscription
    cause: str
    #: LATE: further causes and troubles.
    more: int = 0
    #: TROUBLED: the first trouble. PERSON: what a person must look at. HELD: topics. LOST: how many. LAGGING: groups
    #: for which messages wait. UNSWEPT: rows that nobody announces.
    about: tuple[str, ...] = ()
    #: Without an outbox, commits that were never announced are not seen.
    sees_announced_only: bool = False

    @property
    def sentence(self) -> str:
        """In English, without a full stop."""
        what = "announced commit" if self.sees_announced_only else "commit"
        if self.kind is SummaryKind.LATE:
            since = "" if self.until_ms is None else f" after {utc_text(self.until_ms)}"
            more = f" (and {self.more} more, below)" if self.more else ""
            return f"{what.capitalize()}s{since} are not accounted for: {self.subscription}: {self.cause}{more}"
        if self.until_ms is None:
            until = f"no {what} is accounted for yet: {self.subscription}: {self.cause}"
        else:
            until = f"every {what} until {utc_text(self.until_ms)} is accounted for"
        match self.kind:
            case SummaryKind.TROUBLED:
                return f"Not all is well: {self.about[0]}; {until}"
            case SummaryKind.PERSON:
                return f"A person is needed: {'; '.join(self.about)}; {until}"
            case SummaryKind.HELD:
                return f"Repairs of {', '.join(self.about)} are on hold; {until}"
            case SummaryKind.LOST:
                return f"Lost, and not arrived yet: {self.about[0]}; {until}"
            case SummaryKind.LAGGING:
                return f"Not all is consumed: {'; '.join(self.about)}; {until}"
            case SummaryKind.UNSWEPT:
                return f"Not all is announced: {'; '.join(self.about)}; {until}"
            case SummaryKind.NOT_YET:
                return f"N{until[1:]}"
            case _:
                return f"All is well: {until}"


def summary_of(
    accounts: Sequence[Account],
    *,
    troubles: Sequence[str],
    persons: Sequence[str],
    held: Sequence[str] = (),
    lost: int = 0,
    lagging: Sequence[str] = (),
    unswept: Sequence[str] = (),
    sees_announced_only: bool = False,
) -> Summary:
    """Of one subscription at least.

    `troubles`: what else is away or has stopped; `persons`: what a person must look at; `held`: topics whose losses
    stay unrepaired by an operator's hold; `lost`: proved losses that neither arrived nor were given up; `lagging`:
    groups for which messages wait for long; `unswept`: outbox rows that nobody announces.
    """
    behind = [one for one in accounts if one.late]
    least = min(behind or accounts, key=lambda one: _order(one.until_ms))
    summary = Summary(
        kind=SummaryKind.WELL if least.until_ms is not None else SummaryKind.NOT_YET,
        until_ms=least.until_ms,
        subscription=least.subscription,
        cause=least.cause,
        sees_announced_only=sees_announced_only,
    )
    if behind:
        others = sum(len(one.late) for one in behind) - 1 + len(troubles)
        return replace(summary, kind=SummaryKind.LATE, cause=least.late[0], more=others)
    if troubles:
        return replace(summary, kind=SummaryKind.TROUBLED, about=tuple(troubles[:1]))
    if persons:
        return replace(summary, kind=SummaryKind.PERSON, about=tuple(persons))
    if held:
        return replace(summary, kind=SummaryKind.HELD, about=tuple(held))
    if lost:
        return replace(summary, kind=SummaryKind.LOST, about=(count_text(lost),))
    if lagging:
        return replace(summary, kind=SummaryKind.LAGGING, about=tuple(lagging))
    if unswept:
        return replace(summary, kind=SummaryKind.UNSWEPT, about=tuple(unswept))
    return summary
