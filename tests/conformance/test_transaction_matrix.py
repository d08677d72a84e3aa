"""What half, END_TRANSACTION and check-back do on every broker."""

from __future__ import annotations

import threading

import pytest

from reconciler.errors import BrokerRefused
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.producer.ending import EndAnswer, EndDecision, EndStatus
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord, TransactionType, decode_records
from tests.conformance.steps import GROUP, Half, Steps, new_steps
from tests.conformance.targets import Target
from tests.polling import PATIENCE, eventually


def find_half(steps: Steps, half: Half) -> list[MessageRecord]:
    """Half copies, looked up where the family keeps them."""
    found = steps.query(steps.half_topic(half.topic), half.unique_key)
    if steps.expect.has_half_topic:
        return found
    return [record for record in found if record.transaction_type is TransactionType.PREPARED]


def find_committed(steps: Steps, half: Half) -> list[MessageRecord]:
    """Committed copies in the index."""
    found = steps.query(half.topic, half.unique_key)
    return [record for record in found if record.transaction_type is TransactionType.COMMIT]


def check_refusal(answer: EndAnswer, text: str, steps: Steps) -> None:
    """The broker refused with its text; the first letter's case depends on the family."""
    first = text[0].upper() if steps.expect.has_half_topic else text[0].lower()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == first + text[1:]


def test_a_half_is_invisible_to_consumers_and_found_by_its_keys(steps: Steps) -> None:
    topic = steps.target.new_topic("half")
    half = steps.send_half(topic)
    steps.pass_index()
    assert steps.delivered(topic) == []
    found, *put_back = find_half(steps, half)
    # Open for longer than a second, which a slow machine may take to come here, it is put back.
    assert all("TRANSACTION_CHECK_TIMES" in record.properties for record in put_back)
    assert (found.body, found.unique_key) == (half.message.body, half.unique_key)
    assert found.physical_offset == half.sent.commit_log_offset
    assert found.queue_offset == half.sent.queue_offset
    assert found.properties["PGROUP"] == half.group
    assert find_committed(steps, half) == []
    if steps.expect.has_half_topic:
        assert found.transaction_type is TransactionType.NONE
        assert found.properties["REAL_TOPIC"] == topic
        assert steps.query(topic, half.business_key) == []
        assert steps.query(HALF_TOPIC, half.business_key)[0] == found
    else:
        assert found.transaction_type is TransactionType.PREPARED
        assert half.sent.queue_offset == 0
        assert steps.query(topic, half.business_key) == [found]
        assert steps.query(HALF_TOPIC, half.unique_key) == []


def test_a_half_reply_names_its_transaction_from_5_0_on(steps: Steps) -> None:
    half = steps.send_half(steps.target.new_topic("reply"))
    expected = half.unique_key if steps.expect.replies_transaction_id else None
    assert half.sent.transaction_id == expected


def test_end_from_a_stranger_commits_and_the_copy_names_its_half(steps: Steps, target: Target) -> None:
    """Another connection, which never sent a heartbeat: what the reconciler is."""
    topic = target.new_topic("commit")
    half = steps.send_half(topic, colour="blue")
    with new_steps(target) as stranger:
        answer = stranger.end(half, from_transaction_check=True)
    assert (answer.status, answer.code) == (EndStatus.DONE, 0)
    (copy,) = steps.until_delivered(topic, 1)
    assert (copy.body, copy.unique_key, copy.topic) == (half.message.body, half.unique_key, topic)
    assert copy.prepared_transaction_offset == half.sent.commit_log_offset
    assert copy.transaction_type is TransactionType.COMMIT
    assert copy.properties["colour"] == "blue"
    assert ("REAL_TOPIC" in copy.properties) == (steps.expect.has_half_topic and steps.expect.copies_keep_real_topic)
    steps.pass_index()
    offsets = [record.physical_offset for record in find_committed(steps, half)]
    assert offsets == ([copy.physical_offset] if steps.expect.indexes_committed else [])
    assert find_half(steps, half)[0].physical_offset == half.sent.commit_log_offset


