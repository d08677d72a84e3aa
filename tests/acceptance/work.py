"""A daemon, a consumer and a producer kept through every fault, and what has to be whole in the end."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from checkback_consumers.push import TransactionalConsumer
from checkback_producers.producer import TransactionalProducer
from reconciler.errors import BrokerUnavailable
from tests.acceptance.deployment import Deployment, Service
from tests.engines import disposed
from tests.polling import eventually


class Work:
    """A daemon, a consumer and a producer of a deployment, and what was committed so far."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed
        self.service: Service = deployed.run("run")
        self.consumer: TransactionalConsumer = deployed.consume()
        self.producer: TransactionalProducer = deployed.producer()
        self.committed: list[str] = []
        self.lost: list[str] = []

    def commit(self, *, good: int = 4, lost: int = 2) -> None:
        """Messages that arrive, and messages whose END_TRANSACTION does not."""
        self.committed += self.deployed.commit(good, producer=self.producer)
        keys = self.deployed.commit(lost, lose=True, producer=self.producer)
        self.committed += keys
        self.lost += keys

    def broker_takes_one(self) -> bool:
        """Commits one message, unless the producer still waits before it calls the broker again."""
        try:
            self.commit(good=1, lost=0)
        except BrokerUnavailable:
            return False
        return True

    def is_running(self) -> None:
        """Fails if the daemon has ended."""
        assert self.service.process.poll() is None, self.service.output[-3000:]

    def mark(self) -> int:
        """Where the daemon's log ends now."""
        return len(self.service.output)

    def tells(self, mark: int, *words: str, within_seconds: float = 60) -> None:
        """Waits until a log line after the mark has all the words."""

        def told() -> bool:
            self.is_running()
            return any(all(word in line for word in words) for line in self.service.output[mark:].splitlines())

        eventually(told, within_seconds=within_seconds, message=f"the log tells {words}")

    def is_whole(self, *, within_seconds: float = 60) -> None:
        """Each committed key has one effect, exactly the lost ones were repaired, and the daemon never ended."""

        def whole() -> bool:
            self.is_running()
            return self.deployed.effects() == sorted(self.committed)

        eventually(whole, within_seconds=within_seconds, message="every committed key has its one effect")
        eventually(lambda: repairs(self.deployed) == dict.fromkeys(self.lost, "DONE"), within_seconds=within_seconds)
        # A broker that is killed may forget that a half was ended, ask again and store a copy of its own accord.
        copies = self.deployed.copies()
        assert set(copies) == set(self.committed)
        assert Counter({key: copies[key] for key in self.lost}) == Counter(self.lost), "a repair that was not needed"


def repairs(deployed: Deployment) -> dict[str, str]:
    """Key -> state of its repair, from the ledger's database of any dialect."""
    with disposed(sa.create_engine(deployed.ledger_url)) as engine, engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT unique_key, state FROM reconciler_repair WHERE scope = '*'"))
        return {row[0]: row[1] for row in rows}


def rounds_run(deployed: Deployment) -> int:
    """How many rounds the ledger knows."""
    (count,) = deployed.rows(deployed.ledger, "SELECT count(*) FROM reconciler_round")
    return int(count)


def turns_run(service: Service) -> int:
    """How many rounds its log tells of, those of subscriptions at rest among them."""
    return service.output.count('"round_finished"')


def rounds_go_on(work: Work, number: int) -> None:
    """Waits for so many more rounds of the subscription."""
    wanted = turns_run(work.service) + number
    eventually(lambda: turns_run(work.service) >= wanted, within_seconds=60)
    work.is_running()
