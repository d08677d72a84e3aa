"""A hand-over row whose message was changed is not run, and a topic that is held is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay_worker import ReplayCounts, ReplayWorker
from reconciler.contract.hand_over import HandOverSigner, decode_hand_over, encode_hand_over
from reconciler.contract.tables import HoldKind
from reconciler.errors import InvalidValue, MalformedInput
from reconciler.sql.engines import writing
from reconciler.sql.tables import hold, repair
from tests.unit.consumers.messages import KeptRecorder, effect_count, new_key, pay
from tests.unit.consumers.test_hand_over_message import stored

SIGNER = HandOverSigner(secret=b"secret", environment="test", group="billing")


def insert_row(engine: sa.Engine, key: str, text: str, *, topic: str = "ORDERS") -> None:
    values = {
        "environment": "test", "topic": topic, "scope": "billing", "unique_key": key, "state": "OPEN",
        "rung": "hand-over", "attempts": 0, "next_at_ms": 0, "created_at_ms": 1, "message": text,
    }  # fmt: skip
    with writing(engine) as connection:
        connection.execute(repair.insert().values(values))


def place_hold(engine: sa.Engine, kind: HoldKind, topic: str = "ORDERS") -> None:
    values = {"environment": "test", "topic": topic, "kind": kind.value, "since_ms": 1, "by": "op", "reason": "x"}
    with writing(engine) as connection:
        connection.execute(hold.insert().values(values))


def rows_of(engine: sa.Engine) -> dict[str, Any]:
    with engine.connect() as connection:
        return {row.unique_key: row for row in connection.execute(sa.select(repair))}


def handler_of(engine: sa.Engine, business: Any = pay) -> TransactionalHandler:
    return transactional_handler(engine, group="billing")(business)


made: list[ReplayWorker] = []


@pytest.fixture(autouse=True)
def end_of_workers() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def worker_of(engine: sa.Engine, business: Any = pay, **options: Any) -> ReplayWorker:
    url = engine.url.render_as_string(hide_password=False)
    handler = handler_of(engine, business)
    made.append(ReplayWorker(handler, environment="test", topics="ORDERS", ledger_url=url, **options))
    return made[-1]


# ----------------------------------------------------------------- the row against its digest


@pytest.mark.parametrize(
    "change",
    [
        {"body": "AAA="},
        {"properties": {"TAGS": "refunded"}},
        {"properties": {"TAGS": "paid", "amount": "9"}},
        {"properties": {"TAGS": "paid", "KEYS": "another"}},
        {"real_topic": "REFUNDS"},
        {"content_digest": "00" * 32},
        {"content_digest": 7},
        {"properties": {"TAGS": "\ud800"}},
    ],
)
def test_a_row_that_was_changed_is_refused(change: dict[str, object]) -> None:
    document = json.loads(encode_hand_over(stored()))
    with pytest.raises(MalformedInput):
        decode_hand_over(json.dumps(document | change))


def test_the_row_is_compared_with_the_outbox_not_with_itself() -> None:
    with pytest.raises(MalformedInput, match="content digest"):
        decode_hand_over(encode_hand_over(stored(), content_digest=stored(body=b"other").content_digest))


def test_a_row_of_an_older_service_has_no_digest_and_is_run() -> None:
    document = json.loads(encode_hand_over(stored()))
    del document["content_digest"]
    assert decode_hand_over(json.dumps(document)).body == stored().body


def test_a_changed_row_is_failed_and_has_no_effect_while_others_go_on(engine: sa.Engine) -> None:
    changed, sound = new_key(), new_key()
    text = encode_hand_over(stored(unique_key=changed))
    insert_row(engine, changed, json.dumps(json.loads(text) | {"body": "AAA="}))
    insert_row(engine, sound, encode_hand_over(stored(unique_key=sound)))
    assert worker_of(engine).run_once() == ReplayCounts(applied=1, failed=1)
    rows = rows_of(engine)
    assert (rows[changed].state, rows[sound].state) == ("FAILED", "DONE")
    assert "content digest" in rows[changed].answer
    assert effect_count(engine, changed) == 0


# ----------------------------------------------------------------- the signature


def signed(**changes: Any) -> dict[str, Any]:
    return dict(json.loads(encode_hand_over(stored(**changes), signer=SIGNER)))


def test_a_signed_row_is_accepted_by_its_own_group_only() -> None:
    text = json.dumps(signed())
    assert decode_hand_over(text, signer=SIGNER).body == stored().body
    assert decode_hand_over(text).body == stored().body, "a worker without the secret does not look"
    for other in (
        HandOverSigner(secret=b"secret", environment="test", group="shipping"),
        HandOverSigner(secret=b"secret", environment="production", group="billing"),
        HandOverSigner(secret=b"another", environment="test", group="billing"),
    ):
        with pytest.raises(MalformedInput, match="signature"):
            decode_hand_over(text, signer=other)


def test_who_may_update_the_ledger_cannot_sign_another_message() -> None:
    forged = stored(body=b"a million")
    with_its_digest = json.loads(encode_hand_over(forged)) | {"signature": signed()["signature"]}
    for document in (
        json.loads(encode_hand_over(stored())),
        with_its_digest,
        {name: value for name, value in signed().items() if name != "content_digest"},
        signed() | {"unique_key": "0B" * 16},
        signed() | {"signature": None},
        signed() | {"signature": "\ud800"},
    ):
        with pytest.raises(MalformedInput, match="signature"):
            decode_hand_over(json.dumps(document), signer=SIGNER)


def test_a_worker_with_the_secret_fails_rows_without_a_signature(engine: sa.Engine) -> None:
    unsigned, sealed = new_key(), new_key()
    insert_row(engine, unsigned, encode_hand_over(stored(unique_key=unsigned)))
    insert_row(engine, sealed, encode_hand_over(stored(unique_key=sealed), signer=SIGNER))
    assert worker_of(engine, signature_secret="secret").run_once() == ReplayCounts(applied=1, failed=1)
    assert "signature" in rows_of(engine)[unsigned].answer
    assert effect_count(engine, unsigned) == 0


# ----------------------------------------------------------------- holds


@pytest.mark.parametrize("kind", HoldKind)
def test_a_held_topic_is_left_alone_until_it_is_resumed(engine: sa.Engine, kind: HoldKind) -> None:
    keys = [new_key() for _ in range(3)]
    for key in keys:
        insert_row(engine, key, encode_hand_over(stored(unique_key=key)))
    place_hold(engine, kind)
    worker = worker_of(engine)
    assert [worker.run_once(), worker.run_once()] == [ReplayCounts(held=3)] * 2
    assert {(row.state, row.attempts, row.token) for row in rows_of(engine).values()} == {("OPEN", 0, None)}
    with writing(engine) as connection:
        connection.execute(hold.delete())
    assert worker.run_once() == ReplayCounts(applied=3)


def test_a_hold_of_another_topic_stops_nothing(engine: sa.Engine) -> None:
    key = new_key()
    insert_row(engine, key, encode_hand_over(stored(unique_key=key)))
    place_hold(engine, HoldKind.HOLD, topic="REFUNDS")
    assert worker_of(engine).run_once() == ReplayCounts(applied=1)


def test_a_hold_in_the_middle_of_a_turn_stops_the_rows_behind_it(engine: sa.Engine) -> None:
    for _ in range(5):
        key = new_key()
        insert_row(engine, key, encode_hand_over(stored(unique_key=key)))
    applied = 0

    def pay_and_hold(received: ConsumedMessage, connection: sa.Connection) -> None:
        nonlocal applied
        pay(received, connection)
        applied += 1
        if applied == 2:
            connection.execute(
                hold.insert().values(
                    environment="test", topic="ORDERS", kind="HOLD", since_ms=1, by="op", reason="wrong amounts"
                )
            )

    assert worker_of(engine, pay_and_hold).run_once() == ReplayCounts(applied=2, held=3)


def test_a_hold_is_logged_once_and_again_when_it_comes_back(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_of(engine)
    for _ in range(2):
        key = new_key()
        insert_row(engine, key, encode_hand_over(stored(unique_key=key)))
        place_hold(engine, HoldKind.BREAKER)
        worker.run_once()
        worker.run_once()
        assert [r.getMessage() for r in caplog.records if "held" in r.getMessage()] == [
            "hand_overs_held: hand-overs of ORDERS to billing wait: the topic is held (BREAKER)"
        ]
        with writing(engine) as connection:
            connection.execute(hold.delete())
        assert worker.run_once() == ReplayCounts(applied=1)
        caplog.clear()


# ----------------------------------------------------------------- the recorder


def test_a_recorder_of_another_group_is_refused() -> None:
    url = "redis://127.0.0.1:1/0"  # never asked
    billing = CommitRecorder.open(url, environment="test", group="billing")
    shipping = CommitRecorder.open(url, environment="test", group="shipping")
    for recorder in (KeptRecorder(), billing):
        transactional_handler(lambda: None, group="billing", recorder=recorder)(pay)
    with pytest.raises(InvalidValue, match=r"shipping.*group 'billing'"):
        transactional_handler(lambda: None, group="billing", recorder=shipping)(pay)
    billing.close()
    shipping.close()
