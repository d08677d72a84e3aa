"""What the processes of one run agree on, as a JSON file in the run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

#: What keys of another tag begin with.
FOREIGN_PREFIX = "7F000002"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Names, addresses and the amount of work."""

    folder: str
    name_servers: str
    redis_url: str
    #: SQLAlchemy URLs; None: this run has no such table.
    outbox_url: str | None = None
    inbox_url: str | None = None
    environment: str = "load"
    topic: str = "ORDERS"
    unique_key_topic: str = "RECONCILER_UNIQUE_KEY"
    probe_topic: str = "RECONCILER_PROBE"
    producer_group: str = "order-service"
    consumer_group: str = "billing"
    shards: int = 16
    #: Eight hexadecimal digits: the run's part of every key.
    run: str = "00000000"
    #: Ids a second, and all of them.
    rate: int = 0
    ids: int = 0
    #: One id of so many is lost; 0: none.
    lose_every: int = 0
    #: The only tag that the group takes; None: all.
    tag: str | None = None
    #: Ids a second of another tag, which nobody consumes.
    foreign_rate: int = 0
    #: Wall clock, seconds since 1970, when id 0 is due.
    start_at_seconds: float = 0.0
    #: An id is consumed so long after it was announced.
    consume_after_seconds: float = 0.2
    threads: int = 1
    #: The services' own statements go to psycopg instead of SQLAlchemy.
    plain_driver: bool = False
    #: Messages of a queue that share one transaction of the inbox; 1: each has its own.
    batch: int = 1
    #: A consumer's PushSettings.pull_interval_seconds.
    pull_interval_seconds: float = 0.0

    @property
    def path(self) -> Path:
        """Where the job is kept."""
        return Path(self.folder) / "job.json"

    def write(self) -> None:
        """Keeps the job for the processes."""
        self.path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: str | Path) -> Job:
        """The job that was kept."""
        return Job(**json.loads(Path(path).read_text()))

    def key(self, number: int) -> str:
        """The unique key of an id: a prefix and a counter, as clients make them."""
        return f"7F000001{self.run}{number:016X}"

    @property
    def foreign_ids(self) -> int:
        """All ids of another tag."""
        return self.ids * self.foreign_rate // self.rate if self.foreign_rate else 0

    def foreign_key(self, number: int) -> str:
        """The unique key of an id of another tag."""
        return f"{FOREIGN_PREFIX}{self.run}{number:016X}"

    def is_lost(self, number: int) -> bool:
        """True if the message's END_TRANSACTION never arrives, so that no group consumes it."""
        return self.lose_every > 0 and number % self.lose_every == self.lose_every // 2

    def lost_numbers(self) -> Iterator[int]:
        """All ids that get lost."""
        if self.lose_every:
            yield from range(self.lose_every // 2, self.ids, self.lose_every)
