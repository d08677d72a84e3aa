"""What half, END_TRANSACTION and check-back do on every broker."""

from __future__ import annotations

import threading

import pytest

from reconciler.errors import RequestTimeout
from reconciler.rocketmq.client import RemotingClient
from reconciler.rocketmq.codes import RequestCode, ResponseCode, SystemFlag
from reconciler.rocketmq.frame import Command
from reconciler.rocketmq.record import MessageRecord, decode_records
from tests.conformance.expectations import HALF_TOPIC, PARKED_TOPIC
from tests.conformance.targets import Target
from tests.conformance.wire import COMMIT, ROLLBACK, UNKNOWN, Half, Wire
from tests.polling import eventually


def find_half(wire: Wire, half: Half) -> list[MessageRecord]:
    """Half copies, found the way the family allows."""
    found = wire.query(wire.target.expect.half_topic(half.topic), half.unique_key)
    if wire.target.expect.has_half_topic:
        return found
    return [record for record in found if record.system_flag & SystemFlag.TRANSACTION_MASK == SystemFlag.PREPARED]


def find_committed(wire: Wire, half: Half) -> list[MessageRecord]:
    """Committed copies in the index."""
    return [
        record
        for record in wire.query(half.topic, half.unique_key)
        if record.system_flag & SystemFlag.TRANSACTION_MASK == SystemFlag.COMMIT
    ]


def refused(reply: Command, text: str, wire: Wire) -> None:
    """The broker refused with its text; the first letter's case depends on the family."""
    first = text[0].upper() if wire.target.expect.error_case == "upper" else text[0].lower()
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == first + text[1:]


def test_a_half_is_invisible_to_consumers_and_found_by_its_keys(wire: Wire, target: Target) -> None:
    topic = target.new_topic("half")
    half = wire.send_half(topic)
    wire.pass_index()
    assert wire.delivered(topic) == []
    (found,) = find_half(wire, half)
    assert (found.body, found.unique_key) == (half.body, half.unique_key)
    assert found.physical_offset == half.commit_log_offset
    assert found.queue_offset == half.queue_offset
    assert found.properties["PGROUP"] == half.group
    assert find_committed(wire, half) == []
    expect = target.expect
    prepared = 0 if expect.has_half_topic else int(SystemFlag.PREPARED)
    assert found.system_flag & SystemFlag.TRANSACTION_MASK == prepared
    if expect.has_half_topic:
        assert found.properties["REAL_TOPIC"] == topic
        assert wire.query(topic, half.business_key) == []
        assert wire.query(HALF_TOPIC, half.business_key) == [found]
    else:
        assert half.queue_offset == 0
        assert wire.query(topic, half.business_key) == [found]
        assert wire.query(HALF_TOPIC, half.unique_key) == []


def test_a_half_reply_names_its_transaction_from_5_0_on(wire: Wire, target: Target) -> None:
    key = "AB" * 16
    reply = wire.send(target.new_topic("reply"), b"x", unique_key=key, properties={"TRAN_MSG": "true", "PGROUP": "P"})
    assert reply.fields.get("transactionId") == (key if target.expect.replies_transaction_id else None)


def test_end_from_a_stranger_commits_and_the_copy_names_its_half(wire: Wire, target: Target) -> None:
    """Another connection, which never sent a heartbeat: what the reconciler is."""
    topic = target.new_topic("commit")
    half = wire.send_half(topic, colour="blue")
    with RemotingClient() as stranger:
        reply = Wire(stranger, target).end(half, from_check=True)
    assert reply.code == ResponseCode.SUCCESS
    (copy,) = wire.until_delivered(topic, 1)
    assert (copy.body, copy.unique_key, copy.topic) == (half.body, half.unique_key, topic)
    assert copy.prepared_transaction_offset == half.commit_log_offset
    assert copy.system_flag & SystemFlag.TRANSACTION_MASK == SystemFlag.COMMIT
    assert copy.properties["colour"] == "blue"
    wire.pass_index()
    expected = [copy] if target.expect.indexes_committed else []
    assert find_committed(wire, half) == expected
    assert len(find_half(wire, half)) >= 1


