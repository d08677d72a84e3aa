"""A consuming service in two real databases: one effect under kills, and all that read inboxes read both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import ConsumedMessage, HandedOverMessage
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.contract.stored_facts import is_double_effect
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine, reading
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import inbox, outbox, outbox_metadata
from tests.unit.consumers.messages import effect_count, inbox_engine, message, pay
from tests.unit.policy.world import ENVIRONMENT, PRODUCER_GROUP, TOPIC, World, key
from tests.unit.producers.world import MemoryAnnouncements

PROGRAM = """
import os, signal, sys
from checkback_consumers.handler import transactional_handler
from reconciler.sql.engines import open_engine
from tests.integration.consumers.test_sharded_inboxes import by_last_digit, pay
from tests.unit.consumers.messages import message
engines = [open_engine(url) for url in sys.argv[3:]]
def dies(received, connection):
    pay(received, connection)
    if sys.argv[2] == "in the handler":
        os.kill(os.getpid(), signal.SIGKILL)
transactional_handler(by_last_digit(engines), group="billing")(dies).apply(message(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def by_last_digit(engines: Sequence[sa.Engine]) -> Callable[[ConsumedMessage], sa.Engine]:
    """A function of the message: even keys here, odd ones there."""
    return lambda received: engines[int(received.unique_key or "", 16) % 2]


@pytest.fixture
def urls(new_database_url: Callable[[], str]) -> list[str]:
    return [new_database_url(), new_database_url()]


@pytest.fixture
def engines(urls: list[str]) -> Iterator[list[sa.Engine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(inbox_engine(url)) for url in urls]


def counts(engines: Sequence[sa.Engine], unique_key: str) -> list[int]:
    return [effect_count(engine, unique_key) for engine in engines]


@pytest.mark.set_up("inboxes of one group in several databases, by a function of the message")
@pytest.mark.parametrize("moment", ["in the handler", "before the acknowledgement"])
def test_a_killed_instance_and_its_successors_have_one_effect_in_the_messages_database(
    urls: list[str], engines: list[sa.Engine], moment: str
) -> None:
    unique_key = f"{7:032X}"
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, unique_key, moment, *urls],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert counts(engines, unique_key) == ([0, 0] if moment == "in the handler" else [0, 1])
    instances = [transactional_handler(by_last_digit(engines), group="billing")(pay) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda instance: instance(message(unique_key)), instances))
    assert ConsumeStatus.CONSUME_SUCCESS in answers
    assert instances[0](message(unique_key)) is ConsumeStatus.CONSUME_SUCCESS
    assert counts(engines, unique_key) == [0, 1]


def sharded(engines: Sequence[sa.Engine]) -> World:
    """A world whose group has its inbox in these databases."""
    world = World()
    (subscription,) = world.subscriptions
    world.inbox = SqlInboxEvidence({subscription: engines})  # type: ignore[assignment]  # the adapter instead
    return world


def delivered(world: World, number: int) -> HandedOverMessage:
    """A message that has reached the group, whose offset is behind it."""
    world.deliver(number)
    world.consume(effects=False)
    return HandedOverMessage.of(world.broker.copies[-1])


def verdict_of(world: World, unique_key: str) -> tuple[CandidateState, Verdict, str]:
    world.rounds(world.process(), 8, consume=False)
    candidate = world.candidate(unique_key)
    assert candidate is not None
    return candidate.state, candidate.verdict, str(candidate.evidence["reason"])


@pytest.mark.parametrize("number", [2, 3])
def test_an_effect_in_either_database_is_an_effect(engines: list[sa.Engine], number: int) -> None:
    world = sharded(engines)
    received = delivered(world, number)
    wrapped = transactional_handler(by_last_digit(engines), group="billing", topics=TOPIC)(pay)
    assert wrapped.apply(received) is InboxAnswer.NEW
    assert sorted(counts(engines, received.unique_key)) == [0, 1]
    assert verdict_of(world, received.unique_key)[:2] == (CandidateState.SETTLED, Verdict.CONSUMED)


@pytest.mark.set_up("instances of one group bound to different databases without such a function")
def test_instances_that_are_bound_to_different_databases_are_found_out(engines: list[sa.Engine]) -> None:
    world = sharded(engines)
    received = delivered(world, 2)
    for engine in engines:
        transactional_handler(engine, group="billing")(pay).apply(received)
    assert counts(engines, received.unique_key) == [1, 1]
    state, verdict, reason = verdict_of(world, received.unique_key)
    assert (state, verdict) == (CandidateState.QUARANTINED, Verdict.COLLISION)
    assert is_double_effect({"reason": reason})


def test_no_effect_is_an_absence_only_while_both_databases_answer(engines: list[sa.Engine], tmp_path: Path) -> None:
    world = sharded(engines)
    received = delivered(world, 2)
    assert verdict_of(world, received.unique_key)[1] is Verdict.DELIVERED_NOT_APPLIED
    gone = open_engine(f"sqlite:///{tmp_path}/nowhere/gone.db")
    world = sharded([engines[0], gone])
    received = delivered(world, 2)
    assert verdict_of(world, received.unique_key)[:2] == (CandidateState.OPEN, Verdict.UNKNOWN)
    gone.dispose()


@pytest.mark.parametrize("page_rows", [1, 4, 100])
def test_the_scan_after_an_outage_puts_back_the_keys_of_both_databases(
    engines: list[sa.Engine], page_rows: int
) -> None:
    world = sharded(engines)
    wrapped = transactional_handler(by_last_digit(engines), group="billing")(pay)
    keys = [world.deliver(number) for number in range(1, 12)]
    world.consume(effects=False)
    for copy in world.broker.copies:
        wrapped.apply(HandedOverMessage.of(copy))
    recovery = world.recovery(page_rows=page_rows)
    assert recovery.rebuild(ENVIRONMENT, since_ms=0) == len(keys)
    world.rounds(world.process(), 1, consume=False)
    assert world.pending() == []


def test_the_sweeper_settles_rows_of_every_outbox_from_every_inbox(
    new_database_url: Callable[[], str], engines: list[sa.Engine]
) -> None:
    """Two outboxes and two inboxes: a row is settled wherever its effect is, but never one that has two."""
    world = sharded(engines)
    (subscription,) = world.subscriptions
    wrapped = transactional_handler(by_last_digit(engines), group="billing")(pay)
    boxes = [SqlOutbox(new_database_url()) for _ in range(2)]
    now_ms = 0
    for box, numbers in zip(boxes, ((1, 2, 3), (4, 5, 6)), strict=True):
        outbox_metadata.create_all(box.engine)
        ensure_identity(box.engine)
        with reading(box.engine) as connection:
            now_ms = database_now_ms(connection)
        for number in numbers:
            row = {"unique_key": key(number), "topic": TOPIC, "producer_group": PRODUCER_GROUP, "state": "ANNOUNCED"}
            with box.engine.begin() as connection:
                at_ms = now_ms - 7_200_000
                connection.execute(sa.insert(outbox).values(**row, created_at_ms=at_ms, announced_at_ms=at_ms))
    for number in (1, 2, 4, 5):
        assert wrapped.apply(message(key(number), topic=TOPIC)) is InboxAnswer.NEW
    transactional_handler(engines[1], group="billing")(pay).apply(
        message(key(4), topic=TOPIC)
    )  # bound to the wrong one
    announcements = MemoryAnnouncements()
    sweeper = Sweeper(
        [OutboxSource(producer_group=PRODUCER_GROUP, outbox=box) for box in boxes],
        announcer=Announcer(announcements, AnnouncementRoute(environment=ENVIRONMENT)),
        subscriptions=[SweptSubscription(subscription=subscription)],
        inboxes=world.inbox,
        rules=SweepRules(),
    )
    report = sweeper.sweep_once()
    assert (report.settled, report.unsettled, report.doubled) == (3, 2, 1)
    assert announcements.keys == [key(4)]
    states: dict[str, str] = {}
    for box in boxes:
        with reading(box.engine) as connection:
            states |= {row.unique_key: row.state for row in connection.execute(sa.select(outbox))}
        box.close()
    assert [states[key(number)] for number in range(1, 7)] == [
        "SETTLED", "SETTLED", "ANNOUNCED", "ANNOUNCED", "SETTLED", "ANNOUNCED"
    ]  # fmt: skip
    with engines[0].connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(inbox)) == 2
