"""What one process sees of brokers and evidence tables: the product's own witnesses over simulated wires.

RemotingBrokerEvidence, Lookups, Watermarks and RemotingBrokerRepairs are the product's; only what they send and
receive is simulated: routes, families, look-ups, offsets, probes, END and republish.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from reconciler.contract.queue_proof import QueueRecord, record_of
from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.evidence import brokers, watermark
from reconciler.evidence.absent_producers import AbsentProducers
from reconciler.evidence.broker_answer import Accepts, BrokerAnswer, answer_of_hits
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.lookup import Lookups
from reconciler.evidence.pop_groups import PopGroups
from reconciler.evidence.reused_offsets import ReusedOffsets
from reconciler.evidence.watermark import Watermarks
from reconciler.policy.evidence import (
    Lookup,
    Presence,
    ProducerLook,
    QueuePosition,
    StoredMessage,
    WitnessAnswer,
)
from reconciler.policy.ports.announcing import SeenQueues
from reconciler.policy.ports.asked import Asked, known
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.admin import ClientConnection, GroupFilter, GroupMembers
from reconciler.rocketmq.client.routes import MessageQueue, TopicNotFound, Whereabouts
from reconciler.rocketmq.wire.broker_facts import BrokerFacts
from reconciler.rocketmq.wire.codes import CHECK_GROUP, CLIENT_VERSION, PROBE_TOPIC, RETRY_TOPIC_PREFIX
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import THEIRS, Broker
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC

R = TypeVar("R")


class Cluster:
    """All brokers, with the route as name servers tell it."""

    def __init__(self, brokers: Sequence[Broker], *, queues: int) -> None:
        self.brokers = {broker.name: broker for broker in brokers}
        self.queues = queues
        #: Consumer groups that pop.
        self.groups_that_pop: set[str] = set()
        #: Those that leave no subscription to their retry topic behind, and no offset in it.
        self.popping_unseen: set[str] = set()
        #: Whether brokers filter for a group by an expression over properties.
        self.filters_by_sql92: Callable[[str], bool] = lambda _group: False
        #: Brokers that have dropped out of the route.
        self.unrouted: set[str] = set()
        #: Brokers that a round has seen in the route.
        self.heard_of: set[str] = set()
        #: Brokers of the route.
        self.routed: list[Broker] = []
        self.route_changed()

    def at(self, address: str) -> Broker:
        """The broker at an address."""
        return self.brokers[address.partition(":")[0]]

    def route_changed(self) -> None:
        """After `unrouted` was changed."""
        self.routed = [broker for name, broker in sorted(self.brokers.items()) if name not in self.unrouted]


def ask(
    process: Process, broker: Broker, act: Callable[[], Any], what: str, *, unanswered: type[Exception] = RequestTimeout
) -> Any:
    """One request to a broker."""
    return broker.link.call(process, act, BrokerUnavailable, unanswered, what)


#: Between two looks of a thread at an answer that it waits for.
POLL_SECONDS = 0.002


def _on_its_way(process: Process, answer: Callable[[], R]) -> Asked[R]:
    """A question that is on its way while its thread asks others."""
    answers: list[R] = []
    errors: list[Exception] = []

    def wait() -> None:
        try:
            answers.append(answer())
        except Exception as error:
            errors.append(error)

    process.spawn(wait)

    def hear() -> R:
        while not answers and not errors:
            process.sleep(POLL_SECONDS)
        for error in errors:
            raise error
        return answers[0]

    return hear


def _fail(error: ReconcilerError) -> NoReturn:
    raise error


class RoutesSeen:
    """reconciler.rocketmq.client.routes.Routes of one process: it remembers brokers that have left the route."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: set[str] = set()

    def _remember(self) -> None:
        self._seen.update(broker.name for broker in self._cluster.routed)

    def whereabouts(self, topic: str) -> list[Whereabouts]:
        """A broker that left and is still registered is asked all the same."""
        self._remember()
        known = self._cluster.brokers
        return [Whereabouts(broker_name=name, master=known[name].address) for name in sorted(self._seen)]

    def seen(self, topic: str) -> frozenset[str]:
        self._remember()
        self._cluster.heard_of |= self._seen
        return frozenset(self._seen)

    def refresh(self, topic: str) -> None:
        self._remember()

    def expect(self, topic: str, broker_names: Collection[str]) -> None:
        self._seen = {broker.name for broker in self._cluster.routed} | set(broker_names)

    def masters(self, topic: str) -> dict[str, str]:
        return {broker.name: broker.address for broker in self._cluster.routed}

    def route(self, topic: str) -> Any:
        self._remember()
        return _Route(self._cluster, topic)


