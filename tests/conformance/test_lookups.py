"""Looking messages up: FOUND, ABSENT or UNKNOWN, with evidence, on every broker."""

from __future__ import annotations

from dataclasses import replace

from reconciler.evidence.lookup import query_messages
from reconciler.policy.evidence import Presence, TransactionState
from reconciler.rocketmq.wire.message import Message
from tests.conformance.steps import GROUP, Steps
from tests.polling import eventually

NOBODY = "0" * 32


def test_messages_are_found_by_unique_key_and_by_keys(steps: Steps) -> None:
    topic = steps.target.new_topic("find")
    message = Message(topic=topic, body=b"found", keys=("order-1", "customer-9"))
    sent = steps.instance.sender(GROUP).send(message)
    steps.pass_index()
    for key in (sent.unique_key, "order-1", "customer-9"):
        lookup = steps.lookups.find(topic, key)()
        assert lookup.presence is Presence.FOUND, lookup.reason
        (record,) = lookup.records
        assert (record.body, record.unique_key, record.topic) == (b"found", sent.unique_key, topic)
        assert (record.broker, record.commit_log_offset) == (sent.broker_name, sent.commit_log_offset)
        assert [answer.witness for answer in lookup.answers] == [steps.target.broker_name]


def test_a_word_of_keys_finds_a_message_that_was_sent_anew(steps: Steps) -> None:
    topic = steps.target.new_topic("word")
    sent = steps.instance.sender(GROUP).send(Message(topic=topic, body=b"anew", keys=("order-1", "customer-9")))
    steps.pass_index()
    (record,) = steps.lookups.messages_of_key(topic, "order-1")().records
    assert record.unique_key == sent.unique_key
    assert steps.lookups.messages_of_key(topic, "order-2")().presence is Presence.ABSENT


def test_what_is_not_there_is_absent_and_says_who_answered(steps: Steps) -> None:
    topic = steps.target.new_topic("absent")
    for lookup in (
        steps.lookups.find(topic, NOBODY)(),
        steps.lookups.committed_copies(topic, NOBODY)(),
        steps.lookups.view_message(topic, NOBODY)(),
        steps.lookups.parked_copies(topic, NOBODY)(),
    ):
        assert lookup.presence is Presence.ABSENT, lookup.reason
        assert [answer.presence for answer in lookup.answers] == [Presence.ABSENT]


def test_a_topic_without_route_is_unknown_not_absent(steps: Steps) -> None:
    lookup = steps.lookups.find("no_such_topic", NOBODY)()
    assert lookup.presence is Presence.UNKNOWN
    assert lookup.answers[0].witness == "route"


def test_another_message_with_the_same_hash_is_not_taken_for_it(steps: Steps) -> None:
    """ "Aa" and "BB" have one Java hash; brokers compare the hash only."""
    topic = steps.target.new_topic("hash")
    steps.instance.sender(GROUP).send(Message(topic=topic, body=b"Aa", keys=("Aa",)))
    steps.pass_index()
    raw = query_messages(steps.client, steps.target.broker, topic, "BB")
    assert [record.body for record in raw] == [b"Aa"]
    assert steps.lookups.find(topic, "BB")().presence is Presence.ABSENT
    assert steps.lookups.find(topic, "Aa")().presence is Presence.FOUND


def test_view_message_finds_the_half_and_its_committed_copy_follows_end(steps: Steps) -> None:
    topic = steps.target.new_topic("view")
    half = steps.send_half(topic, colour="blue")
    steps.pass_index()
    lookup = steps.lookups.view_message(topic, half.unique_key)()
    assert lookup.presence is Presence.FOUND, lookup.reason
    found = lookup.records[0]
    assert (found.real_topic, found.producer_group, found.body) == (topic, half.group, half.message.body)
    assert (found.queue_offset, found.commit_log_offset) == (
        half.sent.queue_offset,
        half.sent.commit_log_offset,
    )
    assert found.topic == steps.half_topic(topic)
    assert found.properties["colour"] == "blue"
    assert steps.lookups.committed_copies(topic, half.unique_key)().presence is Presence.ABSENT
    steps.end(half, from_transaction_check=True)
    steps.until_delivered(topic, 1)
    steps.pass_index()
    committed = steps.lookups.committed_copies(topic, half.unique_key)()
    assert committed.presence is Presence.FOUND, committed.reason
    (copy,) = committed.records
    assert copy.transaction_state is TransactionState.COMMIT
    assert copy.prepared_transaction_offset == half.sent.commit_log_offset
    assert copy.content_digest == found.content_digest
    assert steps.lookups.view_message(topic, half.unique_key)().records[0] == found


