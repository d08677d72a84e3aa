"""H55: "0 lost" of a reconciler that is blind. Each link of the chain can hold the time back; silence always does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.clock import ManualClock, utc_text
from reconciler.commands.asking.availability import away
from reconciler.commands.asking.environment import OTHER_CLUSTER
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.ledger import Candidates, UndecidedRows, VerdictEntry
from reconciler.policy.ports.rounds import PendingKey, RoundCounts, RoundDone, ShardMemory, ShardState
from reconciler.telling.account import (
    HELD,
    MORE_QUEUES,
    NO_READER,
    PERSON,
    SWEPT_LAST,
    TURN_MS,
    Account,
    Link,
    OrphanRow,
    OutboxReading,
    QueueReading,
    SummaryKind,
    account_of,
    due_for_long_until_ms,
    memory_link,
    never_link,
    oldest_unlisted,
    outbox_link,
    queue_link,
    rounds_link,
    shards_that_differ,
    summary_of,
    unheard_link,
    unreviewed_link,
    verdicts_link,
)
from reconciler.telling.ports.reports import EnvironmentTraces, StoredRound
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said

OF = Subscription(environment="test", topic="ORDERS", group="billing")
SHARD = Shard(subscription=OF, number=0)
NOW_MS = 1_700_000_000_000
KEY = "A" * 32


def late(*links: Link, within_ms: int = 30_000, is_given: bool = True) -> Account:
    return account_of(OF, links, asked_ms=NOW_MS, within_ms=within_ms, is_given=is_given)


def fact_of(text: str) -> Fact:
    return OTHER_CLUSTER(why=text)


def lines(account: Account) -> list[str]:
    return [said(cause) for cause in account.late]


# ----------------------------------------------------------------- the least of them


def test_the_link_that_is_furthest_behind_says_the_time_and_every_late_one_its_cause() -> None:
    near, far, further = (Link(until_ms=NOW_MS - ms, cause=fact_of(f"{ms}")) for ms in (30_000, 30_001, 90_000))
    found = late(near, far, further, far)
    assert (found.until_ms, said(found.cause)) == (NOW_MS - 90_000, "90000")
    assert lines(found) == ["90000", "30001"]


def test_a_link_that_nobody_can_read_has_come_nowhere() -> None:
    calm, refused = Link(until_ms=NOW_MS, cause=fact_of("calm")), Link(until_ms=None, cause=fact_of("refused"))
    found = late(calm, refused, is_given=False)
    assert (found.until_ms, found.late) == (None, (refused.cause,))


GONE = away("rocketmq", "no broker is registered")


@pytest.mark.parametrize(
    ("link", "names"),
    [
        (Link(until_ms=None, cause=fact_of("run topics create"), needs=("rocketmq", "broker b")), ["rocketmq"]),
        (Link(until_ms=None, cause=fact_of("b gives no offsets"), needs=("rocketmq", "broker b")), ["broker b"]),
        (
            outbox_link(
                OutboxReading(producer_group="g", now_ms=NOW_MS, swept_at_ms=NOW_MS, oldest_key=KEY, oldest_ms=1),
                asked_ms=NOW_MS,
                pace_ms=0,
            ),
            ["rocketmq"],
        ),
        (rounds_link([], shards=4, asked_ms=NOW_MS), ["redis", "rocketmq"]),
    ],
)
def test_what_is_away_is_told_first_and_in_place_of_what_follows_from_it(link: Link, names: list[str]) -> None:
    unswept = Link(until_ms=None, cause=fact_of("no sweep"))

    def lines_while(*away: str) -> list[str]:
        account = account_of(
            OF, [unswept, link], asked_ms=NOW_MS, within_ms=1, is_given=True, away=dict.fromkeys(away, GONE)
        )
        assert account.following == ({GONE: (link.cause,)} if away[-1:] == (names[0],) else {})
        return [said(cause) for cause in account.late]

    assert lines_while("nobody") == ["no sweep", said(link.cause)]
    assert lines_while(names[0]) == [said(GONE), "no sweep"]


def test_one_that_is_away_is_one_trouble_of_the_sentence_however_many_wait_for_it() -> None:
    waits = Link(until_ms=None, cause=fact_of("run topics create"), needs=("rocketmq",))
    accounts = [
        account_of(OF, [waits], asked_ms=NOW_MS, within_ms=1, is_given=True, away={"rocketmq": GONE}) for _ in range(3)
    ]
    told = summary_of(accounts, troubles=(GONE,), persons=())
    assert said(told.fact).endswith(f"ORDERS/billing: {said(GONE)}")


def test_many_queues_that_wait_are_one_line() -> None:
    queues = [Link(until_ms=NOW_MS - 90_000 + n, cause=fact_of(f"queue {n} waits"), more=MORE_QUEUES) for n in range(8)]
    calm = Link(until_ms=NOW_MS, cause=fact_of("calm"), more=MORE_QUEUES)
    assert lines(late(calm, *queues[::-1])) == ["queue 0 waits (and 7 more queues)"]
    assert lines(late(calm, queues[3])) == ["queue 3 waits"]


def test_a_link_may_be_behind_by_its_own_pace() -> None:
    slow = Link(until_ms=NOW_MS - 50_000, cause=fact_of("slow"), pace_ms=20_000)
    assert late(slow).late == ()
    assert late(slow, within_ms=29_999).late == (slow.cause,)


def test_a_new_deployment_is_late_only_for_a_monitor_that_names_its_time() -> None:
    new = rounds_link([], shards=4, asked_ms=NOW_MS)
    assert late(new, is_given=False).late == ()
    assert late(new).late == (new.cause,)
    assert late(new, is_given=False).until_ms is None, "and nothing is vouched for"


NEVER = Subscription(environment="stagging", topic="ORDERS", group="billing")


def test_a_subscription_that_rounds_of_others_leave_out_is_late() -> None:
    left_out = never_link(NEVER, EnvironmentTraces(has_earlier_round=True, is_known=True))
    assert late(left_out, is_given=False).late == (left_out.cause,)
    assert "restarted since the section was added" in said(left_out.cause)


def test_an_environment_that_nothing_ever_ran_with_is_late_beside_others() -> None:
    unknown = never_link(NEVER, EnvironmentTraces(has_earlier_round=False, is_known=False, others=("live", "staging")))
    assert late(unknown, is_given=False).late == (unknown.cause,)
    assert "'stagging'; the ledger knows live, staging" in said(unknown.cause)


@pytest.mark.parametrize(("is_known", "others"), [(True, ("live",)), (False, ()), (True, ())])
def test_a_fresh_installation_is_not_late(*, is_known: bool, others: tuple[str, ...]) -> None:
    fresh = never_link(NEVER, EnvironmentTraces(has_earlier_round=False, is_known=is_known, others=others))
    assert late(fresh, is_given=False).late == ()


# ----------------------------------------------------------------- outboxes


def seen(**changes: object) -> OutboxReading:
    calm = {"producer_group": "shop", "now_ms": 5_000_000, "swept_at_ms": 4_998_000}
    return OutboxReading(**{**calm, **changes})  # type: ignore[arg-type]  # fields by name


def outbox(**changes: object) -> Link:
    return outbox_link(seen(**changes), asked_ms=NOW_MS, pace_ms=7)


def test_an_outbox_is_as_far_as_its_last_sweep_though_nothing_waits_in_it() -> None:
    link = outbox()
    assert (link.until_ms, link.pace_ms) == (NOW_MS - 2_000, 7), "its age, whatever its clock shows"
    assert "the outbox of shop was swept last at 1970-01-01T01:23:18Z" in said(link.cause)


def test_a_sweep_or_a_row_of_the_future_counts_as_far_back_as_it_lies_ahead() -> None:
    assert outbox(swept_at_ms=6_000_000).until_ms == NOW_MS - 1_000_000, "whose sweeper may have stopped since"
    assert outbox(swept_at_ms=5_011_000).until_ms == NOW_MS - 11_000, "a clock that is a little ahead is no alarm"
    waiting = outbox(oldest_key=KEY, oldest_ms=5_300_000)
    assert waiting.until_ms == NOW_MS - 300_000
    assert "1970-01-01T01:28:20Z, 300 s ahead of its clock" in said(waiting.cause)
    assert "1000 s ahead of its clock, which was set back" in said(outbox(swept_at_ms=6_000_000).cause)


def test_a_row_that_nobody_announced_holds_its_outbox_back_though_sweeps_go_on() -> None:
    link = outbox(oldest_key=KEY, oldest_ms=4_000_000)
    assert link.until_ms == NOW_MS - 1_000_000
    assert f"has had {KEY} since " in said(link.cause)
    assert outbox(oldest_key=KEY, oldest_ms=4_999_000).until_ms == NOW_MS - 2_000, "a row younger than the sweep"
    assert outbox(oldest_key=KEY, oldest_ms=4_998_000).cause.code is SWEPT_LAST, "a row as old as the sweep"


def test_without_a_sweep_on_record_the_rows_tell_alone() -> None:
    assert outbox(swept_at_ms=None).until_ms == NOW_MS
    assert outbox(swept_at_ms=None, oldest_key=KEY, oldest_ms=4_000_000).until_ms == NOW_MS - 1_000_000


def test_a_row_whose_time_nobody_can_read_is_no_young_row() -> None:
    link = outbox(oldest_key=KEY)
    assert link.until_ms is None
    assert KEY in said(link.cause)


# ----------------------------------------------------------------- queues


def queue(
    begin: int, end: int, taken: int | None, waiting_since_ms: int | None = None, *, is_extra: bool = False
) -> Link:
    three = AnnouncementQueue(unique_key_topic="KEYS", broker="broker-a", queue_id=3)
    seen = QueueReading(
        queue=three, begin=begin, end=end, taken=taken, waiting_since_ms=waiting_since_ms, is_extra=is_extra
    )
    return queue_link(seen, asked_ms=NOW_MS)


@pytest.mark.parametrize(("begin", "end", "taken"), [(0, 0, None), (5, 5, None), (5, 5, 900), (0, 9, 9)])
def test_a_queue_where_nothing_waits_is_calm_without_traffic(begin: int, end: int, taken: int | None) -> None:
    assert queue(begin, end, taken).until_ms == NOW_MS


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 899), (900, 900)])
def test_a_half_queue_that_is_shorter_than_what_was_read_of_it_proves_nothing(begin: int, end: int) -> None:
    """GET_MAX_OFFSET is 0 until a broker that has failed over has built its queues."""
    halves = AnnouncementQueue(unique_key_topic="HALVES", broker="broker-a", queue_id=0)
    reading = QueueReading(queue=halves, begin=begin, end=end, taken=900, has_halves=True)
    assert queue_link(reading, asked_ms=NOW_MS).until_ms == (NOW_MS if end == 900 else None)


@pytest.mark.parametrize("waiting_since_ms", [NOW_MS - 4_000, NOW_MS + 4_000])
def test_the_first_announcements_of_a_new_broker_are_as_late_as_they_are_old_or_its_clock_is_ahead(
    waiting_since_ms: int,
) -> None:
    until_ms = NOW_MS - 4_000
    link = queue(0, 9, None, waiting_since_ms)
    cause = said(link.cause).partition(":")[0]
    assert (link.until_ms, cause) == (until_ms, "no round has taken announcements of broker-a queue 3 of KEYS")


@pytest.mark.parametrize(
    ("begin", "end", "taken", "cause"),
    [
        (0, 9, None, "no round has taken announcements of broker-a queue 3 of KEYS"),
        (0, 9, 10, "broker-a queue 3 of KEYS ends at 9 although it was read to 10"),
        (4, 9, 3, "announcements 3 to 3 of broker-a queue 3 of KEYS were deleted before they were taken"),
    ],
)
def test_a_queue_that_proves_nothing_has_come_nowhere(begin: int, end: int, taken: int | None, cause: str) -> None:
    link = queue(begin, end, taken)
    assert link.until_ms is None
    assert said(link.cause).startswith(cause)


def test_announcements_that_nobody_reads_hold_the_time_at_the_first_of_them() -> None:
    link = queue(0, 9, 4, NOW_MS - 77)
    assert link.until_ms == NOW_MS - 77
    assert said(link.cause).startswith("announcements of broker-a queue 3 of KEYS wait from offset 4 on, 5 of them")
    assert queue(0, 9, 4, NOW_MS + 5).until_ms == NOW_MS - 5, "a broker's clock that is ahead"
    assert queue(0, 9, 4).until_ms == NOW_MS, "they were deleted while they were looked for"
    assert queue(4, 9, 4, NOW_MS - 77).until_ms == NOW_MS - 77, "what was deleted had been taken"


def test_announcements_in_a_queue_that_is_not_configured_are_not_out_of_the_world() -> None:
    link = queue(0, 9, None, is_extra=True)
    assert link.until_ms is None
    assert "no process reads that queue" in said(link.cause)
    assert queue(0, 9, 4, 1, is_extra=True).cause.fields["remedy"] == NO_READER()
    assert queue(0, 9, 9, is_extra=True).until_ms == NOW_MS, "it was read to its end before their number was lowered"
    assert queue(0, 0, None, is_extra=True).until_ms == NOW_MS


# ----------------------------------------------------------------- rounds


def stored(number: int, generation: int, *, at_ms: int = NOW_MS) -> StoredRound:
    counts = RoundCounts(
        announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0
    )  # fmt: skip
    shard = Shard(subscription=OF, number=number)
    done = RoundDone(shard=shard, epoch="e", generation=generation, at_ms=1, offsets={}, counts=counts)
    return StoredRound(done=done, is_void=False, stored_at_ms=at_ms)


def test_the_shard_that_has_waited_longest_does_not_hide_behind_the_others() -> None:
    link = rounds_link([stored(0, 5), stored(1, 5, at_ms=NOW_MS - 9_000)], shards=2, asked_ms=NOW_MS)
    assert link.until_ms == NOW_MS - 9_000
    assert said(link.cause).startswith("shard 1 had its last round at 2023-11-14T22:13:11Z")


def test_rounds_that_stopped_before_the_ledger_was_set_back_do_not_hide_in_its_future() -> None:
    link = rounds_link([stored(0, 5), stored(1, 5, at_ms=NOW_MS + 3_600_000)], shards=2, asked_ms=NOW_MS)
    assert link.until_ms == NOW_MS - 3_600_000
    assert said(link.cause).startswith("shard 1 had its last round at 2023-11-14T23:13:20Z")


def test_a_shard_that_no_process_runs_does_not_hide_behind_the_others() -> None:
    link = rounds_link([stored(0, 2), stored(2, 1)], shards=4, asked_ms=NOW_MS)
    assert link.until_ms is None
    assert said(link.cause).startswith("shards 1, 3 never had a round")
    assert rounds_link([stored(0, 1)], shards=2, asked_ms=NOW_MS).until_ms == NOW_MS, "the first turn is under way"


@pytest.mark.parametrize(
    ("rounds", "differs"),
    [
        pytest.param([(0, 5, 0), (1, 5, 0)], None, id="the same"),
        pytest.param([(0, 5, 0), (1, 5, 0), (2, 5, 0)], 3, id="one more"),
        pytest.param([(0, 5, 0), (1, 5, 0), (2, 5, TURN_MS)], None, id="one more, a turn ago"),
        pytest.param([(0, 2, 0)], 1, id="one less"),
        pytest.param([(0, 1, 0)], None, id="one less, in the first turn"),
    ],
)
def test_the_number_of_shards_is_told_that_other_settings_ran_rounds_with(
    rounds: list[tuple[int, int, int]], differs: int | None
) -> None:
    seen = [stored(number, generation, at_ms=NOW_MS - ago_ms) for number, generation, ago_ms in rounds]
    assert shards_that_differ(seen, 2) == differs


@pytest.mark.parametrize(
    ("state", "is_there"),
    [
        (ShardState(epoch="e", generation=5, now_ms=NOW_MS), True),
        (ShardState(epoch="e", generation=6, now_ms=NOW_MS, round_at_ms=2), True),
        (ShardState(epoch="e", generation=4, now_ms=NOW_MS), False),
        (ShardState(epoch="e", generation=5, now_ms=NOW_MS, round_at_ms=0), False),
        (ShardState(epoch=None, generation=0, now_ms=NOW_MS), False),
        (ShardState(epoch="another", generation=9, now_ms=NOW_MS), False),
    ],
)
def test_a_shard_whose_keys_went_with_the_memory_of_redis_has_come_nowhere(
    state: ShardState, *, is_there: bool
) -> None:
    link = memory_link(stored(3, 5).done, state, asked_ms=NOW_MS)
    assert link.until_ms == (NOW_MS if is_there else None)
    assert said(link.cause).startswith("" if is_there else "Redis lost what the last round of shard 3 left there")


# ----------------------------------------------------------------- verdicts


def watermark(at_ms: int, state: WatermarkState = WatermarkState.KNOWN) -> Watermark:
    return Watermark(state=state, at_ms=at_ms, detail=CONSUMED())


def due_until(mark: Watermark) -> int | None:
    return due_for_long_until_ms(mark, asked_ms=NOW_MS, grace_ms=30_000, margin_ms=1_000, within_ms=300_000)


def test_what_waits_behind_the_gate_of_a_group_is_no_alarm() -> None:
    assert due_until(watermark(NOW_MS - 1_000)) == NOW_MS - 330_000
    assert due_until(watermark(NOW_MS - 3_600_000)) == NOW_MS - 3_901_000, "the group lags by an hour"
    assert due_until(watermark(0, WatermarkState.UNKNOWN)) is None


class Pending:
    """Pages of pending keys."""

    def __init__(self, *keys: PendingKey) -> None:
        self.keys = keys

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        assert shard == SHARD
        start = 0 if after is None else self.keys.index(after) + 1
        return [key for key in self.keys[start:] if key.first_seen_ms <= first_seen_until_ms][:limit]


def pending(count: int) -> list[PendingKey]:
    return [PendingKey(unique_key=f"{number:032X}", first_seen_ms=number) for number in range(count)]


def listed(keys: list[PendingKey]) -> Candidates:
    candidates = MemoryLedger(ManualClock()).candidates
    verdicts = [
        VerdictEntry(
            unique_key=key.unique_key, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=1,
            state=CandidateState.OPEN, wait_seconds=0.0,
        )
        for key in keys
    ]  # fmt: skip
    candidates.record(SHARD, verdicts)
    return candidates


def unlisted(keys: list[PendingKey], candidates: Candidates, seen_until_ms: int = NOW_MS) -> PendingKey | None:
    memory: ShardMemory = Pending(*keys)  # type: ignore[assignment]  # the call that is made
    return oldest_unlisted(memory, candidates, SHARD, seen_until_ms=seen_until_ms)


def test_a_due_key_without_a_verdict_does_not_hide_behind_pages_of_keys_that_have_one() -> None:
    keys = pending(1_001)
    assert unlisted(keys, listed(keys[:1_000])) == keys[1_000]
    assert unlisted(keys, listed(keys[:1_000]), seen_until_ms=999) is None, "it is not due for long enough"
    assert unlisted(keys, listed(keys)) is None
    assert unlisted([], listed([])) is None


def test_looking_for_keys_without_a_verdict_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.telling.account.PAGES_MAX", 2)
    keys = pending(1_001)
    assert unlisted(keys, listed(keys[:1_000])) is None


def test_a_key_that_is_due_and_has_no_verdict_holds_the_time_back() -> None:
    link = verdicts_link(PendingKey(unique_key=KEY, first_seen_ms=NOW_MS - 400_000), asked_ms=NOW_MS)
    assert link.until_ms == NOW_MS - 400_000
    assert said(link.cause).startswith(f"{KEY}, first seen at ")
    assert verdicts_link(None, asked_ms=NOW_MS).until_ms == NOW_MS


def test_a_rejection_that_nobody_has_reviewed_holds_the_time_back_and_many_say_how_many() -> None:
    ledger = MemoryLedger(ManualClock())
    assert unreviewed_link(ledger.candidates.unreviewed_rows(OF, most=9), asked_ms=NOW_MS).until_ms == NOW_MS
    told: list[str] = []
    for number in range(2):
        seen = VerdictEntry(
            unique_key=f"{number:032X}",
            verdict=Verdict.REJECTED,
            evidence={},
            first_seen_ms=NOW_MS - 400_000 + number,
            state=CandidateState.SETTLED,
            wait_seconds=0.0,
            ask_again_seconds=60.0,
        )
        ledger.candidates.record(SHARD, [seen])
        link = unreviewed_link(ledger.candidates.unreviewed_rows(OF, most=9), asked_ms=NOW_MS)
        assert link.until_ms == NOW_MS - 400_000
        told += lines(late(link, within_ms=300_000, is_given=False))
    assert [text.startswith(f"{0:032X}, first seen at 2023-") for text in told] == [True, True]
    assert ["outbox_url" in text for text in told] == [True, True]
    assert ["like 1 more" in text for text in told] == [False, True]
    ahead = replace(seen, unique_key=KEY, first_seen_ms=NOW_MS + 500_000)
    ledger.candidates.record(SHARD, [ahead])
    row = ledger.candidates.of_keys(OF, [KEY])[KEY]
    link = unreviewed_link(UndecidedRows(count=1, oldest=row), asked_ms=NOW_MS)
    assert link.until_ms == NOW_MS - 500_000, "a clock of Redis that is ahead makes no key young"


# ----------------------------------------------------------------- words


def one(until_ms: int | None, *causes: str, group: str = "billing") -> Account:
    of = Subscription(environment="test", topic="ORDERS", group=group)
    return Account(subscription=of, until_ms=until_ms, cause=fact_of("nothing began"), late=tuple(map(fact_of, causes)))


UNTIL = "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("accounts", "troubles", "persons", "says"),
    [
        ([one(NOW_MS), one(NOW_MS + 1_000)], [], [], f"All is well: every commit until {UNTIL} is accounted for"),
        ([one(None)], [], [], "No commit is accounted for yet: ORDERS/billing: nothing began"),
        (
            [one(NOW_MS)], [], ["failed repairs: 1"],
            f"A person is needed: failed repairs: 1; every commit until {UNTIL} is accounted for",
        ),
        (
            [one(NOW_MS)], ["redis: gone"], ["failed repairs: 1"],
            f"Not all is well: redis: gone; every commit until {UNTIL} is accounted for",
        ),
        (
            [one(NOW_MS + 9_000, "A", "B"), one(NOW_MS, "C", group="mail"), one(NOW_MS)], ["redis: gone"], [],
            f"Commits after {UNTIL} are not accounted for: ORDERS/mail: C (and 3 more, below)",
        ),
        ([one(None, "refused")], [], [], "Commits are not accounted for: ORDERS/billing: refused"),
    ],
)  # fmt: skip
def test_the_first_sentence_says_until_when_or_what_needs_whom(
    accounts: list[Account], troubles: list[str], persons: list[str], says: str
) -> None:
    told = summary_of(accounts, troubles=[*map(fact_of, troubles)], persons=[*map(fact_of, persons)])
    assert said(told.fact) == says


def test_not_all_is_well_while_losses_stay_unrepaired_behind_a_forgotten_hold() -> None:
    held = summary_of([one(NOW_MS)], troubles=[], persons=[], held=["ORDERS", "REFUNDS"])
    until = f"every commit until {UNTIL} is accounted for"
    assert said(held.fact) == f"Repairs of ORDERS, REFUNDS are on hold, until `reconciler resume TOPIC`; {until}"
    ends = summary_of([one(NOW_MS)], troubles=[], persons=[], held=["ORDERS"], held_until_ms=NOW_MS)
    assert said(ends.fact).startswith(f"Repairs of ORDERS are on hold, until {utc_text(NOW_MS)} or `reconciler resume")
    needed = summary_of([one(NOW_MS)], troubles=[], persons=[fact_of("failed repairs: 1")], held=["ORDERS"])
    assert (needed.kind, needed.fact.code) == (SummaryKind.PERSON, PERSON)


def test_nobody_reads_that_all_is_well_while_a_proved_loss_has_not_arrived() -> None:
    lost = summary_of([one(NOW_MS)], troubles=[], persons=[], lost=3)
    assert said(lost.fact) == f"Lost, and not arrived yet: 3; every commit until {UNTIL} is accounted for"
    held = summary_of([one(NOW_MS)], troubles=[], persons=[], held=["ORDERS"], lost=3)
    assert (held.kind, held.fact.code) == (SummaryKind.HELD, HELD)


def test_without_an_outbox_nobody_vouches_for_what_was_not_announced() -> None:
    told = summary_of([one(NOW_MS)], troubles=[], persons=[], sees_announced_only=True)
    assert said(told.fact) == f"All is well: every announced commit until {UNTIL} is accounted for"


def test_a_time_is_never_rounded_up() -> None:
    assert utc_text(NOW_MS + 999) == UNTIL


def test_a_row_that_was_announced_to_somebody_else_holds_the_time_back() -> None:
    row = OrphanRow(unique_key=KEY, producer_group="shop", announced_ms=NOW_MS - 400_000)
    link = unheard_link(row, asked_ms=NOW_MS, ahead_ms=7_000)
    assert link.until_ms == NOW_MS - 407_000
    assert KEY in said(link.cause)
    assert link.is_late(asked_ms=NOW_MS, within_ms=300_000, is_given=False)
    assert unheard_link(None, asked_ms=NOW_MS, ahead_ms=7_000).until_ms == NOW_MS