class _Route:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.masters = {broker.name: broker.address for broker in cluster.routed}
        queues = 1 if topic.startswith("%RETRY%") else cluster.queues
        holders = [broker for broker in cluster.routed if not topic.startswith("%") or (topic, 0) in broker.queues]
        if not holders:
            raise TopicNotFound(17, f"No topic route info in name server for the topic: {topic}")
        self.readable_queues = [
            MessageQueue(topic=topic, broker_name=broker.name, queue_id=number)
            for broker in holders
            for number in range(queues)
        ]


class FamiliesSeen:
    """Facts by address; remembered, so no request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def facts(self, address: str) -> BrokerFacts:
        return self._cluster.at(address).facts


class SimulatedLookups(Lookups):
    """The product's look-ups with simulated wires."""

    def __init__(self, process: Process, cluster: Cluster, routes: RoutesSeen, *, at_once: bool) -> None:
        """`at_once`: several requests are on their way at the same time."""
        self.process = self._process = process
        self.cluster = self._cluster = cluster
        self._at_once = at_once
        self._routes = routes  # type: ignore[assignment]
        self._families = FamiliesSeen(cluster)  # type: ignore[assignment]
        self.look_ups = 0
        self.on_look_up: Callable[[str, str], None] = lambda _topic, _key: None

    def _ask(
        self,
        places: list[Whereabouts],
        topic: str,
        key: str,
        accepts: Accepts,
        *,
        scans: bool = False,
        by_unique_key: bool = True,
    ) -> Asked[list[BrokerAnswer]]:
        def answer() -> list[BrokerAnswer]:
            self.on_look_up(topic, key)
            return [self._one(place, topic, key, accepts, scans=scans) for place in places]

        return self._asked(answer)

    def sent(self, answer: Callable[[], R]) -> Asked[R]:
        """A request with an effect: it leaves now."""
        if self._at_once:
            return _on_its_way(self._process, answer)
        try:
            return known(answer())
        except ReconcilerError as error:
            return partial(_fail, error)

    def _asked(self, answer: Callable[[], R]) -> Asked[R]:
        return _on_its_way(self._process, answer) if self._at_once else answer

    def _one(self, place: Whereabouts, topic: str, key: str, accepts: Accepts, *, scans: bool) -> BrokerAnswer:
        broker, process = self._cluster.brokers[place.broker_name], self._process
        self.look_ups += 1
        at, proved = process.kernel.now, process.proved.get(broker.name, (0, 0.0))[0]
        try:
            hits = ask(process, broker, lambda: broker.query(topic, key), "QUERY_MESSAGE")
        except (BrokerUnavailable, RequestTimeout) as error:
            proved = process.looked_for_copies.get((broker.name, key), (0.0, 0))[1]
            return BrokerAnswer(place.broker_name, Presence.UNKNOWN, str(error))
        finally:
            if topic == TOPIC:
                process.looked_for_copies[broker.name, key] = at, proved
        if any(hit.body == THEIRS for hit in hits):
            self._process.kernel.saw("look-up met another message", key[-4:])
        said = answer_of_hits(place.broker_name, hits, lambda record: record.topic == topic and accepts(record))
        if not scans or said.presence is Presence.UNKNOWN or broker.facts.indexes_committed:
            return said
        return self._scanned(broker, hits, key).and_elsewhere(said)

    def _scanned(self, broker: Broker, hits: Sequence[MessageRecord], unique_key: str) -> BrokerAnswer:
        """3.2.6: the committed copy is seen by reading the queue of the prepared record."""
        prepared = {hit.physical_offset for hit in hits if hit.unique_key == unique_key}

        def scan() -> list[MessageRecord]:
            return [r for r in broker.log if r is not None and r.prepared_transaction_offset in prepared]

        try:
            found = ask(self._process, broker, scan, "PULL_MESSAGE") if prepared else []
        except (BrokerUnavailable, RequestTimeout) as error:
            return BrokerAnswer(broker.name, Presence.UNKNOWN, str(error))
        if not found:
            return BrokerAnswer(broker.name, Presence.ABSENT, "scanned, no committed copy")
        return answer_of_hits(broker.name, found, lambda record: record.unique_key == unique_key)

    def at_offset(
        self, topic: str, broker_name: str, commit_log_offset: int, unique_key: str
    ) -> Asked[Lookup[StoredMessage]]:
        """VIEW_MESSAGE_BY_ID."""
        answer = partial(self._at_offset, broker_name, commit_log_offset, unique_key)
        return self._asked(answer)

    def _at_offset(self, broker_name: str, commit_log_offset: int, unique_key: str) -> Lookup[StoredMessage]:
        broker = self._cluster.brokers[broker_name]
        self.look_ups += 1
        try:
            record = ask(self._process, broker, lambda: broker.at_offset(commit_log_offset), "VIEW_MESSAGE_BY_ID")
        except (BrokerUnavailable, RequestTimeout) as error:
            return Lookup.unknown(broker_name, str(error))
        if record is None:
            absent = WitnessAnswer(witness=broker_name, presence=Presence.ABSENT, detail="nothing there")
            return Lookup(presence=Presence.ABSENT, answers=(absent,))
        said = answer_of_hits(broker_name, [record], lambda one: one.unique_key == unique_key, maximum=2)
        answer = WitnessAnswer(witness=broker_name, presence=said.presence, detail=said.detail)
        return Lookup(presence=said.presence, records=said.records, answers=(answer,))


