"""Hand-over rows run through the group's own handler, on the real tables."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.replay_worker import ReplayCounts, ReplayWorker
from reconciler.clock import ManualClock
from reconciler.contract.hand_over import encode_hand_over
from reconciler.errors import DatabaseAway, InvalidValue
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.ledger import Repair
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import writing
from reconciler.sql.tables import inbox, repair
from tests.unit.consumers.messages import (
    KeptRecorder,
    effect_count,
    effects,
    message,
    new_key,
)
from tests.unit.consumers.test_hand_over_message import stored


def insert_row(engine: sa.Engine, key: str, *, scope: str = "billing", **changes: Any) -> None:
    handed: StoredMessage = changes.pop("stored", None) or stored(
        unique_key=key, properties={"TAGS": "paid", "UNIQ_KEY": key}
    )
    values = {
        "environment": "test", "topic": "ORDERS", "scope": scope, "unique_key": key, "state": "OPEN",
        "rung": "hand-over", "attempts": 0, "next_at_ms": 0, "created_at_ms": 1, "message": encode_hand_over(handed),
    }  # fmt: skip
    with writing(engine) as connection:
        connection.execute(repair.insert().values(**(values | changes)))


def row_of(engine: sa.Engine, key: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(sa.select(repair).where(repair.c.unique_key == key)).one()


def make_due(engine: sa.Engine, at_ms: int = 0) -> None:
    with writing(engine) as connection:
        connection.execute(repair.update().values(next_at_ms=at_ms))


def pay(received: ConsumedMessage, connection: sa.Connection) -> None:
    if received.body == b"bad":
        raise ValueError("the business says no")
    connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))


def handler_of(engine: sa.Engine, **options: Any) -> TransactionalHandler:
    return transactional_handler(engine, group="billing", **options)(pay)


def worker_of(engine: sa.Engine, handler: TransactionalHandler | None = None, **options: Any) -> ReplayWorker:
    return ReplayWorker(
        handler or handler_of(engine), environment="test", topics="ORDERS", queue=HandOverRows(engine), **options
    )


def test_a_handed_over_message_takes_effect_is_recorded_and_its_row_is_done(engine: sa.Engine) -> None:
    recorder = KeptRecorder()
    key = new_key()
    insert_row(engine, key)
    assert worker_of(engine, handler_of(engine, recorder=recorder)).run_once() == ReplayCounts(applied=1)
    row = row_of(engine, key)
    assert (row.state, row.answer, row.message, row.token, row.attempts) == ("DONE", "applied", None, None, 1)
    assert row.done_at_ms > 0
    assert effect_count(engine, key) == 1
    assert recorder.recorded == [("ORDERS", key)]
    with engine.connect() as connection:
        assert connection.execute(sa.select(inbox.c.source)).scalar_one() == "hand-over"


def test_a_message_that_arrived_meanwhile_has_no_second_effect(engine: sa.Engine) -> None:
    handler = handler_of(engine)
    delivered = message(body=b"\x00\xff")
    handler.apply(delivered)
    insert_row(engine, delivered.unique_key)
    assert worker_of(engine, handler).run_once() == ReplayCounts(already_applied=1)
    assert row_of(engine, delivered.unique_key).state == "DONE"
    assert effect_count(engine) == 1


@pytest.mark.promise("L3")
def test_a_failing_handler_is_tried_again_later_and_given_up_after_16_attempts(engine: sa.Engine) -> None:
    key = new_key()
    insert_row(engine, key, stored=stored(unique_key=key, body=b"bad"))
    worker = worker_of(engine)
    with engine.connect() as connection:
        before_ms = database_now_ms(connection)
    assert worker.run_once() == ReplayCounts(postponed=1)
    row = row_of(engine, key)
    assert (row.state, row.token) == ("OPEN", None)
    assert "the business says no" in row.answer
    assert row.next_at_ms > before_ms + 200
    make_due(engine, before_ms + 600_000)
    assert worker.run_once() == ReplayCounts()
    for _ in range(15):
        make_due(engine)
        worker.run_once()
    row = row_of(engine, key)
    assert (row.state, row.attempts) == ("FAILED", 16)
    make_due(engine)
    assert worker.run_once() == ReplayCounts()
    assert effect_count(engine) == 0


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no way to https://shop:s3cret-word@pay/v1?a=b", "no way to https://***@pay/v1?a=b"),
        ("x" * 100_000, f"{'x' * 300}..."),
    ],
)
def test_what_a_service_says_of_its_failure_is_kept_short_and_without_secrets(
    engine: sa.Engine, said: str, kept: str
) -> None:
    @transactional_handler(engine, group="billing")
    def refuse(_received: ConsumedMessage, _connection: sa.Connection) -> None:
        raise ValueError(said)

    key = new_key()
    insert_row(engine, key)
    assert worker_of(engine, refuse).run_once() == ReplayCounts(postponed=1)
    assert row_of(engine, key).answer == f"ValueError: {kept}"


def test_what_a_failed_statement_was_given_is_not_written_where_everybody_reads_it(engine: sa.Engine) -> None:
    """The row is read in the console by people who may not open the message's body."""
    said = Exception('duplicate key violates "bills_iban"\nDETAIL:  Key (iban)=(DE89) already exists.')

    def refused(_received: ConsumedMessage, _connection: sa.Connection) -> None:
        raise sa.exc.IntegrityError("INSERT INTO bills VALUES (:iban)", {"iban": "DE89"}, said)

    key = new_key()
    insert_row(engine, key)
    worker_of(engine, transactional_handler(engine, group="billing")(refused)).run_once()
    answer = row_of(engine, key).answer
    assert 'duplicate key violates "bills_iban"' in answer
    assert "DE89" not in answer


