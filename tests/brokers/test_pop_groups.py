"""A group that pops, on a real broker: what is invisible is not called acknowledged, and what is lost is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from reconciler.contract.tables import RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import ConsumeMode, WatermarkState
from reconciler.rocketmq.wire.codes import pop_retry_topics
from tests.brokers.popping import Popped, PoppingConsumer
from tests.brokers.popping_group import BY_NIGHT, LONG, QUICK, SETTINGS, SHORT, PoppingGroup, every_setting, marks_of
from tests.integration.policy.test_thin_thread import GROUP, build
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.unit.policy.world import TOPIC, World

#: Version, and how the broker is set.
WAYS = every_setting() or [("5.3.3", "as-delivered"), *((version, "rocksdb-v2") for version in BY_NIGHT)]


@dataclass(kw_only=True)
class Service(PoppingGroup):
    """A group that pops by the requests themselves."""

    consumer: PoppingConsumer

    def pop(self, key: str, *, invisible_seconds: float) -> Popped:
        popped = eventually(lambda: self.consumer.pop(invisible_seconds=invisible_seconds), within_seconds=60)
        assert popped.unique_key == key
        return popped

    def apply(self, popped: Popped) -> None:
        """Its effect, then its acknowledgement."""
        self.take_effect(popped.unique_key)
        self.consumer.acknowledge(popped)


@pytest.fixture(params=[pytest.param(way, marks=marks_of(way[0]), id="-".join(way)) for way in WAYS])
def service(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> Iterator[Service]:
    version, how = request.param
    broker = (cluster := new_rocketmq_cluster(version, properties=QUICK | SETTINGS[how])).broker()
    with patient_instance(cluster.name_servers) as instance:
        thread = build(instance, broker.address, broker.name, World().topic.repair_order)
        consumer = PoppingConsumer(
            instance=instance, address=broker.address, broker_name=broker.name, group=GROUP, topic=TOPIC
        )
        yield Service(thread=thread, consumer=consumer, broker=broker, how=how)


@pytest.mark.set_up(
    "a group that pops (5.x: POP, every gRPC consumer), with an inbox",
    "POP, retry topics V2 (enableRetryTopicV2), or check points in RocksDB (popConsumerKVServiceEnable, from 5.3.2)",
)
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
    # The offset is behind them, and no member is connected.
    expected = {applied: Verdict.CONSUMED, invisible: Verdict.UNKNOWN, dead: Verdict.DEAD_LETTERED}
    eventually(lambda: {key: service.verdict(key) for key in expected} == expected, within_seconds=60)
    # Each pop leaves a subscription behind, which shows the group for what it is.
    assert service.consume_mode() is ConsumeMode.POP
    waits = {nacked: Verdict.RETRYING, expired: service.of_the_last}
    eventually(lambda: {key: service.verdict(key) for key in waits} == waits, within_seconds=120)
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
    assert consumer.pop(invisible_seconds=LONG) is None
    service.thread.until(lost, RepairState.DONE)
    eventually(lambda: service.verdict(nacked) is Verdict.CONSUMED, within_seconds=60)
    assert (service.verdict(invisible), service.verdict(expired)) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    everything = (lost, applied, invisible, nacked, expired, dead)
    service.assert_nothing_was_sent_but_for(lost, of=everything)
