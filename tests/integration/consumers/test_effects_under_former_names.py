"""Plug-ins up to 0.2.0 note an effect of a key that they do not know under an offset id, and run beside this one."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.errors import IncompleteEffect
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.inbox import InboxAnswer, enter_inbox
from checkback_consumers.message import ConsumedMessage, business_id
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import Ending
from reconciler.errors import Collision
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.sql.incomplete_rows import IncompleteRows
from reconciler.sql.tables import inbox
from tests.integration.consumers.faces import Decorator
from tests.unit.consumers.former_names import FIRST, SECOND, as_noted_by_an_older_plug_in, delivered
from tests.unit.consumers.messages import effect_count, pay
from tests.unit.contract.keys import GO, JAVA, RUST

ORDERS = Subscription(environment="test", topic="ORDERS", group="billing")


def apply_by_an_older_plug_in(engine: sa.Engine, message: Any) -> InboxAnswer:
    with engine.begin() as connection:
        answer = enter_inbox(connection, as_noted_by_an_older_plug_in(message))
        if answer is InboxAnswer.NEW:
            pay(message, connection)
        return answer


@pytest.fixture
def handler(engine: sa.Engine, handling: Decorator) -> TransactionalHandler:
    return handling(engine, group="billing", dedupe_by=business_id)(pay)


def keys_in(engine: sa.Engine) -> set[str]:
    with engine.connect() as connection:
        return set(connection.scalars(sa.select(inbox.c.unique_key)))


@pytest.mark.pooled
@pytest.mark.parametrize("key", [GO, RUST])
@pytest.mark.parametrize("order", [None, "order-1"])
def test_an_effect_of_an_older_plug_in_is_not_had_again_when_its_message_comes_again(
    engine: sa.Engine, handler: TransactionalHandler, key: str, order: str | None
) -> None:
    assert apply_by_an_older_plug_in(engine, delivered(key, order=order)) is InboxAnswer.NEW
    assert handler.apply(delivered(key, order=order)) is not InboxAnswer.NEW
    retried = delivered(key, "7F00000100002A9F0000000000000999", origin=FIRST, order=order)
    assert handler.apply(retried) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 1
    evidence = SqlInboxEvidence({ORDERS: [engine]})
    assert evidence.look_up(ORDERS, [key])[key].is_found


@pytest.mark.pooled
@pytest.mark.parametrize("order", [None, "order-1"])
def test_an_effect_of_this_plug_in_is_not_had_again_by_an_older_one(
    engine: sa.Engine, handler: TransactionalHandler, order: str | None
) -> None:
    assert handler.apply(delivered(order=order)) is InboxAnswer.NEW
    assert apply_by_an_older_plug_in(engine, delivered(order=order)) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 1


def test_a_message_that_go_sent_twice_has_one_effect(engine: sa.Engine, handler: TransactionalHandler) -> None:
    """The first answer of the send was lost: the same key at two offsets."""
    assert handler.apply(delivered(GO, FIRST)) is InboxAnswer.NEW
    assert handler.apply(delivered(GO, SECOND)) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 1


@pytest.mark.pooled
def test_two_keys_that_differ_in_case_alone_each_have_their_effect(
    engine: sa.Engine, handler: TransactionalHandler
) -> None:
    for key, offset_message_id in ((JAVA, FIRST), (JAVA.lower(), SECOND)):
        assert handler.apply(delivered(key, offset_message_id)) is InboxAnswer.NEW
    assert {JAVA, JAVA.lower()} < keys_in(engine)
    evidence = SqlInboxEvidence({ORDERS: [engine]})
    found = evidence.look_up(ORDERS, [JAVA, JAVA.lower(), JAVA[:-1] + "f"])
    assert [found[key].is_found for key in found] == [True, True, False]
    assert [row.unique_key for key in found for row in found[key].records] == [JAVA, JAVA.lower()]


def test_an_offset_that_a_broker_gives_a_second_time_hides_no_message(
    engine: sa.Engine, handler: TransactionalHandler
) -> None:
    apply_by_an_older_plug_in(engine, delivered(GO, FIRST, body=b"before the broker lost its store"))
    assert handler.apply(delivered(RUST, FIRST)) is InboxAnswer.NEW
    with pytest.raises(Collision):
        handler.apply(delivered(RUST, FIRST, body=b"another content under a known key"))
    assert effect_count(engine) == 2


@pytest.mark.pooled
def test_an_offset_that_a_broker_gives_a_second_time_hides_no_message_of_the_same_content(
    engine: sa.Engine, handler: TransactionalHandler
) -> None:
    assert handler.apply(delivered(GO, FIRST)) is InboxAnswer.NEW
    assert handler.apply(delivered(RUST, FIRST)) is InboxAnswer.NEW, "the row under the offset names the other message"
    for key in (GO, RUST):
        assert handler.apply(delivered(key, FIRST)) is InboxAnswer.DUPLICATE
    assert effect_count(engine) == 2


def test_what_is_written_for_older_plug_ins_is_no_effect_to_a_scan(
    engine: sa.Engine, handler: TransactionalHandler
) -> None:
    handler.apply(delivered())
    assert keys_in(engine) == {GO, FIRST}
    evidence = SqlInboxEvidence({ORDERS: [engine]})
    assert [row.unique_key for row in evidence.applied_since(ORDERS, since_ms=0, after=None, limit=9)] == [GO]
    assert evidence.newest_keys(ORDERS, limit=9) == [GO]


def test_a_key_of_digits_has_one_name(engine: sa.Engine, handler: TransactionalHandler) -> None:
    handler.apply(delivered(JAVA))
    assert keys_in(engine) == {JAVA}


def test_a_batch_of_both_kinds_is_applied_once(engine: sa.Engine, handling: Decorator) -> None:
    handler = handling(engine, group="billing", is_batched=True)(pay)
    messages = [delivered(GO, FIRST), delivered(JAVA, SECOND), delivered(GO, FIRST)]
    for _ in range(2):
        handler.listener(messages)
    assert effect_count(engine) == 2


def test_half_an_effect_that_a_person_deletes_is_gone_under_both_names(engine: sa.Engine, handling: Decorator) -> None:
    """The row under the former name alone would make the next delivery a duplicate of nothing."""

    def halfway(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        connection.exec_driver_sql("COMMIT")

    broken, mended = (handling(engine, group="billing")(one) for one in (halfway, pay))
    assert broken(delivered(GO)) is ConsumeStatus.RECONSUME_LATER
    assert len(keys_in(engine)) == 2
    with pytest.raises(IncompleteEffect):
        mended.apply(delivered(GO))
    rows = IncompleteRows(engine, ORDERS)
    assert rows.end(rows.of_keys([GO]), Ending.DELETE) == {GO}
    assert keys_in(engine) == set()
    assert mended.apply(delivered(GO)) is InboxAnswer.NEW
