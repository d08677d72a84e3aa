"""A group that pops, on a real broker: what is invisible is not called acknowledged, and what is lost is found."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pytest

from reconciler.contract.tables import RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.evidence import ConsumeMode, WatermarkState
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import pop_retry_topics
from tests.brokers.popping import Popped, PoppingConsumer
from tests.integration.policy.test_thin_thread import GROUP, Thread, build
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.rocketmq import RealBroker, marks
from tests.unit.policy.world import TOPIC, World

#: BROKER=5.1.4,5.4.0 runs on others.
VERSIONS = [name for name in os.environ.get("BROKER", "").split(",") if name.startswith("5.")] or ["5.3.3"]
#: POP needs the timer wheel. What waits for acknowledgement is written down, and revived, sooner than as delivered.
QUICK = {
    "timerWheelEnable": "true",
    "popCkStayBufferTime": "2000",
    "popCkStayBufferTimeOut": "1000",
    "reviveInterval": "500",
}
LONG, SHORT = 300.0, 3.0


@dataclass(kw_only=True)
class Service:
    """A thin thread whose group pops."""

    thread: Thread
    consumer: PoppingConsumer
    broker: RealBroker

    def deliver(self) -> str:
        """A message that was committed."""
        thread, key = self.thread, self.thread.lose_end()
        row = thread.outbox.rows[key]
        horizon = thread.evidence.horizon(TOPIC)
        (half,) = thread.evidence.half_copies(TOPIC, key, horizon=horizon, not_before_ms=0, outbox=None).records
        answer = RemotingBrokerRepairs(thread.instance).end_transaction(half, expected=row, commit=True)
        assert answer.outcome == "DONE", answer
        return key

    def pop(self, key: str, *, invisible_seconds: float) -> Popped:
        popped = eventually(lambda: self.consumer.pop(invisible_seconds=invisible_seconds), within_seconds=60)
        assert popped.unique_key == key
        return popped

    def apply(self, popped: Popped) -> None:
        """Its effect, then its acknowledgement."""
        thread, key = self.thread, popped.unique_key
        thread.inbox.rows[GROUP, key] = World.inbox_row_of(GROUP, key, thread.instance.clock.now_ms())
        self.consumer.acknowledge(popped)

    def verdict(self, key: str) -> Verdict:
        subscription = self.thread.plan.subscriptions[0].subscription
        self.thread.rounds.run(subscription)
        verdict = self.thread.rounds.verify_one(subscription, key, dry_run=True).verification.verdict
        assert verdict is not Verdict.DELIVERED_NOT_APPLIED, key
        return verdict

    def places(self, topics: Collection[str]) -> list[tuple[int, int]]:
        """The group's offset, and where the next message will lie, in each queue of these topics."""
        positions = self.thread.evidence.positions(self.thread.plan.subscriptions[0].subscription) or ()
        return [(place.consumer_offset or 0, place.max_offset) for place in positions if place.topic in topics]

    def copies(self, key: str) -> int:
        evidence = self.thread.evidence
        horizon = evidence.horizon(TOPIC)
        return len(evidence.committed_copies(TOPIC, key, horizon=horizon, not_before_ms=0).records)


@pytest.fixture(params=[pytest.param(name, marks=marks(name), id=name) for name in VERSIONS])
def service(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> Iterator[Service]:
    broker = (cluster := new_rocketmq_cluster(request.param, properties=QUICK)).broker()
    with ClientInstance(cluster.name_servers) as instance:
        thread = build(instance, broker.address, broker.name, World().topic.repair_order)
        consumer = PoppingConsumer(
            instance=instance, address=broker.address, broker_name=broker.name, group=GROUP, topic=TOPIC
        )
        yield Service(thread=thread, consumer=consumer, broker=broker)


def test_invisible_nacked_expired_and_dead_lettered_messages_are_left_alone_and_a_lost_one_is_repaired(
    service: Service,
) -> None:
    evidence, consumer = service.thread.evidence, service.consumer
    subscription = service.thread.plan.subscriptions[0].subscription
    lost = service.thread.lose_end()
    applied, invisible, dead, nacked, expired = (service.deliver() for _ in range(5))
    service.apply(service.pop(applied, invisible_seconds=LONG))
    service.pop(invisible, invisible_seconds=LONG)
    consumer.give_up(service.pop(dead, invisible_seconds=LONG))
    # What comes again soon is handed out last: it would be in the way of the others.
    failed = service.pop(nacked, invisible_seconds=LONG)
    service.pop(expired, invisible_seconds=SHORT)
    consumer.change_invisible(failed, seconds=SHORT)
    # The offset is behind them all, and of an invisible message nothing else is to be seen: no member is connected.
    eventually(lambda: 5 in [offset for offset, _ in service.places({TOPIC})], within_seconds=60)
    assert {key: service.verdict(key) for key in (applied, invisible, dead)} == {
        applied: Verdict.CONSUMED, invisible: Verdict.UNKNOWN, dead: Verdict.DEAD_LETTERED,
    }  # fmt: skip
    assert evidence.consume_mode(subscription) in (ConsumeMode.UNKNOWN, ConsumeMode.POP)
    # What comes again does so in a topic of POP, which shows the group for what it is.
    for key in (nacked, expired):
        eventually(lambda key=key: service.verdict(key) is Verdict.RETRYING, within_seconds=120)  # type: ignore[misc]
    eventually(lambda: evidence.consume_mode(subscription) is ConsumeMode.POP, within_seconds=60)
    # A broker tells its name servers of such a topic every 30 s, or when its permission was written.
    service.broker.update_config(brokerPermission="6")
    retries = set(pop_retry_topics(TOPIC, GROUP))
    eventually(lambda: service.places(retries) == [(0, 2)], within_seconds=60, message="offsets in its retry topic")
    # Nobody popped there yet, and nobody may for long: the group may stand still.
    eventually(lambda: evidence.watermark(subscription).state is WatermarkState.REACHED, within_seconds=60)
    # The lost one has been ended meanwhile. What is popped now is applied, but for one that is handed out once more.
    service.thread.until(lost, RepairState.SENT)
    waiting = {lost, nacked, expired}
    while waiting:
        popped = eventually(lambda: consumer.pop(invisible_seconds=LONG), within_seconds=120)
        waiting.remove(popped.unique_key)
        if popped.unique_key != expired:
            service.apply(popped)
    service.thread.until(lost, RepairState.DONE)
    eventually(lambda: service.verdict(nacked) is Verdict.CONSUMED, within_seconds=60)
    assert (service.verdict(invisible), service.verdict(expired)) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    everything = (lost, applied, invisible, nacked, expired, dead)
    assert {key: service.copies(key) for key in everything} == dict.fromkeys(everything, 1), "nothing was sent again"
    assert {key for key in everything if service.thread.state(key) is not None} == {lost}