def test_a_service_database_that_is_away_for_hours_uses_up_no_attempt(engine: sa.Engine) -> None:
    is_away = True

    def connect() -> sa.Connection:
        if is_away:
            raise sqlite3.OperationalError("unable to open database file")
        return engine.connect()

    keys = [new_key() for _ in range(5)]
    for key in keys:
        insert_row(engine, key)
    worker = worker_of(engine, transactional_handler(connect, group="billing")(pay))
    for _ in range(20):
        make_due(engine)
        assert worker.run_once() == ReplayCounts(unreached=3), "the others would meet the same"
    rows = [row_of(engine, key) for key in keys]
    assert {(row.state, row.attempts, row.token) for row in rows} == {("OPEN", 0, None)}
    assert any("unable to open" in (row.answer or "") for row in rows)
    is_away = False
    make_due(engine)
    assert worker.run_once() == ReplayCounts(applied=5)
    assert {(row_of(engine, key).state, row_of(engine, key).attempts) for key in keys} == {("DONE", 1)}


def test_a_worker_asks_a_database_that_is_away_less_and_less_often(engine: sa.Engine) -> None:
    class Away(ManualClock):
        def __init__(self) -> None:
            super().__init__()
            self.pauses: list[float] = []

        def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
            self.pauses.append(timeout_seconds)
            make_due(engine)
            if len(self.pauses) == 8:
                event.set()
            return event.is_set()

    def connect() -> sa.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    insert_row(engine, new_key())
    clock = Away()
    handler = transactional_handler(connect, group="billing")(pay)
    assert worker_of(engine, handler, clock=clock).run(threading.Event()) == ReplayCounts(unreached=8)
    assert clock.pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


def test_a_message_that_kills_its_worker_is_given_up_too(engine: sa.Engine) -> None:
    class Killed(BaseException):
        pass

    def dies(received: ConsumedMessage, connection: sa.Connection) -> None:
        raise Killed

    key = new_key()
    insert_row(engine, key)
    deadly = transactional_handler(engine, group="billing")(dies)
    for attempt in range(16):
        with writing(engine) as connection:  # the dead worker's claim has ended
            connection.execute(repair.update().values(lease_until_ms=0, next_at_ms=0))
        with pytest.raises(Killed):
            worker_of(engine, deadly).run_once()
        assert (row_of(engine, key).state, row_of(engine, key).attempts) == ("SENDING", attempt + 1)
    with writing(engine) as connection:
        connection.execute(repair.update().values(lease_until_ms=0, next_at_ms=0))
    assert worker_of(engine, deadly).run_once() == ReplayCounts(failed=1)
    assert row_of(engine, key).state == "FAILED"


