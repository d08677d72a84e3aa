"""A service whose effects lie in several databases: a message has its effect in the one that is its own, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.redis_inbox import RedisInbox
from checkback_consumers.replay_worker import ReplayCounts, ReplayWorker
from reconciler.errors import InvalidValue, UsageError
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.sql.tables import ledger_metadata
from tests.unit.consumers.messages import KeptRecorder, effect_count, inbox_engine, message, new_key, pay
from tests.unit.consumers.test_hand_over_message import stored
from tests.unit.consumers.test_replay_worker import insert_row, make_due, row_of

TENANTS = ("north", "south")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Mapping[str, sa.Engine]]:
    with (
        inbox_engine(f"sqlite:///{tmp_path}/north.db") as north,
        inbox_engine(f"sqlite:///{tmp_path}/south.db") as south,
    ):
        ledger_metadata.create_all(north)
        yield {"north": north, "south": south}


def by_tenant(engines: Mapping[str, sa.Engine]) -> Callable[[ConsumedMessage], sa.Engine]:
    return lambda received: engines[(received.properties or {})["TENANT"]]


def wrap(engines: Mapping[str, sa.Engine], **options: Any) -> TransactionalHandler:
    return transactional_handler(by_tenant(engines), group="billing", **options)(pay)


def counts(engines: Mapping[str, sa.Engine], key: str) -> list[int]:
    return [effect_count(engines[tenant], key) for tenant in TENANTS]


def test_a_redelivered_message_has_one_effect_and_it_is_in_its_own_database(engines: Mapping[str, sa.Engine]) -> None:
    recorder = KeptRecorder()
    wrapped = wrap(engines, recorder=recorder)
    received = message(TENANT="south")
    assert [wrapped(received), wrapped(received)] == [ConsumeStatus.CONSUME_SUCCESS] * 2
    assert counts(engines, received.unique_key) == [0, 1]
    assert (wrapped.counts.applied, wrapped.counts.duplicates, len(recorder.recorded)) == (1, 1, 2)
    assert not wrapped.is_weaker


def test_a_message_whose_database_is_not_known_comes_again_and_leaves_nothing(engines: Mapping[str, sa.Engine]) -> None:
    recorder = KeptRecorder()
    known = dict(engines)
    del known["south"]
    wrapped = wrap(known, recorder=recorder)
    received = message(TENANT="south")
    assert wrapped(received) is ConsumeStatus.RECONSUME_LATER
    assert (counts(engines, received.unique_key), recorder.recorded) == ([0, 0], [])
    with pytest.raises(KeyError, match="south"):
        wrapped.apply(received)
    known["south"] = engines["south"]
    assert wrapped(received) is ConsumeStatus.CONSUME_SUCCESS
    assert counts(engines, received.unique_key) == [0, 1]


def test_the_function_may_return_whatever_a_single_database_may_be(engines: Mapping[str, sa.Engine]) -> None:
    makers: dict[str, Any] = {"engine": engines["north"], "session": sessionmaker(engines["north"])}

    def connect() -> Session:
        return Session(engines["south"])

    makers["function"] = connect
    wrapped = transactional_handler(lambda m: makers[(m.properties or {})["KIND"]], group="billing")(pay)
    for kind, expected in (("engine", [1, 0]), ("session", [1, 0]), ("function", [0, 1])):
        received = message(KIND=kind)
        assert wrapped.apply(received)
        assert counts(engines, received.unique_key) == expected


@pytest.mark.parametrize("kind", ["connection", "nothing", "inbox in Redis"])
def test_a_function_that_returns_no_database_is_refused_before_anything_is_written(
    engines: Mapping[str, sa.Engine], kind: str
) -> None:
    with engines["north"].connect() as connection:
        answers: dict[str, Any] = {"connection": connection, "nothing": None}
        answers["inbox in Redis"] = RedisInbox(None, environment="test")  # type: ignore[arg-type]  # never used
        wrapped = transactional_handler(lambda _: answers[kind], group="billing")(pay)
        received = message()
        with pytest.raises(UsageError, match="return an Engine, a sessionmaker"):
            wrapped.apply(received)
        assert counts(engines, received.unique_key) == [0, 0]


def test_a_function_without_a_parameter_still_returns_a_connection(engines: Mapping[str, sa.Engine]) -> None:
    def connect(name: str = "north", *, echo: bool = False) -> sa.Connection:
        del echo
        return engines[name].connect()

    received = message()
    transactional_handler(connect, group="billing")(pay).apply(received)
    assert counts(engines, received.unique_key) == [1, 0]


def test_a_callable_without_a_signature_is_asked_for_a_connection() -> None:
    """dict has none; what it returns is no connection, and says so at the first message."""
    with pytest.raises(UsageError, match="no connection that is known"):
        transactional_handler(dict, group="billing")(pay).apply(message())


def test_messages_of_several_databases_share_no_transaction(engines: Mapping[str, sa.Engine]) -> None:
    with pytest.raises(InvalidValue, match="each message may have another database"):
        wrap(engines, is_batched=True)


def test_a_handed_over_message_takes_effect_in_its_own_database(engines: Mapping[str, sa.Engine]) -> None:
    """The ledger's row brings the same properties as the delivery that did not come: the same database is found."""
    key, delivered, nowhere = new_key(), new_key(), new_key()
    wrapped = wrap(engines)
    wrapped.apply(message(delivered, body=b"paid", TENANT="south"))
    for one, tenant in ((key, "south"), (delivered, "south"), (nowhere, "west")):
        properties = {"TAGS": "paid", "UNIQ_KEY": one, "TENANT": tenant}
        handed = stored(unique_key=one, body=b"paid", properties=properties)
        insert_row(engines["north"], one, stored=handed)
    worker = ReplayWorker(wrapped, environment="test", topics="ORDERS", queue=HandOverRows(engines["north"]))
    assert worker.run_once() == ReplayCounts(applied=1, already_applied=1, postponed=1)
    assert [counts(engines, one) for one in (key, delivered, nowhere)] == [[0, 1], [0, 1], [0, 0]]
    assert [row_of(engines["north"], one).state for one in (key, delivered, nowhere)] == ["DONE", "DONE", "OPEN"]
    # A function that does not know the message counts like a handler that fails: a person sees it after 16 attempts.
    for _ in range(15):
        make_due(engines["north"])
        worker.run_once()
    assert row_of(engines["north"], nowhere).state == "FAILED"


def test_a_connection_that_django_has_not_made_yet_names_the_block() -> None:
    """Django's connection.connection is None until its first statement, or until atomic() begins."""
    with pytest.raises(UsageError, match=r"None is no connection: .* inside transaction\.atomic\(\)"):
        transactional_handler(lambda: None, group="billing")(pay).apply(message())
