"""Opens a client by the address of name servers, for `reconciler scan`. No settings, Redis or database are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from reconciler.clock import Clock, SystemClock
from reconciler.contract.facts import Code, Fact
from reconciler.errors import BrokerUnavailable
from reconciler.halves.half_topic import NO_KEYS, DeliveredCopies, ReadingRate
from reconciler.halves.scan import BrokerScan, Progress
from reconciler.halves.values import BrokerFindings
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.wiring.commit_queries import Business

__all__ = ["AclCredentials", "Progress", "ScanRequest", "TlsSettings", "scan_halves"]

WITHOUT_MASTER = Code("scan.without-master")

#: Maximum number of records per second that are read from one broker. A record costs the broker 4 to 9 microseconds of
#: a core.
RECORDS_PER_SECOND = 20_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The request for a scan: the cluster, the user, and the speed."""

    name_servers: str
    acl: AclCredentials | None = None
    tls: TlsSettings | None = None
    records_per_second: float = RECORDS_PER_SECOND
    #: Only halves of at most this age are reported as given up, or counted. None: all halves that still exist.
    since_seconds: float | None = None
    #: True: the scan also counts how all halves ended.
    is_counting: bool = False
    #: True: the scan reads the logs of brokers up to 4.2 record by record.
    walks: bool = False
    #: The databases of the business, which show what was committed. None: the business is not asked.
    business: Business | None = None
    request_timeout_seconds: float = 5.0
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers that name servers know, and a client that reaches them."""

    client: RemotingClient
    families: Families
    #: Broker -> address of the broker's master.
    masters: Mapping[str, str]
    #: Brokers without a master.
    away: tuple[str, ...]


@contextmanager
def cluster_of(request: ScanRequest) -> Iterator[Cluster]:
    """Opens the client. Raises BrokerUnavailable if no name server answers, or if no name server knows a broker."""
    client = RemotingClient(
        clock=request.clock,
        acl=request.acl,
        tls=request.tls,
        request_timeout_seconds=request.request_timeout_seconds,
    )
    with client:
        brokers = NameServers(request.name_servers, client).brokers()
        if not brokers:
            raise BrokerUnavailable(
                "no broker is registered at the name servers",
                remedy="start one with their addresses (namesrvAddr), or correct --name-servers",
            )
        masters = {name: at.master for name, at in sorted(brokers.items()) if at.master is not None}
        away = tuple(name for name in brokers if name not in masters)
        yield Cluster(client, Families(client, clock=request.clock), masters, away)


def without_master() -> Fact:
    """Returns a fact that says that a broker's master is away."""
    return WITHOUT_MASTER()


def scan_halves(request: ScanRequest, *, progress: Progress) -> list[BrokerFindings]:
    """Returns the findings of each broker, ordered by name.

    SIGINT ends the scan. After SIGINT the findings so far are returned, and marked as not finished. Raises
    BrokerUnavailable if no name server answers, or if no name server knows a broker.
    """
    with cluster_of(request) as cluster:
        seconds = request.since_seconds
        since_ms = None if seconds is None else request.clock.now_ms() - round(seconds * 1000)
        found = [BrokerFindings(broker=name, unread=without_master(), is_finished=True) for name in cluster.away]
        scans = [
            BrokerScan(
                cluster.client,
                name,
                cluster.masters,
                families=cluster.families,
                clock=request.clock,
                records_per_second=request.records_per_second,
                progress=progress,
                since_ms=since_ms,
                is_counting=request.is_counting,
                walks=request.walks,
                keys=NO_KEYS if request.business is None else request.business.keys,
            )
            for name in cluster.masters
        ]
        try:
            for scan in scans:
                scan.run()
            if request.business is not None:
                pace = ReadingRate(request.clock, request.records_per_second)
                delivered = DeliveredCopies(cluster.client, cluster.masters, pace=pace)
                _ask(request.business, [scan.findings for scan in scans], delivered)
        except KeyboardInterrupt:
            pass  # the findings so far are returned below
        return sorted([*found, *(scan.so_far() for scan in scans)], key=lambda one: one.broker)


def _ask(business: Business, findings: Sequence[BrokerFindings], delivered: DeliveredCopies) -> None:
    answers = business.ask([half for one in findings for half in one.halves], others=delivered.others_of)
    for one in findings:
        one.halves = tuple(replace(half, business=answers.get(half.copy.identity)) for half in one.halves)