@pytest.mark.parametrize("wrong", ["group", "queue offset", "beyond the log", "inside a record"])
def test_end_that_names_another_half_is_refused_and_nothing_is_delivered(
    wire: Wire, target: Target, wrong: str
) -> None:
    topic = target.new_topic("wrong")
    half = wire.send_half(topic)
    if wrong == "group":
        refused(wire.end(half, group="another"), "The producer group wrong", wire)
    elif wrong == "queue offset":
        reply = wire.end(half, queue_offset=half.queue_offset + 1)
        refused(reply, "The transaction state table offset wrong", wire)
    elif wrong == "beyond the log":
        reply = wire.end(half, commit_log_offset=half.commit_log_offset + 4096)
        refused(reply, "Find prepared transaction message failed", wire)
    else:  # the remark may be the text of a Java exception
        assert wire.end(half, commit_log_offset=half.commit_log_offset + 4).code == ResponseCode.SYSTEM_ERROR
    marker = wire.send(topic, b"marker")
    assert marker.code == ResponseCode.SUCCESS
    assert [record.body for record in wire.until_delivered(topic, 1)] == [b"marker"]


def test_end_is_not_idempotent_and_forgets_rollbacks(wire: Wire, target: Target) -> None:
    """Why a repair is claimed first and asks for the committed copy before it sends again."""
    topic = target.new_topic("twice")
    half = wire.send_half(topic)
    for decision in (COMMIT, COMMIT, ROLLBACK, COMMIT):
        assert wire.end(half, decision, from_check=True).code == ResponseCode.SUCCESS
    copies = wire.until_delivered(topic, 3)
    assert [copy.unique_key for copy in copies] == [half.unique_key] * 3
    assert {copy.prepared_transaction_offset for copy in copies} == {half.commit_log_offset}


def test_end_on_a_committed_copy_delivers_again(wire: Wire, target: Target) -> None:
    """Why the reconciler checks what the record at the offset is before it sends END."""
    topic = target.new_topic("copy")
    half = wire.send_half(topic)
    wire.end(half)
    (copy,) = wire.until_delivered(topic, 1)
    reply = wire.end(half, queue_offset=copy.queue_offset, commit_log_offset=copy.physical_offset, from_check=True)
    if not target.expect.copies_keep_real_topic:
        assert "REAL_TOPIC" not in copy.properties
        assert reply.code == ResponseCode.SYSTEM_ERROR
        return
    assert reply.code == ResponseCode.SUCCESS
    again = wire.until_delivered(topic, 2)[1]
    assert again.prepared_transaction_offset == copy.physical_offset


def test_rollback_delivers_nothing(wire: Wire, target: Target) -> None:
    topic = target.new_topic("rollback")
    half = wire.send_half(topic)
    assert wire.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    wire.send(topic, b"marker")
    assert [record.body for record in wire.until_delivered(topic, 1)] == [b"marker"]
    wire.pass_index()
    assert find_committed(wire, half) == []


def test_end_unknown_is_never_answered(target: Target) -> None:
    with RemotingClient(request_timeout_seconds=0.7) as client:
        wire = Wire(client, target)
        half = wire.send_half(target.new_topic("unknown"))
        with pytest.raises(RequestTimeout):
            wire.end(half, UNKNOWN)
        assert wire.end(half, ROLLBACK).code == ResponseCode.SUCCESS  # the connection lives on


class Checks:
    """Check-backs that a producer group received."""

    def __init__(self, client: RemotingClient) -> None:
        self._lock = threading.Lock()
        self._seen: list[Command] = []
        client.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._note)

    def _note(self, address: str, command: Command) -> None:
        with self._lock:
            self._seen.append(command)

    def of(self, half: Half) -> list[Command]:
        """Those that ask about the half."""
        with self._lock:
            return [command for command in self._seen if decode_records(command.body)[0].body == half.body]


def join_group(wire: Wire, group: str) -> None:
    """A heartbeat as a producer of the group."""
    body = f'{{"clientID":"127.0.0.1@conformance#{group}","producerDataSet":[{{"groupName":"{group}"}}],'
    reply = wire.ask(RequestCode.HEART_BEAT, {}, (body + '"consumerDataSet":[]}').encode())
    assert reply.code == ResponseCode.SUCCESS


