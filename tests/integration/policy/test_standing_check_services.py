"""A check service that stands still (RocketMQ #9500): what it never came to is open, and is told as such."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.clock import SystemClock
from reconciler.contract.tables import RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.open_halves import HalfState, OpenHalves
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.rocketmq.wire.message import Message
from reconciler.words import said
from tests.integration.policy.test_thin_thread import GROUP, Thread, build, settled
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import QUICK, marks
from tests.unit.policy.world import TOPIC

INTERVAL_SECONDS = 0.2
#: In the broker's settings while its service goes to sleep; it then says that it comes each two seconds.
SLEEP_MS = "600000"


def real(version: str, *more: pytest.MarkDecorator) -> object:
    return pytest.param(version, marks=[*marks(version), *more])


@pytest.fixture(params=["4.4", "4.9", "5.x", real("5.5.0", pytest.mark.nightly), real("4.9.7", pytest.mark.nightly)])
def thread(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> Iterator[Thread]:
    """Before a check service that has met its first half, and stands there from now on."""
    if "." in request.param and request.param.count(".") == 2:
        cluster = new_rocketmq_cluster(request.param, properties={"transactionCheckInterval": SLEEP_MS})
        cluster.broker().update_config(transactionCheckInterval=QUICK["transactionCheckInterval"])
        with patient_instance(cluster.name_servers) as instance:
            yield build(instance, cluster.broker().address, cluster.broker().name, (Rung.END,))
        return
    settings = BrokerSettings(
        check_interval_seconds=INTERVAL_SECONDS, transaction_timeout_seconds=0.1, finished_batch_interval_seconds=0.05
    )
    with (
        EmbeddedBroker(family=request.param, settings=settings) as broker,
        patient_instance(broker.name_servers) as instance,
    ):
        broker.faults.fail_check_rounds()
        thread = build(instance, broker.address, broker.settings.broker_name, (Rung.END,))
        thread.send_half(Message(topic=TOPIC, body=b"the one that it stands before"))
        eventually(lambda: broker.faults.counts["fail_check_round"] > 1, within_seconds=30)
        yield thread


def verdict_of(thread: Thread, key: str) -> Verdict:
    subscription = thread.plan.subscriptions[0].subscription
    found = thread.rounds.keys_by_hand.judge_one(subscription, key, dry_run=True).entry.verdict
    if found is Verdict.ROLLED_BACK_WRONGLY:
        pytest.fail("an open half was called rolled back")  # an AssertionError is waited out by eventually()
    return found


@pytest.mark.set_up("a broker whose check service stands still (RocketMQ #9500)")
def test_a_committed_half_that_it_never_came_to_is_a_lost_confirm_and_is_ended_once(thread: Thread) -> None:
    key = thread.lose_end()
    half = thread.half(key)
    after_ms = 1000 * (thread.evidence.rollback_evident_after_seconds(half) or 0)
    eventually(lambda: thread.horizon.at_ms[half.broker] > half.store_timestamp_ms + after_ms, within_seconds=60)
    assert verdict_of(thread, key) is Verdict.LOST_CONFIRM
    assert (
        len(thread.evidence.half_copies(TOPIC, key, horizon=thread.horizon, not_before_ms=0, outbox=None)().records)
        == 1
    )
    thread.consume_until(key, RepairState.DONE)
    assert len(thread.copies(key)) == 1
    eventually(lambda: settled(thread, key), within_seconds=60)


def test_the_half_of_a_dismissed_message_that_it_never_came_to_is_open(thread: Thread) -> None:
    """Else it would be delivered when the service goes on, after it was told to be ended."""
    key = thread.lose_end()
    half = thread.half(key)
    after_ms = 1000 * (thread.evidence.rollback_evident_after_seconds(half) or 0)
    eventually(lambda: thread.horizon.at_ms[half.broker] > half.store_timestamp_ms + after_ms, within_seconds=60)
    halves = OpenHalves(
        brokers=thread.evidence,
        sends=RemotingBrokerRepairs(thread.instance, english=said),
        outbox=thread.outbox,
        inbox=thread.inbox,
        readers=lambda _: [GROUP],
        clock=SystemClock(),
    )
    found = halves.look(thread.plan, key, ledger=KeyInLedger())
    assert found.state is HalfState.OPEN, found.told


def test_a_half_at_an_offset_that_a_lost_one_had_was_asked_about_by_nobody() -> None:
    """The offset of the check service is kept apart from the queue, which lost its tail and grows again behind it."""
    settings = BrokerSettings(
        check_interval_seconds=INTERVAL_SECONDS, transaction_timeout_seconds=0.1, finished_batch_interval_seconds=0.05
    )
    with EmbeddedBroker(settings=settings) as broker, patient_instance(broker.name_servers) as instance:
        thread = build(instance, broker.address, broker.settings.broker_name, (Rung.END,))
        lost = thread.half(thread.lose_end())
        eventually(lambda: thread.evidence.is_past_check(lost), within_seconds=60)
        broker.faults.lose_tail(1_000)
        key = thread.lose_end()
        half = thread.half(key)
        assert half.queue_offset == lost.queue_offset
        after_ms = 1000 * (thread.evidence.rollback_evident_after_seconds(half) or 0)
        eventually(lambda: thread.horizon.at_ms[half.broker] > half.store_timestamp_ms + after_ms, within_seconds=60)
        assert verdict_of(thread, key) is Verdict.LOST_CONFIRM
        while thread.half(thread.lose_end()).queue_offset <= lost.queue_offset + 1:
            pass
        assert verdict_of(thread, key) is Verdict.LOST_CONFIRM, "the queue has grown past the offset"