@pytest.mark.parametrize("wrong", ["group", "queue offset", "beyond the log", "inside a record"])
def test_end_that_names_another_half_is_refused_and_delivers_nothing(steps: Steps, wrong: str) -> None:
    topic = steps.target.new_topic("wrong")
    half = steps.send_half(topic)
    place = half.sent.commit_log_offset
    if wrong == "group":
        answer = steps.end(half, group="another")
        check_refusal(answer, "The producer group wrong", steps)
        assert answer.status is EndStatus.MISMATCH
    elif wrong == "queue offset":
        answer = steps.end(half, tran_state_table_offset=half.sent.queue_offset + 1)
        check_refusal(answer, "The transaction state table offset wrong", steps)
        assert answer.status is EndStatus.MISMATCH
    elif wrong == "beyond the log":
        answer = steps.end(half, commit_log_offset=place + 4096)
        check_refusal(answer, "Find prepared transaction message failed", steps)
        assert answer.status is EndStatus.HALF_GONE
    else:  # the remark may be the text of a Java exception
        answer = steps.end(half, commit_log_offset=place + 4)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.status in {EndStatus.HALF_GONE, EndStatus.MISMATCH}
    steps.send(topic, b"marker")
    assert [record.body for record in steps.until_delivered(topic, 1)] == [b"marker"]


def test_end_is_not_idempotent_and_forgets_rollbacks(steps: Steps) -> None:
    """Why a repair is claimed first and asks for the committed copy before it sends again."""
    topic = steps.target.new_topic("twice")
    half = steps.send_half(topic)
    commit, rollback = EndDecision.COMMIT, EndDecision.ROLLBACK
    for decision in (commit, commit, rollback, commit):
        assert steps.end(half, decision, from_transaction_check=True).status is EndStatus.DONE
    copies = steps.until_delivered(topic, 3)
    assert [copy.unique_key for copy in copies] == [half.unique_key] * 3
    assert {copy.prepared_transaction_offset for copy in copies} == {half.sent.commit_log_offset}


def test_end_on_a_committed_copy_delivers_again(steps: Steps) -> None:
    """Why the reconciler checks what the record at the offset is before it sends END."""
    topic = steps.target.new_topic("copy")
    half = steps.send_half(topic)
    steps.end(half)
    (copy,) = steps.until_delivered(topic, 1)
    answer = steps.end(
        half,
        tran_state_table_offset=copy.queue_offset,
        commit_log_offset=copy.physical_offset,
        from_transaction_check=True,
    )
    if not steps.expect.copies_keep_real_topic:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        return
    assert answer.status is EndStatus.DONE
    again = steps.until_delivered(topic, 2)[1]
    assert again.prepared_transaction_offset == copy.physical_offset


def test_rollback_delivers_nothing(steps: Steps) -> None:
    topic = steps.target.new_topic("rollback")
    half = steps.send_half(topic)
    assert steps.end(half, EndDecision.ROLLBACK).status is EndStatus.DONE
    steps.send(topic, b"marker")
    assert [record.body for record in steps.until_delivered(topic, 1)] == [b"marker"]
    steps.pass_index()
    assert find_committed(steps, half) == []


def test_end_unknown_leaves_the_half_open(steps: Steps) -> None:
    """Brokers never answer it, so the client sends it one-way."""
    topic = steps.target.new_topic("unknown")
    half = steps.send_half(topic)
    assert steps.end(half, EndDecision.UNKNOWN).status is EndStatus.NO_ANSWER
    assert steps.delivered(topic) == []
    assert steps.end(half).status is EndStatus.DONE
    assert len(steps.until_delivered(topic, 1)) == 1


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
        body = half.message.body
        with self._lock:
            return [command for command in self._seen if decode_records(command.body)[0].body == body]


def join_group(steps: Steps, group: str) -> None:
    """A heartbeat as a producer of the group, whose checks are not answered."""
    body = f'{{"clientID":"127.0.0.1@conformance#{group}","producerDataSet":[{{"groupName":"{group}"}}],'
    command = Command(code=RequestCode.HEART_BEAT, body=(body + '"consumerDataSet":[]}').encode())
    assert steps.client.request(steps.target.broker, command).code == ResponseCode.SUCCESS