def test_a_dead_workers_row_is_run_again_after_its_lease_without_a_second_effect(engine: sa.Engine) -> None:
    class Killed(BaseException):
        pass

    class Dying(HandOverRows):
        def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
            raise Killed

    key = new_key()
    insert_row(engine, key)
    dead = ReplayWorker(handler_of(engine), environment="test", topics=["ORDERS"], queue=Dying(engine))
    with pytest.raises(Killed):
        dead.run_once()
    assert effect_count(engine) == 1
    assert worker_of(engine).run_once() == ReplayCounts()  # still claimed
    with writing(engine) as connection:
        connection.execute(repair.update().values(lease_until_ms=1))
    assert worker_of(engine).run_once() == ReplayCounts(already_applied=1)
    assert effect_count(engine) == 1


def test_a_collision_is_given_up_at_once(engine: sa.Engine) -> None:
    handler = handler_of(engine)
    delivered = message(body=b"another content")
    handler.apply(delivered)
    insert_row(engine, delivered.unique_key)
    assert worker_of(engine, handler).run_once() == ReplayCounts(failed=1)
    row = row_of(engine, delivered.unique_key)
    assert row.state == "FAILED"
    assert "Collision" in row.answer


def test_rows_of_other_groups_rungs_topics_and_environments_are_left_alone(engine: sa.Engine) -> None:
    keys = [new_key() for _ in range(5)]
    insert_row(engine, keys[0], scope="shipping")
    insert_row(engine, keys[1], scope="*", rung="end")
    insert_row(engine, keys[2], environment="staging")
    insert_row(engine, keys[3], topic="REFUNDS")
    insert_row(engine, keys[4], state="DONE")
    assert worker_of(engine).run_once() == ReplayCounts()
    assert effect_count(engine) == 0


@pytest.mark.parametrize("text", [None, "{", "other key", "other topic"])
def test_a_row_without_a_usable_message_is_given_up(engine: sa.Engine, text: str | None) -> None:
    key = new_key()
    texts = {
        "other key": encode_hand_over(stored(unique_key=new_key())),
        "other topic": encode_hand_over(stored(unique_key=key, real_topic="REFUNDS")),
    }
    insert_row(engine, key)
    with writing(engine) as connection:
        connection.execute(repair.update().values(message=texts.get(text or "", text)))
    assert worker_of(engine).run_once() == ReplayCounts(failed=1)
    assert row_of(engine, key).state == "FAILED"


@pytest.mark.parametrize(("age_seconds", "is_run"), [(10 * 86_400 - 3_700, True), (10 * 86_400 - 3_500, False)])
@pytest.mark.parametrize("is_old", ["the message", "the row"])
def test_a_message_that_is_older_than_inbox_rows_get_is_not_run(
    engine: sa.Engine, age_seconds: int, is_run: bool, is_old: str
) -> None:
    """It may have had its effect another way while no worker ran, and the inbox row may be gone since."""
    key = new_key()
    with engine.connect() as connection:
        now_ms = database_now_ms(connection)
    born_ms, created_ms = now_ms, now_ms
    if is_old == "the message":
        born_ms -= age_seconds * 1000
    else:
        created_ms -= age_seconds * 1000
    handed = stored(unique_key=key, properties={"UNIQ_KEY": key}, born_timestamp_ms=born_ms)
    insert_row(engine, key, stored=handed, created_at_ms=created_ms)
    counts = worker_of(engine, inbox_keep_days=10).run_once()
    assert counts == (ReplayCounts(applied=1) if is_run else ReplayCounts(failed=1))
    assert effect_count(engine) == int(is_run)
    if not is_run:
        assert "older than inbox_keep_days: its inbox row may have been deleted" in row_of(engine, key).answer


def test_without_inbox_keep_days_a_message_of_any_age_is_run(engine: sa.Engine) -> None:
    insert_row(engine, new_key(), created_at_ms=1)
    assert worker_of(engine).run_once() == ReplayCounts(applied=1)