def test_a_republished_message_counts_as_a_committed_copy(steps: Steps) -> None:
    topic = steps.target.new_topic("republished")
    half = steps.send_half(topic)
    again = Message(topic=topic, body=half.message.body, keys=half.message.keys, unique_key=half.unique_key)
    steps.instance.sender("PG_repair").send(again)
    steps.pass_index()
    lookup = steps.lookups.committed_copies(topic, half.unique_key)()
    assert [record.transaction_state for record in lookup.records] == [TransactionState.NONE]


def test_all_copies_of_a_half_are_shown_oldest_first(steps: Steps) -> None:
    topic = steps.target.new_topic("copies")
    half = steps.send_half(topic, group=f"PG_nobody_{topic}")
    wanted = 2 if steps.expect.has_half_topic else 1
    records = eventually(
        lambda: found if len(found := steps.lookups.view_message(topic, half.unique_key)().records) >= wanted else None,
        within_seconds=60,
        message="a put-back copy",
    )
    offsets = [record.commit_log_offset for record in records]
    assert offsets == sorted(offsets)
    assert offsets[0] == half.sent.commit_log_offset
    times = [record.check_times for record in records]
    assert times == [None, *range(1, len(records))]
    assert {record.real_topic for record in records} == {topic}


def test_the_record_at_an_offset_is_this_message_or_none(steps: Steps) -> None:
    """How a half is found on 3.2.6, and what a repair reads again before END."""
    topic = steps.target.new_topic("offset")
    half = steps.send_half(topic)
    place, name = half.sent.commit_log_offset, steps.target.broker_name
    found = steps.lookups.at_offset(topic, name, place, half.unique_key)()
    assert found.presence is Presence.FOUND, found.reason
    assert found.records[0].producer_group == half.group
    assert steps.lookups.at_offset(topic, name, place, NOBODY)().presence is Presence.ABSENT
    assert steps.lookups.at_offset(topic, name, place + 10_000_000, NOBODY)().presence is Presence.ABSENT
    assert steps.lookups.at_offset(topic, "no-such-broker", place, NOBODY)().presence is Presence.UNKNOWN


def test_what_the_broker_gave_up_is_found_parked(steps: Steps) -> None:
    topic = steps.target.new_topic("parked")
    half = steps.send_half(topic, group=f"PG_nobody_{topic}")
    if not steps.expect.keeps_discarded:
        steps.pass_index()
        assert steps.lookups.parked_copies(topic, half.unique_key)().presence is Presence.ABSENT
        return
    (parked,) = eventually(
        lambda: steps.lookups.parked_copies(topic, half.unique_key)().records,
        within_seconds=60,
        message="the broker to give it up",
    )
    assert (parked.real_topic, parked.producer_group, parked.body) == (topic, half.group, half.message.body)


def test_a_unique_key_that_is_no_word_of_keys_is_found_where_brokers_index_it(steps: Steps) -> None:
    """For brokers that do not, the client puts the unique key among KEYS; here it is led to believe that they do."""
    topic, address, families = steps.target.new_topic("unique_key"), steps.target.broker, steps.instance.families
    believed = replace(families.facts(address), indexes_unique_key=True)
    families._known[address] = (believed, steps.instance.clock.monotonic_seconds())
    sent = steps.send(topic, b"found by its unique key alone")
    families.forget(address)
    steps.pass_index()
    assert bool(steps.query(topic, sent.unique_key)) is steps.expect.indexes_unique_key