def test_check_back_asks_with_the_newest_copy_and_its_answer_delivers(wire: Wire, target: Target) -> None:
    topic, group = target.new_topic("check"), f"PG_{target.new_topic('group')}"
    checks = Checks(wire.client)
    join_group(wire, group)
    half = wire.send_half(topic, group=group)
    if not target.expect.has_half_topic:
        with pytest.raises(AssertionError, match="a check-back"):  # more than two check intervals
            eventually(lambda: checks.of(half), within_seconds=5, message="a check-back")
        return
    check = eventually(lambda: checks.of(half), within_seconds=20, message="a check-back")[0]
    assert check.is_oneway
    assert check.fields["msgId"] == check.fields["transactionId"] == half.unique_key
    (asked,) = decode_records(check.body)
    assert (asked.topic, asked.unique_key) == (topic, half.unique_key)
    assert int(check.fields["commitLogOffset"]) > half.commit_log_offset
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    reply = wire.end(
        half,
        queue_offset=int(check.fields["tranStateTableOffset"]),
        commit_log_offset=int(check.fields["commitLogOffset"]),
        from_check=True,
    )
    assert reply.code == ResponseCode.SUCCESS
    (copy,) = wire.until_delivered(topic, 1)
    assert copy.prepared_transaction_offset == int(check.fields["commitLogOffset"])
    wire.pass_index()
    copies = find_half(wire, half)
    assert copies[0].physical_offset == half.commit_log_offset
    assert len(copies) >= 2
    assert [record.physical_offset for record in copies] == sorted(record.physical_offset for record in copies)


def test_what_nobody_answers_is_given_up_and_can_still_be_committed(wire: Wire, target: Target) -> None:
    """The loss this project repairs: no producer of the group lives, the rounds run out."""
    topic = target.new_topic("given_up")
    half = wire.send_half(topic, group=f"PG_nobody_{topic}")
    if not target.expect.has_half_topic:
        wire.pass_index()
        assert len(find_half(wire, half)) == 1
    elif target.expect.parks:
        wire.until_indexed(PARKED_TOPIC, half.unique_key, within_seconds=40)
    else:  # it is only logged: what is left to be seen is that copies stop at the maximum
        eventually(lambda: len(find_half(wire, half)) >= 4, within_seconds=40, message="original and 3 copies")
    newest = find_half(wire, half)[-1]
    reply = wire.end(half, queue_offset=newest.queue_offset, commit_log_offset=newest.physical_offset, from_check=True)
    assert reply.code == ResponseCode.SUCCESS
    (copy,) = wire.until_delivered(topic, 1)
    assert (copy.unique_key, copy.body) == (half.unique_key, half.body)
    if target.expect.has_half_topic:
        assert newest.properties["TRANSACTION_CHECK_TIMES"] == "3"
    if target.expect.parks:
        (parked,) = wire.query(PARKED_TOPIC, half.unique_key)
        assert parked.properties["REAL_TOPIC"] == topic
        assert parked.body == half.body


def test_a_late_end_is_refused_by_5_1_1_unless_it_follows_a_check(wire: Wire, target: Target) -> None:
    topic = target.new_topic("late")
    half = wire.send_half(topic, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    expect = target.expect
    if expect.refuses_late_end:
        reply = eventually(
            lambda: late if (late := wire.end(half, ROLLBACK)).code else None,
            within_seconds=20,
            message="the immunity window to pass",
        )
        assert reply.code == ResponseCode.ILLEGAL_OPERATION
    reply = wire.end(half, from_check=True)
    assert reply.code == ResponseCode.SUCCESS
    (copy,) = wire.until_delivered(topic, 1)
    assert copy.unique_key == half.unique_key


def test_the_half_topic_is_readable_once_it_is_registered(wire: Wire, target: Target) -> None:
    if not target.expect.has_half_topic:
        assert wire.pull(HALF_TOPIC).code == ResponseCode.TOPIC_NOT_EXIST
        return
    half = wire.send_half(target.new_topic("readable"), group="PG_nobody_reads")
    start = max(0, half.queue_offset - 1)
    reply = eventually(
        lambda: answer if (answer := wire.pull(HALF_TOPIC, offset=start)).code == 0 else None,
        within_seconds=15,
        message="the half topic to be registered by the first check round",
    )
    assert half.unique_key in {record.unique_key for record in decode_records(reply.body)}