def test_two_workers_never_run_one_row_at_once(engine: sa.Engine) -> None:
    key = new_key()
    insert_row(engine, key)
    rows = HandOverRows(engine)
    (row,) = rows.claimable("test", "ORDERS", scope="billing", limit=10)
    assert rows.claim(row, token="one", lease_seconds=60) is not None
    assert rows.claim(row, token="two", lease_seconds=60) is None
    assert rows.renew(row, token="two", lease_seconds=60) is None
    assert rows.renew(row, token="one", lease_seconds=60) is not None
    assert rows.finish(row, token="two", answer="") is None
    assert row_of(engine, key).state == "OPEN"


def test_a_worker_touches_no_row_that_is_no_hand_over(engine: sa.Engine) -> None:
    insert_row(engine, key := new_key(), rung="republish")
    rows = HandOverRows(engine)
    assert list(rows.claimable("test", "ORDERS", scope="billing", limit=10)) == []
    insert_row(engine, other := new_key())
    (row,) = rows.claimable("test", "ORDERS", scope="billing", limit=10)
    assert row.unique_key == other
    assert rows.claim(replace(row, unique_key=key), token="one", lease_seconds=60) is None


def test_a_claim_lost_in_the_middle_is_noticed(engine: sa.Engine) -> None:
    key = new_key()
    insert_row(engine, key)

    def slow(received: ConsumedMessage, connection: sa.Connection) -> None:
        connection.execute(repair.update().values(token="somebody else"))

    handler = transactional_handler(engine, group="billing")(slow)
    assert worker_of(engine, handler).run_once() == ReplayCounts(lost_claims=1)
    assert row_of(engine, key).token == "somebody else"


def test_a_row_whose_claim_ran_out_before_its_attempt_was_written_is_not_run(engine: sa.Engine) -> None:
    """The process was stopped for a while."""

    class Paused(HandOverRows):
        def claim(self, row: Repair, *, token: str, lease_seconds: float) -> Repair | None:
            claimed = super().claim(row, token=token, lease_seconds=lease_seconds)
            with writing(engine) as connection:
                connection.execute(repair.update().values(token="somebody else"))
            return claimed

    insert_row(engine, new_key())
    worker = ReplayWorker(handler_of(engine), environment="test", topics="ORDERS", queue=Paused(engine))
    assert (worker.run_once(), effect_count(engine)) == (ReplayCounts(lost_claims=1), 0)


def test_a_worker_runs_until_it_is_stopped_and_outlives_a_ledger_that_is_away(engine: sa.Engine) -> None:
    stop = threading.Event()
    key = new_key()
    insert_row(engine, key)
    calls: list[int] = []

    class Flaky(HandOverRows):
        def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Any:
            calls.append(limit)
            if len(calls) < 4:
                raise DatabaseAway("away")
            if len(calls) > 5:
                stop.set()
            return super().claimable(environment, topic, scope=scope, limit=limit)

    clock = ManualClock()
    worker = ReplayWorker(handler_of(engine), environment="test", topics="ORDERS", queue=Flaky(engine), clock=clock)
    assert worker.run(stop) == ReplayCounts(applied=1)
    assert clock.monotonic_seconds() >= 2 + 4 + 8


def test_a_stop_leaves_the_rows_that_are_not_begun(engine: sa.Engine) -> None:
    for _ in range(3):
        insert_row(engine, new_key())
    stop = threading.Event()

    def stops(received: ConsumedMessage, connection: sa.Connection) -> None:
        stop.set()

    handler = transactional_handler(engine, group="billing")(stops)
    assert worker_of(engine, handler).run(stop).applied == 1


def test_a_ledger_url_is_enough(engine: sa.Engine) -> None:
    key = new_key()
    insert_row(engine, key)
    url = engine.url.render_as_string(hide_password=False)
    worker = ReplayWorker(handler_of(engine), environment="test", topics="ORDERS", ledger_url=url)
    try:
        assert worker.run_once() == ReplayCounts(applied=1)
    finally:
        worker.close()


def test_wrong_arguments_are_named(engine: sa.Engine) -> None:
    with pytest.raises(InvalidValue, match="transactional_handler"):
        ReplayWorker(pay, environment="test", topics="ORDERS", ledger_url="sqlite://")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="ledger_url"):
        ReplayWorker(handler_of(engine), environment="test", topics="ORDERS")