class OffsetsSeen:
    """reconciler.rocketmq.client.offsets.Offsets."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._process = process
        self._cluster = cluster

    def of_group(self, address: str, queue: MessageQueue, group: str) -> int | None:
        broker = self._cluster.at(address)
        if group == CHECK_GROUP:
            progress: int = ask(self._process, broker, lambda: broker.check_position, "QUERY_CONSUMER_OFFSET")
            return progress
        place = (group, queue.topic, queue.queue_id)
        self._process.asked_offsets_of = group
        found: int | None = ask(self._process, broker, lambda: broker.offsets.get(place), "QUERY_CONSUMER_OFFSET")
        return found

    def all_of_group(self, asked: Sequence[tuple[str, MessageQueue]], group: str) -> list[int | None]:
        return [self.of_group(address, queue, group) for address, queue in asked]

    def minima(self, asked: Sequence[tuple[str, MessageQueue]]) -> list[int]:
        return [self._bounds(address, queue)[0] for address, queue in asked]

    def maxima(self, asked: Sequence[tuple[str, MessageQueue]]) -> list[int]:
        return [self._bounds(address, queue)[1] for address, queue in asked]

    def maximum(self, address: str, queue: MessageQueue) -> int:
        return self._bounds(address, queue)[1]

    def _bounds(self, address: str, queue: MessageQueue) -> tuple[int, int]:
        broker = self._cluster.at(address)
        bounds: tuple[int, int] = ask(
            self._process, broker, lambda: broker.bounds(queue.topic, queue.queue_id), "GET_OFFSET"
        )
        return bounds


class ClientSeen:
    """Of the remoting client only the clock is used directly, and END."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self.process = process
        self.cluster = cluster
        self.clock = process.clock


def _record_at(client: ClientSeen, address: str, queue: Any, offset: int) -> QueueRecord | None:
    """reconciler.evidence.queue_scan.record_at."""
    broker = client.cluster.at(address)

    def look() -> QueueRecord | None:
        first, last = broker.bounds(queue.topic, queue.queue_id)
        records = broker.read(queue.topic, queue.queue_id, offset, 1) if first <= offset < last else []
        return record_of(records[0]) if records else None

    with contextlib.suppress(ReconcilerError):
        found: QueueRecord | None = ask(client.process, broker, look, "PULL_MESSAGE")
        return found
    return None


def _end_of_queue(client: ClientSeen, address: str, queue: Any, *, offset: int) -> int:
    """reconciler.evidence.queue_scan.end_of_queue."""
    broker = client.cluster.at(address)
    _, end = ask(client.process, broker, lambda: broker.bounds(queue.topic, queue.queue_id), "PULL_MESSAGE")
    return int(end)


setattr(brokers, "end_of_queue", _end_of_queue)  # noqa: B010 - as below
for _module in (brokers, watermark):
    setattr(_module, "record_at", _record_at)  # noqa: B010 - mypy would not have it


