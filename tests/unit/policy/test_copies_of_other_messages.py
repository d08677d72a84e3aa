"""A unique key is a name that any sender may use: a copy counts only if its content is the outbox row's."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest

from checkback_producers.entry import entry_of, prepare_message
from checkback_producers.ports import SentHalf
from reconciler.contract.tables import CandidateState, OutboxState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import EndOutcome, StoredMessage, TransactionState
from reconciler.policy.inquiry.delivery import kept_message, suspicion
from reconciler.rocketmq.wire.message import Message
from reconciler.words import told
from tests.unit.policy.judging import judged, reason
from tests.unit.policy.repair_rows import copies, ended, say
from tests.unit.policy.world import World, key

THEIRS = b"theirs"


def ordinary(world: World, message: StoredMessage, **changes: object) -> StoredMessage:
    """An ordinary message with the key of another one: no half was before it."""
    copy = world.broker.commit(replace(message, producer_group="", **changes))  # type: ignore[arg-type]
    properties = {name: value for name, value in copy.properties.items() if name not in ("PGROUP", "REAL_TOPIC")}
    copy = replace(copy, properties=properties, transaction_state=TransactionState.NONE, prepared_transaction_offset=0)
    world.broker.copies[-1] = copy
    return copy


def other_tag(message: StoredMessage) -> dict[str, str]:
    return {**message.properties, "TAGS": "refund"}


class Table:
    """One line of the table: what the witnesses have under one key."""

    def __init__(
        self, *, digest: bool, copies: tuple[str, ...], half: str, body: bool, inbox: str, tags: str | None
    ) -> None:
        self.world = world = World(tags={} if tags is None else {"billing": frozenset({tags})})
        own = world.broker.send_half(key(1))
        theirs = replace(own, body=THEIRS)
        row = {"body": own.body, "properties": {"user": "value"}} if body else {}
        world.commit_locally(key(1), own, content_digest=own.content_digest if digest else None, **row)
        self.own = own
        for copy in copies:
            if copy == "own":
                world.broker.commit(own)
            elif copy == "body":
                ordinary(world, theirs)
            else:
                ordinary(world, own, properties=other_tag(own))
        world.broker.halves = {"none": [], "own": [own], "body": [theirs]}[half]
        world.consume(effects=False)
        if inbox != "none":
            world.apply("billing", own if inbox == "own" else theirs)
        world.announce(key(1))


COPIES = [(), ("own",), ("body",), ("tag",), ("own", "body"), ("body", "own"), ("tag", "own"), ("body", "tag")]
LINES = list(
    product([True, False], COPIES, ["none", "own", "body"], [True, False], ["none", "own", "body"], [None, "paid"])
)


def expected(digest: bool, found: tuple[str, ...], half: str, body: bool, inbox: str) -> Verdict:
    ours = {"own"} if digest else {"own", "body"}
    if inbox != "none":
        return Verdict.CONSUMED if inbox in ours else Verdict.COLLISION
    if ours & set(found):
        return Verdict.DELIVERED_NOT_APPLIED
    if half in ours:
        return Verdict.LOST_CONFIRM
    if half == "none" and not found:
        return Verdict.EXPIRED
    if half == "body" and "tag" not in found:
        return Verdict.COLLISION  # all copies differ alike: the digest is suspect
    return Verdict.EXPIRED if body else Verdict.COLLISION


@pytest.mark.parametrize(("digest", "found", "half", "body", "inbox", "tags"), LINES)
def test_only_what_is_this_message_speaks_for_it_and_only_it_is_sent(
    digest: bool, found: tuple[str, ...], half: str, body: bool, inbox: str, tags: str | None
) -> None:
    table = Table(digest=digest, copies=found, half=half, body=body, inbox=inbox, tags=tags)
    world = table.world
    before = len(world.broker.copies)
    entry = judged(world, key(1))
    assert entry.verdict is expected(digest, found, half, body, inbox), entry.evidence
    assert digest == ("compared" not in entry.evidence)
    world.rounds(world.process(), 12)
    sent = world.broker.copies[before:]
    is_lost = entry.verdict in (Verdict.LOST_CONFIRM, Verdict.EXPIRED)
    can_be_sent = is_lost and (half != "none" or body)
    assert len(sent) == can_be_sent
    if digest:
        assert [copy.content_digest for copy in sent] == [table.own.content_digest] * can_be_sent
    if can_be_sent:
        assert ended(world, key(1)).state is RepairState.DONE
        assert world.verdict(key(1)) == "CONSUMED"
    else:
        candidate = world.candidate(key(1))
        assert candidate is not None
        assert (candidate.state is CandidateState.SETTLED) == (entry.verdict is Verdict.CONSUMED)


@pytest.mark.parametrize("found", COPIES)
def test_tag_that_the_group_does_not_take_is_the_outbox_rows_and_no_copys(found: tuple[str, ...]) -> None:
    table = Table(digest=True, copies=found, half="none", body=False, inbox="none", tags="refund")
    assert judged(table.world, key(1)).verdict is Verdict.FILTERED
    assert table.world.broker.look_ups == []


# ---- what is told


def test_collision_tells_both_digests() -> None:
    world = Table(digest=True, copies=(), half="own", body=False, inbox="body", tags=None).world
    row = world.outbox.rows[key(1)]
    seen = world.inbox.rows["billing", key(1)].content_digest
    assert row.content_digest is not None
    assert seen is not None
    said = reason(judged(world, key(1)))
    assert row.content_digest.hex()[:16] in said
    assert seen.hex()[:16] in said


def test_copy_of_another_message_is_told_with_its_place() -> None:
    world = Table(digest=True, copies=("tag", "body"), half="own", body=False, inbox="none", tags=None).world
    evidence = judged(world, key(1)).evidence
    others = told(evidence)["other_messages"]
    assert isinstance(others, dict)
    assert others.keys() == {"copies", "newest"}
    assert others["copies"] == 2
    assert str(others["newest"]).startswith("ORDERS on broker-a@")
    assert "committed_at" not in evidence


def test_digest_that_no_copy_has_is_suspect_and_one_line_says_so() -> None:
    world = Table(digest=True, copies=("body",), half="body", body=True, inbox="none", tags=None).world
    assert "digest is suspect" in reason(judged(world, key(1)))


def test_tag_that_no_copy_has_is_suspect_without_a_digest_too() -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, tag="refund", content_digest=None)
    entry = judged(world, key(1))
    assert entry.verdict is Verdict.COLLISION
    assert "suspect" in reason(entry)


def test_halves_of_a_stranger_say_nothing_against_the_digest() -> None:
    world = World()
    row = world.commit_locally(key(1), world.broker.send_half(key(1)))
    stranger = world.broker.send_half(key(1), group="somebody", body=THEIRS)
    assert suspicion(row.seen.message, [stranger]) is None
    assert suspicion(None, [stranger]) is None
    assert suspicion(row.seen.message, []) is None


# ---- absent only where it is proved


@pytest.mark.parametrize("kind", ["copies", "halves", "parked"])
@pytest.mark.parametrize("why", ["broker away", "index behind"])
def test_another_message_proves_no_absence(kind: str, why: str) -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    world.broker.halves = []
    getattr(world.broker, kind).append(replace(half, topic="ORDERS" if kind == "copies" else half.topic, body=THEIRS))
    world.broker.route = frozenset({"broker-a", "broker-b"})
    assert judged(world, key(1)).verdict is Verdict.COLLISION
    if why == "broker away":
        world.broker.route = frozenset({"broker-a"})
    else:
        world.broker.proves_horizon = False
    entry = judged(world, key(1))
    assert (entry.verdict, entry.state) == (Verdict.UNKNOWN, CandidateState.OPEN)


@pytest.mark.parametrize("row", ["away", "absent", "tombstone"])
def test_copy_that_nobody_can_compare_closes_nothing_for_good(row: str) -> None:
    """A stranger may have announced the key before its commit, and used it before, too."""
    world = World()
    lost = world.lose(1)
    theirs = ordinary(world, world.broker.halves[0])
    world.consume(effects=False)
    world.broker.in_group_topic("billing", "dead-letter", theirs, topic="%DLQ%billing")
    committed = world.outbox.rows.pop(lost)
    if row == "tombstone":
        world.commit_locally(lost, state=OutboxState.ROLLED_BACK)
    world.outbox.away = row == "away"
    process = world.process()
    world.rounds(process, 5)
    assert world.verdict(lost) == ("UNKNOWN" if row == "away" else "REJECTED")
    assert world.broker.look_ups == []
    world.outbox.away = False
    world.outbox.rows[lost] = replace(committed, content_digest=replace(theirs, body=b"").content_digest)
    world.broker.halves = [replace(half, body=b"") for half in world.broker.halves]
    world.announce(lost)
    world.rounds(process, 20)
    assert (world.verdict(lost), ended(world, lost).state) == ("CONSUMED", RepairState.DONE)


# ---- how far the group is


def test_copy_of_another_message_that_is_still_to_come_delays_nothing() -> None:
    world = World()
    lost = world.lose(1)
    ordinary(world, replace(world.broker.halves[0], body=THEIRS))
    assert judged(world, lost).verdict is Verdict.LOST_CONFIRM


@pytest.mark.parametrize(("kind", "topic"), [("retry", "SCHEDULE_TOPIC_XXXX"), ("dead-letter", "%DLQ%billing")])
def test_what_the_group_failed_of_another_message_is_not_this_one(kind: str, topic: str) -> None:
    world = World()
    delivered = world.deliver(1)
    world.consume(effects=False)
    theirs = replace(world.broker.copies[0], body=THEIRS)
    world.broker.in_group_topic("billing", kind, theirs, topic=topic)
    assert judged(world, delivered).verdict is Verdict.DELIVERED_NOT_APPLIED


# ---- repairs


def test_end_without_an_answer_was_not_executed_because_somebody_used_its_key() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.NO_ANSWER)]
    world.broker.executes_unanswered = False
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    ordinary(world, replace(world.broker.halves[0], body=THEIRS))
    world.consume(effects=False)
    world.rounds(process, 12)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.DONE, 2, 2)


def test_dead_letter_of_another_message_does_not_fail_a_repair() -> None:
    world = World()
    lost = world.lose(1)
    theirs = replace(world.broker.halves[0], body=THEIRS)
    world.broker.in_group_topic("billing", "dead-letter", theirs, topic="%DLQ%billing")
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.broker.in_group_topic("billing", "retry", world.broker.copies[0], topic="SCHEDULE_TOPIC_XXXX")
    world.consume(effects=False)
    world.rounds(process, 12)
    assert ended(world, lost).state is RepairState.SENT


def test_effect_of_another_message_ends_a_repair_in_a_failure_with_both_digests() -> None:
    world = World(groups=("billing", "shipping"))
    process, lost = world.proved_loss()
    theirs = replace(world.broker.halves[0], body=THEIRS)
    world.apply("billing", theirs)
    world.rounds(process, 12)
    row = ended(world, lost)
    assert (row.state, copies(world, lost)) == (RepairState.FAILED, 1), "the other group had to have it"
    assert "billing has another content" in (row.answer or "")
    assert theirs.content_digest.hex()[:16] in (row.answer or "")
    assert world.verdict(lost, "billing") == "COLLISION"
    assert ("shipping", lost) in world.inbox.rows


def test_tag_of_another_message_ends_no_repair_while_the_outbox_is_away() -> None:
    world = World(tags={"billing": frozenset({"paid"})})
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    half = world.broker.halves[0]
    world.broker.copies = []
    ordinary(world, half, properties=other_tag(half))
    world.outbox.away = True
    world.clock.advance(60)
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert ended(world, lost).state is RepairState.SENT


def test_body_that_is_not_what_its_digest_says_is_not_sent() -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, body=THEIRS, properties={"user": "value"})
    world.announce(key(1))
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert (ended(world, key(1)).state, world.broker.copies) == (RepairState.FAILED, [])


def test_body_as_the_producer_keeps_it_has_the_digest_of_its_row() -> None:
    unique_key = key(7)
    message = prepare_message(
        Message(topic="ORDERS", body=b"paid 7", tags="paid", keys=("order-7", "alice"), properties={"a": "b"}),
        business_id="7", unique_key=unique_key, outbox_mark="A",
    )  # fmt: skip
    half = SentHalf(unique_key=unique_key, broker="broker-a", commit_log_offset=1, queue_offset=0)
    entry = entry_of(message, half, producer_group="order-service", keep_body=True)
    row = World().commit_locally(
        unique_key, tag=entry.tag, message_keys=entry.message_keys, body=entry.body,
        properties=json.loads(entry.properties or ""), content_digest=entry.content_digest,
    )  # fmt: skip
    assert kept_message(row.seen.commit) is not None


# ---- what Redis matched


def test_key_that_another_messages_effect_matched_is_judged_in_full_when_it_is_announced_again() -> None:
    """The match in Redis is by key. The sweeper compares, and announces the key again."""
    world = World()
    lost = world.lose(1)
    theirs = replace(world.broker.halves[0], body=THEIRS)
    world.apply("billing", theirs)
    world.shards.record(world.subscriptions[0], [lost], shards=world.topic.shards)
    process = world.process()
    world.rounds(process, 10)
    assert (world.candidate(lost), world.pending()) == (None, [])
    world.announce(lost)
    world.rounds(process, 6)
    assert world.verdict(lost) == "COLLISION"


@pytest.mark.parametrize("tombstone", [False, True])
def test_effect_of_another_message_that_came_before_the_commit_does_not_close_the_key(tombstone: bool) -> None:
    """With nothing to compare it was CONSUMED for good, and the loss that followed was forgotten at its announcement.

    A tombstone may be that of another database.
    """
    world = World()
    half = world.broker.send_half(key(1))
    if tombstone:
        world.commit_locally(key(1), half, state=OutboxState.ROLLED_BACK, content_digest=None)
    world.apply("billing", replace(half, body=THEIRS))
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 4)
    assert world.verdict(key(1)) == "CONSUMED"
    world.commit_locally(key(1), half)
    world.announce(key(1))
    world.rounds(process, 4)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == (Verdict.COLLISION, CandidateState.QUARANTINED)


def test_effect_whose_outbox_row_was_purged_closes_the_key_again_without_a_broker() -> None:
    world = World()
    fine = world.deliver(1)
    world.consume(records=False)
    world.outbox.rows.clear()
    process = world.process()
    world.rounds(process, 4)
    world.announce(fine)
    look_ups = len(world.broker.look_ups)
    world.rounds(process, 4)
    assert (world.verdict(fine), world.pending()) == ("CONSUMED", [])
    assert len(world.broker.look_ups) == look_ups
