"""Check-back rounds: copies, questions, giving up, and what END may still do then."""

from __future__ import annotations

import json

import pytest

from reconciler.embedded.server import EmbeddedBroker
from tests.unit.embedded.check_back_stage import stage
from tests.unit.embedded.raw_client import GROUP, HALF_TOPIC, TOPIC, RawClient, end_fields, pull_fields, records

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECK = 39
WITH_CHECKS = ["4.4", "4.9", "5.x"]


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_each_round_copies_the_half_and_asks_about_the_copy(family: str) -> None:
    with stage(family) as play:
        play.join()
        first = play.half(KEYS="order")
        play.round()
        question = play.client.await_push(CHECK)
        copy = play.client.found(HALF_TOPIC, "K1")[-1]
        assert copy.physical_offset > first["log"]
        assert question.fields["commitLogOffset"] == str(copy.physical_offset)
        assert question.fields["tranStateTableOffset"] == str(copy.queue_offset)
        assert question.fields["transactionId"] == question.fields["msgId"] == "K1"
        assert ("bname" in question.fields) == (family == "5.x")
        (asked,) = records(question.body)
        assert (asked.topic, asked.queue_id, asked.physical_offset) == (TOPIC, 2, copy.physical_offset)
        assert question.is_oneway
        play.round()
        assert play.copies() == [None, "1", "2"]


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_an_end_on_an_older_copy_delivers_but_the_questions_go_on(family: str) -> None:
    with stage(family) as play:
        play.join()
        first = play.half()
        play.round()
        assert play.end(first) == 0
        play.client.await_push(CHECK)
        play.round()
        newest = play.client.await_push(CHECK)
        assert [message.prepared_offset for message in play.broker.stored(TOPIC)] == [first["log"]]
        where = {"queue": int(newest.fields["tranStateTableOffset"]), "log": int(newest.fields["commitLogOffset"])}
        assert play.end(where, 12) == 0
        play.write_ends()
        play.round()
        assert play.copies() == [None, "1", "2"]
        assert play.broker.stored(TOPIC)[0].sys_flag == 8


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_an_unanswered_half_is_given_up_after_the_maximum(family: str) -> None:
    with stage(family) as play:
        play.half(KEYS="order")
        for _ in range(6):  # no client of the group is there: every round still uses up the budget
            play.round()
        assert play.copies() == [None, "1", "2", "3"]
        parked = play.broker.stored(PARKED)
        if family == "4.4":  # until 4.5.1 only a line in the broker's own log
            assert parked == []
        else:
            (copy,) = parked
            assert copy.properties["REAL_TOPIC"] == TOPIC
            assert copy.properties["REAL_QID"] == "2"
            assert copy.properties["PGROUP"] == GROUP
            assert play.client.call(11, **pull_fields(PARKED, 0, 0)).code == 0
        newest = play.client.found(HALF_TOPIC, "K1")[-1]
        where = {"queue": newest.queue_offset, "log": newest.physical_offset}
        assert play.end(where) == 0
        assert [message.body for message in play.broker.stored(TOPIC)] == [b"half"]


