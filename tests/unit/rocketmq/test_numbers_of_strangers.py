"""A number of thousands of digits in a stranger's message, route or argument is damage like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.embedded.faults import Faults
from reconciler.embedded.listening import parse_address as parse_listen
from reconciler.embedded.serving import turn
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import InvalidValue
from reconciler.evidence.stored_message import stored_message
from reconciler.rocketmq.wire.address import parse_address
from reconciler.rocketmq.wire.properties import INT_MAX, StoredProperties, encode_properties, whole_number
from reconciler.rocketmq.wire.record import decode_records
from tests.unit.rocketmq.recorded import recorded_record_bodies

HUGE = "9" * 5_000


def test_a_hostile_half_does_not_stop_its_subscriptions_rounds() -> None:
    record = decode_records(recorded_record_bodies()[0])[0]
    properties = {**record.properties, "TRANSACTION_CHECK_TIMES": HUGE}
    hostile = replace(record, properties=StoredProperties(encode_properties(properties).encode()))
    assert stored_message(hostile).check_times is None


@pytest.mark.parametrize("text", [HUGE, "9" * 19, "", "-1", "+1", " 1", "1.0", "٣", "²", "0x10"])
def test_what_is_no_number_of_a_java_long_is_none(text: str) -> None:
    assert whole_number(text) is None


def test_ordinary_numbers_are_read() -> None:
    assert (whole_number("0"), whole_number("15"), whole_number("9" * 18)) == (0, 15, 10**18 - 1)


def test_a_queue_number_is_what_an_int_of_java_holds() -> None:
    assert whole_number(str(2**31 - 1), maximum=INT_MAX) == 2**31 - 1
    assert whole_number(str(INT_MAX + 1), maximum=INT_MAX) is None


def test_ports_and_knobs_are_refused_by_name() -> None:
    for parse in (parse_address, parse_listen):
        with pytest.raises(InvalidValue):
            parse(f"127.0.0.1:{HUGE}")
    for knob in (f"drop_ends={HUGE}", f"transactionTimeOut={'9' * 400}"):
        with pytest.raises(InvalidValue):
            turn(knob, Faults(), BrokerSettings())