class SimulatedWatermarks(Watermarks):
    """The product's watermarks over simulated offsets."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        routes: RoutesSeen,
        families: FamiliesSeen,
        *,
        kept: SeenQueues | None,
        on_look: Callable[[Process, Broker, str, int], None],
    ) -> None:
        self._client = ClientSeen(process, cluster)  # type: ignore[assignment]
        self._routes = routes  # type: ignore[assignment]
        self._families = families  # type: ignore[assignment]
        self._offsets = OffsetsSeen(process, cluster)  # type: ignore[assignment]
        self._reused = ReusedOffsets(process.clock, kept=kept)
        self._reused.begin_to_keep()
        self._on_look = on_look
        self._process = process
        self._cluster = cluster

    def _positions(self, asked: Sequence[tuple[str, MessageQueue]], group: str) -> list[QueuePosition]:
        positions = super()._positions(asked, group)
        for address, queue in asked:
            self._on_look(self._process, self._cluster.at(address), queue.topic, queue.queue_id)
        return positions

    def _store_time_ms(self, placed: Any, offset: int) -> int | None:
        broker = self._cluster.at(placed.address)
        queue = placed.queue
        records = ask(
            self._process, broker, lambda: broker.read(queue.topic, queue.queue_id, offset, 1), "PULL_MESSAGE"
        )
        return records[0].store_timestamp_ms if records else None


class _ProbesSeen:
    """reconciler.evidence.horizon.Probes: a message with a fresh key, looked up until the index has it."""

    def __init__(self, process: Process, cluster: Cluster, routes: RoutesSeen) -> None:
        self._process = process
        self._cluster = cluster
        self._routes = routes

    def horizon(self, topic: str) -> Horizon:
        found: dict[str, int] = {}
        unheard_of = self._cluster.brokers.keys() - self._cluster.heard_of
        self._process.knew_nothing_of |= dict.fromkeys(unheard_of, self._process.kernel.now)
        for place in self._routes.whereabouts(topic):
            at_ms = self._probe(self._cluster.brokers[place.broker_name])
            if at_ms is not None:
                found[place.broker_name] = at_ms
        return Horizon(at_ms=found)

    def _probe(self, broker: Broker) -> int | None:
        process = self._process
        # Fresh in every life of the process: an old probe would prove nothing about what came after it.
        key = f"{process.name}-{len(broker.log)}"
        try:
            record: MessageRecord = ask(
                process, broker, lambda: broker.append(PROBE_TOPIC, 0, {"UNIQ_KEY": key, "KEYS": key}, b"p"), "PROBE"
            )
            stored_at = process.kernel.now
            for pause in (0.002, 0.01, 0.05, 1.0, 2.0):
                if ask(process, broker, lambda: broker.query(PROBE_TOPIC, key), "QUERY_MESSAGE"):
                    process.proved[broker.name] = record.physical_offset, stored_at
                    return record.store_timestamp_ms
                process.sleep(pause)
        except (BrokerUnavailable, RequestTimeout):
            return None
        process.kernel.saw("no index horizon", broker.name)
        return None


_PULLING = GroupMembers(
    consume_type="CONSUME_PASSIVELY",
    connections=(ClientConnection(client_id="one", client_address="", language="PYTHON", version=CLIENT_VERSION),),
)


class _AdminSeen:
    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._process = process
        self._cluster = cluster

    def broker_config(self, address: str) -> Mapping[str, str]:
        broker = self._cluster.at(address)
        settings = broker.settings
        seconds = {
            "transactionTimeOut": settings.transaction_timeout, "transactionCheckInterval": settings.check_interval
        }  # fmt: skip
        config = {name: str(round(value * 1000)) for name, value in seconds.items()}
        answer: Mapping[str, str] = ask(self._process, broker, lambda: config, "GET_BROKER_CONFIG")
        return answer

    def group_filter(self, address: str, group: str, topic: str) -> GroupFilter:
        def answer() -> GroupFilter:
            if self._cluster.filters_by_sql92(group):
                return GroupFilter(kind="SQL92", expression="region = 'north'")
            return GroupFilter(kind="TAG", expression="*")

        told: GroupFilter = ask(self._process, self._cluster.at(address), answer, "GET_CONSUMER_CONNECTION_LIST")
        return told

    def group_members(self, address: str, group: str) -> GroupMembers | None:
        """Members that pull are always connected; who pops by a proxy is not known to its broker."""
        found = None if group in self._cluster.groups_that_pop else _PULLING
        broker = self._cluster.at(address)
        told: GroupMembers | None = ask(self._process, broker, lambda: found, "GET_CONSUMER_CONNECTION_LIST")
        return told

    def subscribes(self, address: str, group: str, topic: str) -> bool:
        broker, popped = self._cluster.at(address), self._cluster.at(address).popped
        is_seen = group not in self._cluster.popping_unseen
        if not is_seen:
            self._process.kernel.saw("nobody tells how a group consumes", group)
        subscribes = ask(
            self._process, broker, lambda: popped.subscribes(group, topic), "QUERY_SUBSCRIPTION_BY_CONSUMER"
        )
        return is_seen and bool(subscribes)

    def topics_of_group(self, address: str, group: str) -> list[str]:
        broker = self._cluster.at(address)

        def answer() -> list[str]:
            topics = {topic for named, topic, _ in broker.offsets if named == group}
            is_seen = group not in self._cluster.popping_unseen
            return sorted(topic for topic in topics if is_seen or not topic.startswith(RETRY_TOPIC_PREFIX))

        told: list[str] = ask(self._process, broker, answer, "QUERY_TOPICS_BY_CONSUMER")
        return told

    def topics(self, address: str) -> list[str]:
        broker = self._cluster.at(address)
        told: list[str] = ask(self._process, broker, lambda: sorted({at[1] for at in broker.offsets}), "GET_ALL_TOPIC")
        return told

    def groups_of_topic(self, address: str, topic: str) -> list[str]:
        broker = self._cluster.at(address)

        def answer() -> list[str]:
            return sorted({group for group, named, _ in broker.offsets if named == topic})

        told: list[str] = ask(self._process, broker, answer, "QUERY_TOPIC_CONSUME_BY_WHO")
        return told

    def request_mode(self, address: str, group: str, topic: str) -> None:
        ask(self._process, self._cluster.at(address), lambda: None, "GET_ALL_MESSAGE_REQUEST_MODE")

    def producer_connections(self, address: str, group: str) -> int:
        broker = self._cluster.at(address)
        return int(ask(self._process, broker, lambda: broker.producers.get(group, 0), "GET_PRODUCER_CONNECTION_LIST"))


class SimulatedEvidence(RemotingBrokerEvidence):
    """The product's witness for everything that brokers know."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        *,
        skew_margin_seconds: float,
        asks_at_once: bool = False,
        kept: SeenQueues | None = None,
        on_look: Callable[[Process, Broker, str, int], None] = lambda *_: None,
    ) -> None:
        routes, families, admin = RoutesSeen(cluster), FamiliesSeen(cluster), _AdminSeen(process, cluster)
        configs = BrokerConfigs(admin, clock=process.clock)  # type: ignore[arg-type]
        pop_groups = PopGroups(admin, routes, families, configs, clock=process.clock)  # type: ignore[arg-type]
        self.lookups = SimulatedLookups(process, cluster, routes, at_once=asks_at_once)
        self.routes = routes
        watermarks = SimulatedWatermarks(process, cluster, routes, families, kept=kept, on_look=on_look)
        fields: dict[str, object] = {
            "_client": ClientSeen(process, cluster),
            "_reused": watermarks._reused,
            "_routes": routes,
            "_families": families,
            "_clock": process.clock,
            "_skew_margin_seconds": skew_margin_seconds,
            "_retired_brokers": frozenset(),
            "_lookups": self.lookups,
            "_watermarks": watermarks,
            "_probes": _ProbesSeen(process, cluster, routes),
            "_admin": admin,
            "_offsets": OffsetsSeen(process, cluster),
            "_pop_groups": pop_groups,
            "_configs": configs,
            "_producers": {},
            "_filters": {},
            "_absent_producers": AbsentProducers(process.clock),
        }
        self.__dict__.update(fields)
        self._process = process

    def producers_of(self, half: StoredMessage) -> ProducerLook:
        look = super().producers_of(half)
        seen, now = self._process.saw_no_producer, self._process.kernel.now
        if look.is_connected is False:
            since, _ = seen.get(half.broker, (now, now))
            seen[half.broker] = since, now
        elif look.is_connected:
            seen.pop(half.broker, None)
        return look