def test_check_back_asks_with_the_newest_copy_and_its_answer_delivers(steps: Steps, target: Target) -> None:
    topic = target.new_topic("check")
    group = f"PG_{topic}"
    checks = Checks(steps.client)
    join_group(steps, group)
    half = steps.send_half(topic, group=group)
    if not target.expect.has_half_topic:
        with pytest.raises(AssertionError, match="a check-back"):  # more than two check intervals
            eventually(lambda: checks.of(half), within_seconds=5 / PATIENCE, message="a check-back")
        return
    check = eventually(lambda: checks.of(half), within_seconds=60, message="a check-back")[0]
    assert check.is_oneway
    assert check.fields["msgId"] == check.fields["transactionId"] == half.unique_key
    (asked,) = decode_records(check.body)
    assert (asked.topic, asked.unique_key) == (topic, half.unique_key)
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    place = int(check.fields["commitLogOffset"])
    assert place > half.sent.commit_log_offset
    number = int(check.fields["tranStateTableOffset"])
    answer = steps.end(half, tran_state_table_offset=number, commit_log_offset=place, from_transaction_check=True)
    assert answer.status is EndStatus.DONE
    (copy,) = steps.until_delivered(topic, 1)
    assert copy.prepared_transaction_offset == place
    steps.pass_index()
    offsets = [record.physical_offset for record in find_half(steps, half)]
    assert offsets[0] == half.sent.commit_log_offset
    assert place in offsets


def test_what_nobody_answers_is_given_up_and_can_still_be_committed(steps: Steps, target: Target) -> None:
    """The loss this project repairs: no producer of the group lives, the rounds run out."""
    topic = target.new_topic("given_up")
    half = steps.send_half(topic, group=f"PG_nobody_{topic}")
    if not target.expect.has_half_topic:
        steps.pass_index()
        assert len(find_half(steps, half)) == 1
    elif target.expect.keeps_discarded:
        steps.until_indexed(DISCARD_TOPIC, half.unique_key, within_seconds=60)
    else:  # it is only logged; what is left to be seen is that copies stop at the maximum
        steps.until_indexed(HALF_TOPIC, half.unique_key, count=4, within_seconds=60)
    newest = find_half(steps, half)[-1]
    answer = steps.end(
        half,
        tran_state_table_offset=newest.queue_offset,
        commit_log_offset=newest.physical_offset,
        from_transaction_check=True,
    )
    assert answer.status is EndStatus.DONE
    (copy,) = steps.until_delivered(topic, 1)
    assert (copy.unique_key, copy.body) == (half.unique_key, half.message.body)
    if target.expect.has_half_topic:
        assert newest.properties["TRANSACTION_CHECK_TIMES"] == "3"
    if target.expect.keeps_discarded:
        (parked,) = steps.query(DISCARD_TOPIC, half.unique_key)
        assert parked.properties["REAL_TOPIC"] == topic
        assert parked.body == half.message.body


def test_a_late_end_is_refused_from_5_1_1_on_unless_it_follows_a_check(steps: Steps) -> None:
    topic = steps.target.new_topic("late")
    half = steps.send_half(topic, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    if steps.expect.rejects_late_end:
        answer = eventually(
            lambda: late if (late := steps.end(half, EndDecision.ROLLBACK)).code else None,
            within_seconds=60,
            message="the immunity window to pass",
        )
        assert (answer.code, answer.status) == (ResponseCode.ILLEGAL_OPERATION, EndStatus.REFUSED_FOR_NOW)
    assert steps.end(half, from_transaction_check=True).status is EndStatus.DONE
    (copy,) = steps.until_delivered(topic, 1)
    assert copy.unique_key == half.unique_key


def test_the_half_topic_is_readable_once_it_is_registered(steps: Steps) -> None:
    if not steps.expect.has_half_topic:
        with pytest.raises(BrokerRefused) as refused:
            steps.pull(HALF_TOPIC)
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
        return
    half = steps.send_half(steps.target.new_topic("readable"), group="PG_nobody_reads")

    def readable() -> list[MessageRecord]:
        try:
            return steps.pull(HALF_TOPIC, half.sent.queue_offset).records
        except BrokerRefused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return []

    records = eventually(readable, within_seconds=60, message="the first check round to register the half topic")
    assert records[0].unique_key == half.unique_key


def test_a_broker_that_takes_no_transactions_says_so(steps: Steps, target: Target) -> None:
    """rejectTransactionMessage=true."""
    topic = target.new_topic("rejected")
    steps.configure(rejectTransactionMessage="true")
    try:
        message = Message(topic=topic, body=b"half")
        with pytest.raises(BrokerRefused) as refused:
            steps.instance.sender(GROUP).send(message, queue=steps.queue(topic), is_half=True)
        steps.send(topic, b"no half")
    finally:
        steps.configure(rejectTransactionMessage="false")
    assert refused.value.code == ResponseCode.NO_PERMISSION
