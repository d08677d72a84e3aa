"""Every fault knob does what it says, once and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.embedded.families import FAMILIES
from reconciler.embedded.faults import FOREVER, Faults
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.codes import RequestCode
from tests.polling import eventually
from tests.unit.embedded.raw_client import TOPIC, RawClient, end_fields

SHORT_SECONDS = 0.1


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as connected:
        yield connected


def end(client: RawClient, fields: dict[str, object], *, is_lost: bool) -> None:
    """An END whose answer comes, or is waited for in vain."""
    opaque = client.send(37, {name: str(value) for name, value in fields.items()})
    answer = client.answer(opaque, SHORT_SECONDS if is_lost else 30)
    assert (answer is None) is is_lost


def test_only_the_nth_end_is_dropped(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.drop_nth_end(2)
    halves = [client.send_half(UNIQ_KEY=f"K{number}") for number in range(3)]
    for half, is_lost in zip(halves, [False, True, False], strict=True):
        end(client, end_fields(half, 8), is_lost=is_lost)
    assert [message.properties["UNIQ_KEY"] for message in broker.stored(TOPIC)] == ["K0", "K2"]
    assert broker.faults.counts["drop_end"] == 1


def test_every_end_of_a_key_is_dropped(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.drop_end_of("K1", "order-2")
    by_unique_key = client.send_half(UNIQ_KEY="K1")
    by_business_key = client.send_half(UNIQ_KEY="K2", KEYS="order-2 customer-1")
    other = client.send_half(UNIQ_KEY="K3", KEYS="order-3")
    end(client, end_fields(by_unique_key, 8), is_lost=True)
    end(client, end_fields(by_unique_key, 12), is_lost=True)
    end(client, end_fields(by_business_key, 8), is_lost=True)
    end(client, end_fields(other, 8), is_lost=False)


def test_a_one_way_end_is_dropped_without_a_trace(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.drop_ends(1)
    half = client.send_half(UNIQ_KEY="K1")
    fields = {name: str(value) for name, value in end_fields(half, 8).items()}
    client.send(37, fields, flag=2)
    client.send(37, fields, flag=2)
    assert len(eventually(lambda: broker.stored(TOPIC), within_seconds=60)) == 1
    assert client.call(30, topic=TOPIC, queueId=0).fields["offset"] == "1"


def test_an_end_can_be_late(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.delay_ends(2.0, count=1)
    half = client.send_half(UNIQ_KEY="K1")
    opaque = client.send(37, {name: str(value) for name, value in end_fields(half, 8).items()})
    assert client.answer(opaque, 0.05) is None
    assert broker.stored(TOPIC) == []
    answer = client.answer(opaque, 60)
    assert answer is not None
    assert answer.code == 0
    assert len(broker.stored(TOPIC)) == 1


def test_an_end_can_cost_the_connection(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.close_on_end()
    half = client.send_half(UNIQ_KEY="K1")
    with pytest.raises(ConnectionError):
        client.end(half)
    with RawClient(broker.address) as again:
        assert again.end(half).code == 0


def test_sends_are_refused_as_busy_so_often(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.busy(count=2)
    assert [client.send_message().code for _ in range(3)] == [2, 2, 0]


def test_sends_are_refused_as_busy_until_it_is_cleared(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.busy()
    assert [client.send_message().code for _ in range(3)] == [2, 2, 2]
    broker.faults.busy(count=0)
    assert client.send_message().code == 0


def test_a_broker_with_access_control_refuses_everything_but_the_end_of_it(
    broker: EmbeddedBroker, client: RawClient
) -> None:
    broker.faults.refuse()
    refused = [client.send_message(), client.pull(), client.call(26), client.call(34)]
    assert {answer.code for answer in refused} == {16}
    assert client.call(106).code == 0, "the name server on the same port"
    assert client.call(25, b"fault.refuse=0\n").code == 0
    assert client.send_message().code == 0


def test_ends_are_refused_as_busy_for_a_while(broker: EmbeddedBroker, client: RawClient) -> None:
    half = client.send_half(UNIQ_KEY="K1")
    broker.faults.busy(37, seconds=2.0)
    assert client.end(half).code == 2
    assert client.send_message().code == 0
    assert eventually(lambda: client.end(half).code == 0, within_seconds=60)


def test_a_reply_can_be_lost_after_the_work_was_done(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.lose_replies(37)
    half = client.send_half(UNIQ_KEY="K1")
    end(client, end_fields(half, 8), is_lost=True)
    assert len(eventually(lambda: broker.stored(TOPIC), within_seconds=60)) == 1


def test_a_lost_reply_is_that_of_a_message_where_no_request_is_named() -> None:
    faults = Faults()
    faults.lose_replies()
    assert [faults.loses_reply(code) for code in (37, 310, 310)] == [False, True, False]


def test_a_hung_broker_answers_nothing_and_recovers(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.stop_answering()
    assert client.answer(client.send(26, {}), SHORT_SECONDS) is None
    broker.faults.clear()
    assert client.call(26).code == 0


def test_the_index_lags_and_catches_up(broker: EmbeddedBroker, client: RawClient) -> None:
    client.send_message(UNIQ_KEY="BEFORE")
    broker.faults.lag_index(3600)
    client.send_message(UNIQ_KEY="AFTER")
    assert len(client.found(TOPIC, "BEFORE")) == 1
    assert client.query(TOPIC, "AFTER").code == 22
    assert client.pull().fields["nextBeginOffset"] == "2"  # only the index is late
    broker.faults.clear()
    assert len(client.found(TOPIC, "AFTER")) == 1


@pytest.mark.parametrize(
    ("status", "code"), [("FLUSH_DISK_TIMEOUT", 10), ("FLUSH_SLAVE_TIMEOUT", 12), ("SLAVE_NOT_AVAILABLE", 11)]
)
def test_a_flush_status_means_stored_but_not_safe(
    broker: EmbeddedBroker, client: RawClient, status: str, code: int
) -> None:
    broker.faults.answer_flush(status, count=1)
    half = client.send_half(UNIQ_KEY="K1")
    assert half.code == code
    assert client.end(half).code == 0
    assert client.send_message().code == 0


def test_a_full_disk_refuses_sends_and_commits(broker: EmbeddedBroker, client: RawClient) -> None:
    half = client.send_half(UNIQ_KEY="K1")
    broker.faults.fill_disk()
    assert client.send_message().code == 14
    assert client.end(half).code == 14
    broker.faults.fill_disk(0)
    assert client.end(half).code == 0
    assert len(broker.stored(TOPIC)) == 1


def test_knobs_are_turned_over_the_wire_too(broker: EmbeddedBroker, client: RawClient) -> None:
    assert client.call(25, b"fault.busy=1\ntransactionTimeOut=1500\n").code == 0
    assert client.send_message().code == 2
    assert b"transactionTimeOut=1500\n" in client.call(26).body
    refused = client.call(25, b"fault.nonsense=1\n")
    assert refused.code == 1
    assert refused.remark is not None
    assert "drop_nth_end" in refused.remark


@pytest.mark.parametrize(("knob", "value"), [("nonsense", "1"), ("drop_ends", "x"), ("answer_flush", "FINE")])
def test_a_knob_that_cannot_work_is_named(knob: str, value: str) -> None:
    with pytest.raises(InvalidValue):
        Faults().apply(knob, value)


def test_every_knob_can_be_turned_by_name() -> None:
    for knob in Faults.KNOBS:
        Faults().apply(knob, "FLUSH_DISK_TIMEOUT" if knob == "answer_flush" else "1")
    assert FOREVER == -1


@pytest.mark.parametrize("knob", sorted(Faults.KNOBS.keys() - {"answer_flush", "drop_end_of", "drop_nth_end", "clear"}))
def test_a_knob_that_is_turned_to_0_is_off(knob: str) -> None:
    faults = Faults()
    for value in ("1", "0"):
        faults.apply(knob, value)
    faults.fate_of_end(set)
    for code in (RequestCode.SEND_MESSAGE, RequestCode.END_TRANSACTION):
        for asked in (faults.is_busy, faults.is_refused, faults.loses_reply):
            asked(code)
    for ask in (
        faults.is_silent,
        faults.disk_is_full,
        faults.take_lost_tail,
        faults.drops_check,
        faults.fails_check_round,
    ):
        ask()
    assert (faults.counts, faults.index_lag_seconds) == ({"end": 1}, 0.0)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_offsets_of_a_lost_tail_are_given_again(family: str, tmp_path: Path) -> None:
    with EmbeddedBroker(family=family, data=tmp_path) as broker, RawClient(broker.address) as client:
        sent = [client.send_message(UNIQ_KEY=f"K{number}", KEYS=f"order-{number}") for number in range(5)]
        broker.faults.lose_tail(2)
        again = client.send_message(UNIQ_KEY="AGAIN", KEYS="order-again")
        assert again.fields["queueOffset"] == sent[3].fields["queueOffset"]
        assert again.fields["msgId"] == sent[3].fields["msgId"]
        assert [message.properties["UNIQ_KEY"] for message in broker.stored(TOPIC)] == ["K0", "K1", "K2", "AGAIN"]
        assert client.query(TOPIC, "order-4").code == 22
        assert len(client.found(TOPIC, "order-again")) == 1
        assert broker.faults.counts["lose_tail"] == 1
    with EmbeddedBroker(family=family, data=tmp_path) as broker:
        assert [message.properties["UNIQ_KEY"] for message in broker.stored(TOPIC)] == ["K0", "K1", "K2", "AGAIN"]
