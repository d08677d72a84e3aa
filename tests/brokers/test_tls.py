"""Real name servers and brokers that speak TLS, with an authority of the test's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import BrokerRefused, BrokerUnavailable, TransientError
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.evidence.stored_message import stored_message
from reconciler.policy.evidence import EndOutcome, Presence
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.producer.ending import EndStatus
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.wiring.half_scan import ScanRequest, scan_halves
from reconciler.words import said
from tests.conformance.steps import Steps
from tests.conformance.targets import Target, expectation
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.patient_instance import TIMEOUT_SECONDS, patient_client, patient_instance
from tests.services.rocketmq import ClusterTls, RocketMQCluster, marks
from tests.services.topics import topic_name

BODY = b"paid " * 40_000  # more than one TLS record


@contextmanager
def cluster_with_tls(
    version: str, tls: ClusterTls, *, brokers: int = 1
) -> Iterator[tuple[RocketMQCluster, TlsSettings]]:
    """Name server and brokers, and what a client of theirs needs."""
    with RocketMQCluster(version, tls=tls, brokers=brokers) as cluster:
        yield (
            cluster,
            TlsSettings(
                ca_file=str(tls.authority.file),
                certificate_file=str(tls.client.certificate) if tls.requires_client_certificate else None,
                key_file=str(tls.client.key) if tls.requires_client_certificate else None,
            ),
        )


@contextmanager
def steps_over(
    cluster: RocketMQCluster, tls: TlsSettings | None, *, request_timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[Steps]:
    """Calls to it."""
    target = Target(
        name=cluster.version,
        name_servers=cluster.name_servers,
        broker=cluster.broker().address,
        broker_name=cluster.broker().name,
        expect=expectation(cluster.version),
    )
    with patient_instance(cluster.name_servers, tls=tls, request_timeout_seconds=request_timeout_seconds) as instance:
        yield Steps(instance, target)


def new_topic(steps: Steps) -> str:
    name = topic_name("tls")
    Admin(steps.client).create_topic(steps.target.broker, name, queues=1)

    def is_routed() -> bool:
        try:
            return bool(steps.instance.routes.refresh(name).readable_queues)
        except (TransientError, BrokerRefused):
            return False

    eventually(is_routed, within_seconds=60, message=f"route of {name}")
    return name


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(authority: Authority, *, mode: str = "enforcing", mutual: bool = False) -> ClusterTls:
    return ClusterTls(
        authority=authority,
        server=authority.issue("server"),
        client=authority.issue("client"),
        mode=mode,
        requires_client_certificate=mutual,
    )


@pytest.mark.parametrize(
    ("version", "mutual"),
    [
        pytest.param("5.3.3", True, marks=marks("5.3.3")),
        pytest.param("5.5.0", False, marks=[*marks("5.5.0"), pytest.mark.nightly]),
        pytest.param("5.4.0", False, marks=[*marks("5.4.0"), pytest.mark.nightly]),
    ],
)
def test_a_lost_end_is_found_and_repaired_over_tls(version: str, authority: Authority, *, mutual: bool) -> None:
    with (
        cluster_with_tls(version, tls_of(authority, mutual=mutual)) as (cluster, tls),
        steps_over(cluster, tls) as steps,
    ):
        for address in (cluster.name_servers, steps.target.broker):
            assert "seems to demand TLS" in refusal(address, None)
            if mutual:
                nameless = replace(tls, certificate_file=None, key_file=None)
                assert "certificate_file and key_file" in refusal(address, nameless)
        topic = new_topic(steps)
        half = steps.send_half(topic)
        steps.until_indexed(steps.half_topic(topic), half.unique_key)
        request = ScanRequest(name_servers=cluster.name_servers, tls=tls, request_timeout_seconds=TIMEOUT_SECONDS)

        def is_named() -> bool:
            (found,) = scan_halves(request, progress=lambda *_: None)
            assert [one.copy.unique_key for one in found.halves] == [half.unique_key], found
            return True

        # A broker that started a moment ago has no statistics, and answers a question about itself by an exception.
        eventually(is_named, within_seconds=60)
        lookup = steps.lookups.view_message(topic, half.unique_key)()
        assert lookup.presence is Presence.FOUND, lookup.reason
        assert steps.end(half, from_transaction_check=True).status is EndStatus.DONE
        repairs = RemotingBrokerRepairs(steps.instance, english=said)
        big = replace(lookup.records[0], body=BODY)
        assert repairs.republish(big)().outcome is EndOutcome.DONE
        bodies: list[bytes] = []

        def listen(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
            bodies.extend(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(f"CG_{topic}", name_servers=cluster.name_servers, tls=tls)
        with consumer.subscribe(topic).register_listener(listen):
            eventually(lambda: len(bodies) == 2, within_seconds=60, message="both copies")
        assert sorted(bodies, key=len) == [half.message.body, BODY]


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=marks("5.3.3"))])
def test_an_embedded_broker_registers_at_a_real_name_server_that_enforces_tls(
    version: str, authority: Authority
) -> None:
    with (
        cluster_with_tls(version, tls_of(authority, mutual=True), brokers=0) as (cluster, tls),
        patient_client(tls=tls) as client,
    ):
        names = NameServers(cluster.name_servers, client)
        with EmbeddedBroker(name_servers=cluster.name_servers, name_server_tls=tls) as broker:
            found = eventually(lambda: names.brokers().get("embedded"), within_seconds=60)
            assert found.master == broker.address
        assert eventually(lambda: "embedded" not in names.brokers(), within_seconds=60)


def refusal(address: str, tls: TlsSettings | None) -> str:
    with patient_client(tls=tls) as client, pytest.raises(BrokerUnavailable) as caught:
        client.request(address, Command(code=RequestCode.GET_BROKER_CLUSTER_INFO))
    return str(caught.value)


@pytest.mark.set_up("brokers up to 4.9 over TLS")
@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=marks("4.9.7"))])
def test_an_answer_that_4_9_7_cuts_off_over_tls_is_unknown_never_absent(version: str, authority: Authority) -> None:
    """Its encoder of file regions counts too many bytes: of several records the last ones are missing."""
    with (
        cluster_with_tls(version, tls_of(authority)) as (cluster, tls),
        steps_over(cluster, tls) as steps,
        steps_over(cluster, tls, request_timeout_seconds=2.0) as hasty,
    ):
        topic = new_topic(steps)
        half = steps.send_half(topic)
        assert steps.end(half, from_transaction_check=True).status is EndStatus.DONE
        (copy,) = steps.until_delivered(topic, 1)
        (found,) = steps.until_indexed(topic, half.unique_key)
        assert found.physical_offset == copy.physical_offset
        again = RemotingBrokerRepairs(steps.instance, english=said).republish(stored_message(found))()
        assert again.outcome is EndOutcome.DONE
        steps.until_delivered(topic, 2)

        def is_cut_off() -> bool:
            lookup = hasty.lookups.find(topic, half.unique_key)()
            assert lookup.presence is not Presence.ABSENT
            return lookup.presence is Presence.UNKNOWN

        eventually(is_cut_off, within_seconds=60, message="both copies in the index")
