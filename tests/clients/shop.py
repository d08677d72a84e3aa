"""A deployment whose services are a foreign client and, of the group `billing`, the plug-in: every process is real."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from reconciler.rocketmq.client.admin import Admin
from reconciler.sql.database_time import now_ms
from reconciler.sql.engines import open_engine
from tests.acceptance.deployment import Deployment
from tests.clients.foreign_client import ForeignClient
from tests.engines import disposed
from tests.polling import eventually
from tests.services.patient_instance import patient_instance


class Shop:
    """`run`, `sweep` and a consumer of the plug-in; what the foreign service does in its database is done here."""

    def __init__(self, deployed: Deployment, start: Callable[..., ForeignClient], *, message_type: str) -> None:
        """`message_type`: what the topic is for. Only brokers of 5.x know it, and only proxies ask for it."""
        self.deployed = deployed
        self._start = start
        self._clients = 0
        with patient_instance(deployed.name_servers) as instance:
            for address in instance.cluster_addresses():
                admin = Admin(instance.client)
                admin.create_topic(address, deployed.topic, queues=4, attributes=f"+message.type={message_type}")
        (self.mark,) = deployed.rows(deployed.outbox, "SELECT identity FROM reconciler_outbox_identity WHERE id = 1")
        self.services = [deployed.run("run"), deployed.run("sweep")]
        deployed.consume()

    def client(self) -> ForeignClient:
        """One more process of the foreign service."""
        self._clients += 1
        deployed = self.deployed
        return self._start(
            deployed.topic, deployed.producer_group, f"foreign-{deployed.run_name}",
            folder=deployed.folder / f"client-{self._clients}",
        )  # fmt: skip

    def commit_locally(self, key: str) -> None:
        """The row that docs/how-to/other-languages.md asks for, and nothing more."""
        values = {
            "unique_key": key, "topic": self.deployed.topic, "producer_group": self.deployed.producer_group,
            "tag": "paid", "message_keys": "order-1", "state": "NEW", "created_at_ms": now_ms("sqlite"),
        }  # fmt: skip
        opened = open_engine(f"sqlite:///{self.deployed.outbox}", lock_timeout_seconds=30)
        with disposed(opened) as engine, engine.begin() as connection:
            connection.execute(sa.insert(sa.table("reconciler_outbox", *map(sa.column, values))).values(values))

    def has_effects(self, *keys: str, within_seconds: float = 90) -> None:
        """Waits for exactly these, each once."""

        def all_there() -> bool:
            for service in self.services:
                assert service.process.poll() is None, service.output[-3000:]
            assert self.deployed.effects() == sorted(keys), (self.deployed.effects(), self.deployed.verdicts())
            return True

        eventually(all_there, within_seconds=within_seconds, message=f"one effect of each of {keys}")

    def is_settled(self, *lost: str) -> None:
        """Every key has its end, and exactly the lost ones were repaired."""
        repaired = dict.fromkeys(lost, "DONE")
        eventually(lambda: self.deployed.repairs() == repaired, within_seconds=90, message=f"{repaired}")
        rest = "SELECT unique_key FROM reconciler_outbox WHERE state <> 'SETTLED' AND state <> 'ROLLED_BACK'"
        eventually(lambda: not self.deployed.rows(self.deployed.outbox, rest), within_seconds=90, message="all settled")
