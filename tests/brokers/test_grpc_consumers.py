"""Consumers of the stock gRPC client, through a real proxy: what they hold, hand back or give up is no loss.

The proxy is a process of its own (cluster mode), or one with its broker (local mode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.contract.tables import RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import ConsumeMode
from reconciler.rocketmq.client.admin import Admin
from tests.brokers.grpc_consumer import CLIENT, Event, GrpcConsumer
from tests.brokers.jars import grpc_jars
from tests.brokers.popping_group import LONG, QUICK, SETTINGS, SHORT, PoppingGroup, every_setting
from tests.integration.policy.test_thin_thread import GROUP, build
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.requirements import downloaded
from tests.services.rocketmq import RealBroker, marks
from tests.services.rocketmq_proxy import BrokerWithProxy, Proxy
from tests.unit.policy.world import TOPIC, World

#: Version, how the broker is set, and the mode of the proxy.
Way = tuple[str, str, str]


def over(default: Way) -> pytest.MarkDecorator:
    """BROKER=5.3.3,5.5.0 runs every way on each; older ones are here without a proxy."""
    versions = [(version, how) for version, how in every_setting() if version >= "5.3"]
    chosen = [(version, how, mode) for version, how in versions for mode in ("cluster", "local")]
    ways = [pytest.param(way, marks=marks(way[0]), id="-".join(way)) for way in chosen or [default]]
    return pytest.mark.parametrize("service", ways, indirect=True)


@dataclass(kw_only=True)
class Service(PoppingGroup):
    """A group behind a proxy that gives a message up after two tries."""

    #: Starts a consumer of this kind.
    connect: Callable[[str], GrpcConsumer]


@pytest.fixture
def service(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory, tmp_path: Path) -> Iterator[Service]:
    version, how, mode = request.param
    downloaded(lambda: grpc_jars(CLIENT))
    broker_class = BrokerWithProxy if mode == "local" else RealBroker
    cluster = new_rocketmq_cluster(version, properties=QUICK | SETTINGS[how], broker_class=broker_class)
    broker = cluster.broker()
    with ExitStack() as stack:
        instance = stack.enter_context(patient_instance(cluster.name_servers))
        thread = build(instance, broker.address, broker.name, World().topic.repair_order)
        Admin(instance.client).create_group(broker.address, GROUP, retry_maximum=1)
        if isinstance(broker, BrokerWithProxy):
            address = broker.grpc_address
        else:
            proxy = Proxy(version=version, folder=tmp_path / "proxy", name_servers=cluster.name_servers)
            stack.callback(proxy.kill)
            address = proxy.start().address

        def connect(kind: str) -> GrpcConsumer:
            consumer = GrpcConsumer(kind, address=address, group=GROUP, topic=TOPIC, folder=tmp_path)
            return stack.enter_context(consumer)

        yield Service(thread=thread, broker=broker, how=how, connect=connect)


@pytest.mark.set_up("a gRPC consumer behind a proxy, in cluster or local mode (SimpleConsumer, PushConsumer)")
@pytest.mark.nightly
@over(("5.3.3", "v2", "cluster"))
def test_what_a_simple_consumer_holds_or_hands_back_is_left_alone_and_a_lost_message_is_repaired(
    service: Service,
) -> None:
    consumer, lost = service.connect("simple"), service.thread.lose_end()

    def receive(seconds: float) -> Event | None:
        consumer.tell("receive", seconds)
        found = consumer.answer()
        assert found["event"] in ("received", "nothing")
        return found if found["event"] == "received" else None

    def take(key: str, *, seconds: float) -> None:
        found = eventually(lambda: receive(seconds), within_seconds=60)
        assert found["key"] == key

    def apply(key: str) -> None:
        service.take_effect(key)
        consumer.do("ack", key)

    take(applied := service.deliver(), seconds=LONG)
    apply(applied)
    assert service.consume_mode() is ConsumeMode.POP
    take(held := service.deliver(), seconds=LONG)
    # What comes again soon is taken last: it would be in the way of the other.
    take(failing := service.deliver(), seconds=LONG)
    take(expired := service.deliver(), seconds=SHORT)
    consumer.do("hide", failing, SHORT)
    waits = {
        applied: Verdict.CONSUMED, held: Verdict.UNKNOWN, failing: Verdict.RETRYING, expired: service.of_the_last,
    }  # fmt: skip
    eventually(lambda: {key: service.verdict(key) for key in waits} == waits, within_seconds=120)
    service.broker.update_config(brokerPermission="6")  # tells the name servers of the new retry topic
    service.thread.until(lost, RepairState.SENT)
    waiting = {lost, expired, failing}
    while waiting:
        found = eventually(lambda: receive(LONG), within_seconds=120)
        waiting.remove(key := found["key"])
        assert found["attempt"] == (1 if key == lost else 2)
        if key == failing:
            consumer.do("hide", failing, 1)
        elif key == lost:
            apply(lost)
    service.thread.until(lost, RepairState.DONE)
    # At the third try the proxy sends it to the dead letters.
    eventually(lambda: receive(LONG) or service.verdict(failing) is Verdict.DEAD_LETTERED, within_seconds=60)
    assert {service.verdict(key) for key in (held, expired)} == {Verdict.UNKNOWN}
    service.assert_nothing_was_sent_but_for(lost, of=(lost, applied, held, expired, failing))


@pytest.mark.set_up("a gRPC consumer behind a proxy, in cluster or local mode (SimpleConsumer, PushConsumer)")
@pytest.mark.nightly
@over(("5.5.0", "as-delivered", "local"))
def test_what_a_push_consumer_works_on_fails_or_acknowledges_is_left_alone_and_a_lost_message_is_repaired(
    service: Service,
) -> None:
    consumer, lost = service.connect("push"), service.thread.lose_end()

    came: list[Event] = []

    def take(key: str, *, attempt: int = 1) -> None:
        """Waits for it; the lost one may come at any time."""
        wanted = {"event": "came", "key": key, "attempt": attempt}
        while wanted not in came:
            came.append(consumer.came())
        came.remove(wanted)

    take(applied := service.deliver())
    service.take_effect(applied)
    consumer.do("answer", applied, "ok")
    take(held := service.deliver())
    take(forgotten := service.deliver())
    take(failing := service.deliver())
    eventually(lambda: 4 in [offset for offset, _ in service.places({TOPIC})], within_seconds=60)
    assert service.consume_mode() is ConsumeMode.POP
    consumer.do("answer", forgotten, "ok")
    assert {key: service.verdict(key) for key in (applied, held, forgotten, failing)} == {
        applied: Verdict.CONSUMED, held: Verdict.UNKNOWN, forgotten: Verdict.UNKNOWN, failing: Verdict.UNKNOWN,
    }  # fmt: skip
    consumer.do("answer", failing, "failed")
    take(failing, attempt=2)
    consumer.do("answer", failing, "failed")
    eventually(lambda: service.verdict(failing) is Verdict.DEAD_LETTERED, within_seconds=60)
    service.broker.update_config(brokerPermission="6")  # tells the name servers of the new retry topic
    service.thread.until(lost, RepairState.SENT)
    take(lost)
    service.take_effect(lost)
    consumer.do("answer", lost, "ok")
    service.thread.until(lost, RepairState.DONE)
    assert {service.verdict(key) for key in (held, forgotten)} == {Verdict.UNKNOWN}
    service.assert_nothing_was_sent_but_for(lost, of=(lost, applied, held, forgotten, failing))
