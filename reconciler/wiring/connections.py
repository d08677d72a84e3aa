"""The connections that a process opens once and closes at its end: to databases, RocketMQ and Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.contract.secret import Secret
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.brakes import REPAIRS_AT_ONCE, RateLimit
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.in_flight import RequestsInFlight
from reconciler.rocketmq.client.remoting_client import RECONNECTS, RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.settings.rocketmq import AclSettings, TlsSection
from reconciler.settings.schema import Settings
from reconciler.shards.access import RedisClient, RedisSilences, open_client
from reconciler.silence import NEVER, PAUSES
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine, reading
from reconciler.sql.pools import close_engine
from reconciler.sql.time_outs import missing_time_out
from reconciler.words import said

#: Redis counts as away if it does not answer the announcement consumer or a command within this time.
REDIS_TIMEOUT_SECONDS = 2.0
#: Pauses before a silent node of a Redis Cluster is asked again, for processes that work on the shards of all nodes.
NODE_PAUSES = Backoff(first_seconds=0.5, longest_seconds=5.0)

T = TypeVar("T")


class Connections:
    """The connections of one process. Threads may share this object, and every connection that it returns.

    A connection is opened when it is first used. All connections are closed together, beginning with the youngest.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        repair_rate: RateLimit | None = None,
        has_deadlines: bool = True,
        silence_pauses: Backoff | None = None,
    ) -> None:
        """`repair_rate`: the rate of repairs of the whole process, if it also repairs over other connections.

        `has_deadlines`: False for work whose statements may take any time. `silence_pauses`: pauses before a silent
        server is asked again, for processes that answer people. None: databases have PAUSES, and nodes of a Redis
        Cluster have NODE_PAUSES. All other servers are asked as soon as they accept connections.
        """
        self.settings = settings
        self._has_deadlines = has_deadlines
        self.clock = clock or SystemClock()
        self._repair_rate = repair_rate
        self._silence_pauses = silence_pauses
        #: Silences of Redis: one for a single server or the primary of Sentinels, or one for each node of a cluster.
        self.redis_silences = RedisSilences(
            silence_pauses or NODE_PAUSES, self.clock, are_of_nodes=silence_pauses is None
        )
        self._opening = threading.RLock()
        self._stack = ExitStack()
        self._engines: dict[tuple[Secret, bool], sa.Engine] = {}
        self._rocketmq: ClientInstance | None = None
        self._redis: RedisClient | None = None
        self._ledger: SqlLedger | None = None
        self._shared: dict[Callable[[Connections], Any], Any] = {}

    @classmethod
    def for_one_answer(cls, settings: Settings) -> Self:
        """Makes connections for a command that shows a state or changes a row. A silent server is asked only once."""
        return cls(settings, silence_pauses=NEVER)

    @classmethod
    def for_people(
        cls, settings: Settings, *, clock: Clock | None = None, repair_rate: RateLimit | None = None
    ) -> Self:
        """Makes connections for a process that serves people for long, or works on many messages for one person.

        Such a process asks a silent server again after PAUSES.
        """
        return cls(settings, clock=clock, repair_rate=repair_rate, silence_pauses=PAUSES)

    @property
    def statement_seconds(self) -> float | None:
        """The deadline of each statement to a database. None: statements may take any time."""
        return self.settings.rounds.statement_seconds if self._has_deadlines else None

    @property
    def database_pauses(self) -> Backoff:
        """The pauses before a silent database is asked again."""
        return self._silence_pauses or PAUSES

    def engine(self, url: Secret, *, read_only: bool = False) -> sa.Engine:
        """Returns the engine for a URL and mode. The same arguments return the same engine.

        A read-only engine refuses every write.
        """
        key = (url, read_only)
        with self._opening:
            if key not in self._engines:
                engine = open_engine(
                    url,
                    read_only=read_only,
                    must_exist=True,
                    statement_seconds=self.statement_seconds,
                    silence_pauses=self.database_pauses,
                )
                self._stack.callback(close_engine, engine)
                self._engines[key] = engine
            return self._engines[key]

    @property
    def ledger(self) -> SqlLedger:
        """The ledger's tables."""
        with self._opening:
            if self._ledger is None:
                self._ledger = SqlLedger(
                    self.engine(self.settings.ledger.url),
                    signature_secret=self.settings.unique_key_topic.signature_key,
                    claim_lease_seconds=self.settings.repairs.claim_lease_seconds,
                    clock=self.clock,
                    english=said,
                )
            return self._ledger

    def ledger_now_ms(self) -> int:
        """Returns the ledger's time, which counts where this host's clock may be wrong.

        Raises DatabaseAway.
        """
        with reading(self.engine(self.settings.ledger.url)) as connection:
            return database_now_ms(connection)

    def database_now_ms(self, url: Secret) -> int:
        """Returns a database's time. Raises DatabaseAway."""
        with reading(self.engine(url, read_only=True)) as connection:
            return database_now_ms(connection)

    def missing_time_out(self, url: Secret) -> str | None:
        """Returns the missing database setting that ends long statements. None: the setting is in force.

        Raises DatabaseAway.
        """
        return missing_time_out(self.engine(url, read_only=True))

    @property
    def rocketmq(self) -> ClientInstance:
        """The RocketMQ connections, routes and heartbeats of this process."""
        with self._opening:
            if self._rocketmq is None:
                client, name_servers = self.new_client(), self.settings.rocketmq.name_servers
                self._rocketmq = self._stack.enter_context(ClientInstance(name_servers, client=client))
            return self._rocketmq

    def new_client(self) -> RemotingClient:
        """Makes a client with its own connections. The client is closed together with this object."""
        rocketmq = self.settings.rocketmq
        client = RemotingClient(
            clock=self.clock,
            acl=credentials(rocketmq.acl),
            tls=tls_settings(rocketmq.tls),
            request_timeout_seconds=rocketmq.request_timeout_seconds,
            silence_pauses=self._silence_pauses or RECONNECTS,
            in_flight=self.shared(_requests_in_flight),
        )
        self.close_at_end(client.close)
        return client

    @property
    def admin(self) -> Admin:
        """Client for the requests that RocketMQ's own tools send to brokers."""
        return Admin(self.rocketmq.client)

    @property
    def redis(self) -> RedisClient:
        """A Redis client for short commands. This client never repeats a command by itself."""
        with self._opening:
            if self._redis is None:
                self._redis = open_client(
                    self.settings.redis.url, timeout_seconds=REDIS_TIMEOUT_SECONDS, silences=self.redis_silences
                )
                self._stack.callback(self._redis.close)
            return self._redis

    @property
    def repair_rate(self) -> RateLimit:
        """The rate of all repairs over these connections."""
        with self._opening:
            if self._repair_rate is None:
                self._repair_rate = repair_rate_of(self.settings, self.clock)
            return self._repair_rate

    def shared(self, make: Callable[[Connections], T]) -> T:
        """Returns the object that `make` made for these connections at the first call, so it is made only once.

        Threads may call this together. `make` has to register everything that it opens by `close_at_end`. Raises what
        `make` raises.
        """
        with self._opening:
            if make not in self._shared:
                self._shared[make] = make(self)
            found: T = self._shared[make]
            return found

    def without_deadlines(self) -> Connections:
        """Makes separate connections whose statements may take any time.

        The new connections are closed together with this object.
        """
        return self.shared(_open_without_deadlines)

    def close_at_end(self, close: Callable[[], object]) -> None:
        """Makes sure that `close` is called when the connections are closed."""
        with self._opening:
            self._stack.callback(close)

    def close(self) -> None:
        """Closes everything that was opened."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _requests_in_flight(connections: Connections) -> RequestsInFlight:
    return RequestsInFlight(connections.settings.rounds.concurrency)


def _open_without_deadlines(connections: Connections) -> Connections:
    patient = Connections(connections.settings, clock=connections.clock, has_deadlines=False)
    connections.close_at_end(patient.close)
    return patient


def repair_rate_of(settings: Settings, clock: Clock) -> RateLimit:
    """Makes the rate of repairs of each topic."""
    return RateLimit(settings.repairs.rate_per_second, burst=REPAIRS_AT_ONCE, clock=clock)


def credentials(settings: AclSettings) -> AclCredentials | None:
    """Returns the credentials of the broker user. None: requests are not signed."""
    if settings.access_key is None or settings.secret_key is None:
        return None
    return AclCredentials(
        access_key=settings.access_key,
        secret_key=settings.secret_key,
        security_token=settings.security_token,
    )


def tls_settings(settings: TlsSection) -> TlsSettings | None:
    """Returns how connections to RocketMQ are encrypted. None: the connections are not encrypted."""
    if not settings.enabled:
        return None
    return TlsSettings(
        ca_file=settings.ca_file,
        certificate_file=settings.certificate_file,
        key_file=settings.key_file,
        key_password=settings.key_password,
        verify_host_name=settings.verify_host_name,
    )
