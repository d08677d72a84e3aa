"""A broker whose clock is stopped, with check rounds on demand, and one client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.clock import ManualClock
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from tests.unit.embedded.raw_client import GROUP, HALF_TOPIC, TOPIC, RawClient


class Stage:
    """A broker whose clock is stopped and one client that is a producer of GROUP."""

    def __init__(self, broker: EmbeddedBroker, client: RawClient, clock: ManualClock) -> None:
        self.broker, self.client, self.clock = broker, client, clock

    def half(
        self,
        key: str = "K1",
        *,
        topic: str = TOPIC,
        body: bytes = b"half",
        ahead_seconds: float = 0.0,
        **props: str,
    ) -> dict[str, int]:
        """`ahead_seconds`: of its producer's clock."""
        born_ms = self.clock.now_ms() + round(ahead_seconds * 1000)
        reply = self.client.call(
            310,
            body,
            a=GROUP, b=topic, c="TBW102", d=4, e=2, f=4, g=born_ms, h=0, j=0, k="false", m="false",
            i="".join(
                f"{name}\x01{value}\x02"
                for name, value in {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP, **props}.items()
            ),
        )  # fmt: skip
        assert reply.code == 0
        return {"queue": int(reply.fields["queueOffset"]), "log": int(reply.fields["msgId"][-16:], 16)}

    def join(self) -> None:
        body = {"clientID": "1@1", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        assert self.client.call(34, json.dumps(body).encode()).code == 0

    def round(self, after_seconds: float = 10.0) -> None:
        self.clock.advance(after_seconds)
        self.broker.check_now()

    def end(self, where: dict[str, int], decision: int = 8, *, from_check: bool = True) -> int:
        reply = self.client.call(
            37,
            producerGroup=GROUP, tranStateTableOffset=where["queue"], commitLogOffset=where["log"],
            commitOrRollback=decision, fromTransactionCheck="true" if from_check else "false", msgId="-",
        )  # fmt: skip
        return reply.code

    def write_ends(self) -> None:
        """Writes what was ended since the last batch."""
        self.broker.call(lambda broker: broker.transactions.write_finished_batch())

    def copies(self, key: str = "K1") -> list[str | None]:
        """TRANSACTION_CHECK_TIMES of every copy of the half, oldest first."""
        return [half.properties.get("TRANSACTION_CHECK_TIMES") for half in self.client.found(HALF_TOPIC, key)]


@contextmanager
def stage(family: str, **settings: float) -> Iterator[Stage]:
    clock = ManualClock()
    chosen = BrokerSettings(check_max=3, finished_batch_interval_seconds=0.0)
    for name, value in settings.items():
        setattr(chosen, name, value)
    with (
        EmbeddedBroker(family=family, settings=chosen, clock=clock) as broker,
        RawClient(broker.address) as client,
    ):
        yield Stage(broker, client, clock)


@contextmanager
def two_stages() -> Iterator[tuple[Stage, Stage, str]]:
    """Two brokers of one cluster, and the address of its name server."""
    clock = ManualClock()
    with (
        EmbeddedBroker(is_broker=False) as names,
        EmbeddedBroker(settings=BrokerSettings(broker_name="a"), name_servers=names.address, clock=clock) as first,
        EmbeddedBroker(settings=BrokerSettings(broker_name="b"), name_servers=names.address, clock=clock) as second,
        RawClient(first.address) as at_first,
        RawClient(second.address) as at_second,
    ):
        yield Stage(first, at_first, clock), Stage(second, at_second, clock), names.address
