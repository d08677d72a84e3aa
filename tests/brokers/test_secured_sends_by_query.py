"""Sends by a commit query where brokers ask for a login: by accounts with the documented rights, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.commands.scan import run_scan
from reconciler.contract.broker_rights import OF_HALF_TOPIC, BrokerRight
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.frame import Command
from reconciler.wiring.half_scan import ScanRequest
from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Service
from tests.brokers.query_shop import Shop, make_orders, settings
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import UPDATE_BROKER_CONFIG, ClusterTls, marks
from tests.services.rocketmq_users import ADMIN, Right, create_users, is_acl, secured_cluster
from tests.services.secured_roles import PROBE_TOPIC, ROLES, SECRET, UNIQUE_KEY_TOPIC
from tests.services.topics import topic_name

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

#: ACL 1.0 wants more than six characters.
RUNNER, SCANNER = "runner-of-shop", "scanner-of-shop"


def granted(rights: Sequence[BrokerRight], topic: str, *, by_acl: bool) -> list[Right]:
    """What the page of least rights has, with the names of the shop."""
    names = {
        "topic": topic,
        "group": f"group_{topic}",
        "unique_key_topic": UNIQUE_KEY_TOPIC,
        "probe_topic": PROBE_TOPIC,
    }
    every = (
        (action, one.kind, one.filled(**names))
        for one in rights
        for action in (one.acl if by_acl else one.authorization)
    )
    return list(dict.fromkeys(every))


@pytest.mark.parametrize(
    "version", [pytest.param("4.9.7", marks=marks("4.9.7")), pytest.param("5.3.3", marks=marks("5.3.3"))]
)
def test_what_is_lost_is_billed_once_by_an_account_with_the_documented_rights(
    version: str, redis_server: RedisServer, tmp_path: Path, services: list[Service]
) -> None:
    """On 5.3.3 over TLS, too: 4.9.7 answers look-ups over TLS in part only."""
    topic = topic_name("secured_shop")
    users = {
        RUNNER: granted((*ROLES["run"].brokers, *OF_HALF_TOPIC), topic, by_acl=is_acl(version)),
        SCANNER: granted(ROLES["scan"].brokers, topic, by_acl=is_acl(version)),
    }
    authority = Authority(tmp_path / "certificates")
    of_cluster = (
        None
        if is_acl(version)
        else ClusterTls(authority=authority, server=authority.issue("server"), client=authority.issue("client"))
    )
    tls = of_cluster.of_clients() if of_cluster is not None else None
    lost = {"parked-0", "parked-1", "dead-0", "dead-1"}
    make_orders(tmp_path, [*((one, "PAID") for one in sorted(lost)), ("cancelled", "CANCELLED")])
    with secured_cluster(version, users, secret=SECRET, tls=of_cluster, transactionCheckMax="1") as cluster:
        create_users(cluster, users, secret=SECRET, tls=tls)
        broker = cluster.broker().address
        with patient_instance(cluster.name_servers, acl=ADMIN, tls=tls) as instance:
            for name in (topic, PROBE_TOPIC):
                Admin(instance.client).create_topic(broker, name, queues=2)
            eventually(lambda: instance.routes.refresh(topic).readable_queues, within_seconds=60)
            shop = Shop(instance, topic, tmp_path)
            for order in ("parked-0", "parked-1"):
                shop.half(order)
            request = ScanRequest(name_servers=cluster.name_servers, acl=ADMIN, tls=tls, request_timeout_seconds=30.0)

            def states() -> list[str]:
                report = run_scan(request, older_than_seconds=0.0, topic=topic, progress=lambda *_: None)
                return [half.state.value for half in report.halves]

            eventually(lambda: states() == ["given-up"] * 2, within_seconds=120)
            asks_on = Command(code=UPDATE_BROKER_CONFIG, body=b"transactionCheckMax=1000\n")
            require_success(instance.client.request(broker, asks_on), "transactionCheckMax")
            config = settings(
                tmp_path,
                name_servers=cluster.name_servers,
                topic=topic,
                redis_url=redis_server.url,
                repairs="\n".join([f'repairs.topics."{topic}" = true', *login(RUNNER, of_cluster)]),
                of_subscription="consumers_are_idempotent = true",
            )
            scanning = tmp_path / "scanner.toml"
            scanning.write_text(config.read_text().replace(f'"{RUNNER}"', f'"{SCANNER}"'))
            with shop.consumer.register_listener(shop.bill):
                for order in ("dead-0", "dead-1", "cancelled", "abandoned"):
                    shop.half(order)
                accepted = reconciler("query", "accept", topic, "--config", str(scanning), "--reason", "few halves yet")
                assert accepted.exit_code == 0, accepted.stdout + accepted.stderr
                services.append(Service(tmp_path / "run.log", ["run", "--config", str(config)]))

                def is_settled() -> bool:
                    assert services[0].process.poll() is None, services[0].output[-3000:]
                    states, verdicts = shop.repairs(), shop.verdicts()
                    assert lost <= shop.billed.keys(), (shop.billed, states, verdicts)
                    assert {states[one][0] for one in lost} == {"DONE"}, states
                    assert {verdicts[one] for one in lost} == {"DELIVERED"}, verdicts
                    return True

                eventually(is_settled, within_seconds=400)
            assert shop.billed == Counter(lost), "once each, and nothing else"
    assert "access_refused" not in services[0].output


def login(user: str, tls: ClusterTls | None) -> list[str]:
    """Lines of the settings."""
    lines = [f'rocketmq.acl = {{ access_key = "{user}", secret_key = "{SECRET}" }}']
    if tls is not None:
        ours = tls.of_clients()
        files = {"ca_file": ours.ca_file, "certificate_file": ours.certificate_file, "key_file": ours.key_file}
        lines += ["rocketmq.tls.enabled = true", *(f'rocketmq.tls.{name} = "{file}"' for name, file in files.items())]
    return lines