@pytest.mark.parametrize("family", ["4.9", "5.x"])
def test_a_half_older_than_the_retention_is_parked_without_a_question(family: str) -> None:
    with stage(family, reserved_seconds=3600.0) as play:
        play.join()
        play.half()
        play.round(1800.0)
        play.client.await_push(CHECK)
        play.round(2400.0)  # the copy is 40 minutes old, the message 70
        assert len(play.broker.stored(PARKED)) == 1
        assert play.client.pushed == []


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_a_half_younger_than_the_timeout_ends_the_round(family: str) -> None:
    with stage(family) as play:
        play.half()
        play.round(5.0)
        assert play.copies() == [None]
        play.round(2.0)
        assert play.copies() == [None, "1"]


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_an_immune_half_is_copied_silently_and_may_be_given_up_unasked(family: str) -> None:
    with stage(family) as play:
        play.join()
        first = play.half(CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
        for _ in range(5):
            play.round()
        halves = play.client.found(HALF_TOPIC, "K1")
        assert [half.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for half in halves] == [None, "0", "0", "0"]
        assert play.client.pushed == []
        assert len(play.broker.stored(PARKED)) == (0 if family == "4.4" else 1)
        assert halves[0].physical_offset == first["log"]


@pytest.mark.parametrize(("family", "code"), [("4.4", 0), ("4.9", 0), ("5.x", 604)])
def test_the_producers_own_end_is_refused_after_the_immunity_time(family: str, code: int) -> None:
    with stage(family) as play:
        late = play.half(CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        play.clock.advance(19.0)
        assert play.end(late, 12, from_check=False) == 0
        play.clock.advance(2.0)
        assert play.end(late, 8, from_check=False) == code
        assert play.end(late, 8, from_check=True) == 0


def test_finished_halves_are_written_in_batches_from_5_1_on() -> None:
    with stage("5.x", finished_batch_interval_seconds=3.0) as play:
        for number in range(3):
            assert play.end(play.half(f"K{number}")) == 0
        assert play.broker.stored(OP_TOPIC) == []
        play.round()  # falls into the gap: committed halves are put back
        assert play.copies("K0") == [None, "1"]
        play.write_ends()
        assert [message.body for message in play.broker.stored(OP_TOPIC)] == [b"0,1,2,"]


@pytest.mark.parametrize("family", ["4.4", "4.9"])
def test_finished_halves_are_written_at_once_up_to_5_0(family: str) -> None:
    with stage(family) as play:
        play.end(play.half("K0"), 12)
        play.end(play.half("K1"))
        assert [message.body for message in play.broker.stored(OP_TOPIC)] == [b"0", b"1"]
        play.round()
        assert play.copies("K1") == [None]


@pytest.mark.parametrize("family", WITH_CHECKS)
def test_a_lasting_open_half_does_not_hide_finished_ones_behind_it(family: str) -> None:
    with stage(family) as play:
        play.half("OPEN")
        finished = [play.half(f"K{number}") for number in range(40)]
        for where in finished:
            play.end(where, 12)
        play.write_ends()
        for _ in range(3):
            play.round()
        assert play.copies("OPEN") == [None, "1", "2", "3"]
        assert all(play.copies(f"K{number}") == [None] for number in range(40))


@pytest.mark.parametrize("family", ["4.9", "5.x"])
def test_a_parked_half_is_asked_about_again_on_request(family: str) -> None:
    with stage(family) as play:
        play.half()
        for _ in range(5):
            play.round()
        (parked,) = play.broker.stored(PARKED)
        message_id = play.broker.call(lambda broker: broker.store.message_id(parked))
        assert play.client.call(323, topic=PARKED, msgId=message_id).code == 0
        play.join()
        play.round()
        assert records(play.client.await_push(CHECK).body)[0].properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("family", ["3.2.6", "4.2"])
def test_nobody_is_ever_asked_up_to_4_2(family: str) -> None:
    with stage(family, check_interval_seconds=0.01) as play:
        play.join()
        half = play.half(KEYS="order")
        play.clock.advance(3600.0)
        assert (
            play.client.call(12, topic=HALF_TOPIC, key="K1", maxNum=32, beginTimestamp=0, endTimestamp=2**62).code == 22
        )
        assert [found.physical_offset for found in play.client.found(TOPIC, "order")] == [half["log"]]
        assert play.client.pushed == []


def test_questions_can_be_kept_back_while_halves_are_copied() -> None:
    with stage("5.x") as play:
        play.join()
        play.half()
        play.broker.faults.drop_checks(1)
        play.round()
        assert play.copies() == [None, "1"]
        play.round()
        asked = records(play.client.await_push(CHECK).body)[0]
        assert asked.properties["TRANSACTION_CHECK_TIMES"] == "2"
        assert play.client.pushed == []


def test_questions_go_round_robin_over_the_living_members_of_the_group() -> None:
    with stage("5.x", check_max=100) as play, RawClient(play.broker.address) as other:
        play.join()
        body = {"clientID": "1@2", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        other.call(34, json.dumps(body).encode())
        play.half()
        for _ in range(4):
            play.round()
        for client in (play.client, other):
            client.await_push(CHECK)
            client.await_push(CHECK)
        assert play.client.call(35, clientID="1@1", producerGroup=GROUP).code == 0
        for _ in range(2):
            play.round()
            other.await_push(CHECK)
        assert play.client.call(204, producerGroup=GROUP).code == 0
        other.close()


def test_end_on_a_committed_copy_marks_an_unrelated_half_as_finished() -> None:
    """The trap that the reconciler must not step into: the OP number is that copy's own queue offset."""
    with stage("4.9") as play:
        victim = play.half("VICTIM")
        assert victim["queue"] == 0
        other = play.half("OTHER")
        assert play.end(other) == 0
        (copy,) = play.broker.stored(TOPIC)
        assert copy.queue_offset == 0
        assert play.end({"queue": copy.queue_offset, "log": copy.physical_offset}) == 0
        play.round()
        assert play.copies("VICTIM") == [None]
        assert len(play.broker.stored(TOPIC)) == 2


def test_the_end_fields_of_a_reply_are_what_end_needs() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.address) as client:
        half = client.send_half(UNIQ_KEY="K1")
        assert client.call(37, **end_fields(half, 8)).code == 0
