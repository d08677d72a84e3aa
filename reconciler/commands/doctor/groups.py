"""What `reconciler doctor` says about groups: configured consumers, other consumers, and producers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from reconciler.commands.asking.brokers import OWN_GROUPS
from reconciler.commands.diagnosis import Diagnosis, Level
from reconciler.commands.doctor.filters import check_filters
from reconciler.commands.doctor.inboxes import check_stranger, group_check
from reconciler.commands.renaming.renamed_groups import renames
from reconciler.contract.facts import Code, Field
from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway, ReconcilerError
from reconciler.policy.evidence import WatermarkState
from reconciler.policy.ports.evidence import BrokerEvidence
from reconciler.telling.ports.reports import StoredRound
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import broker_evidence
from reconciler.wiring.subscriptions import subscription_of

STORE_OFFSETS = Code("doctor.store-offsets")
UNKNOWN_GROUP = Code("doctor.unknown-group")
MAKE_GROUP = Code("doctor.make-group")
GROUP_RENAMED = Code("doctor.group-renamed")
DELETE_GROUP = Code("doctor.delete-group")
PRODUCER_GROUP = Code("doctor.producer-group", group=Field.NAME)
PRODUCERS_CONNECTED = Code("doctor.producers-connected", number=Field.NUMBER)
NO_PRODUCER = Code("doctor.no-producer")


class GroupChecks:
    """Checks groups at the brokers. Used by one thread."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._settings = connections.settings
        # Each question is asked once, because all subscriptions of a topic, and groups that are not configured, need
        # the answer.
        self._groups = cache(lambda address: connections.admin.groups(address))
        self._readers = cache(lambda address, topic: connections.admin.groups_of_topic(address, topic))

    def check(self) -> Iterator[Diagnosis]:
        """Checks every group."""
        brokers = broker_evidence(self._connections)
        for configured in self._settings.subscriptions:
            yield self._of_group(brokers, subscription_of(self._settings, configured))
        yield from check_filters(self._connections)
        yield from self._strangers()
        yield from self._producers()

    def _of_group(self, brokers: BrokerEvidence, subscription: Subscription) -> Diagnosis:
        check = group_check(str(subscription))
        if self._is_nobody(subscription):
            # A section may be older than its group, because brokers know a group only from its first member on.
            rounds: Sequence[StoredRound] = ()
            with suppress(DatabaseAway):  # a ledger that is away has its own line
                rounds = self._connections.ledger.reports.last_rounds(subscription)
            has_worked = any(stored.done.generation > 1 for stored in rounds)
            level: Level = "fail" if has_worked else "note"
            return Diagnosis(check=check, level=level, found=UNKNOWN_GROUP(), remedy=MAKE_GROUP())
        watermark = brokers.watermark(subscription)
        if watermark.state is WatermarkState.UNKNOWN:
            return Diagnosis(check=check, level="note", found=watermark.detail, remedy=STORE_OFFSETS())
        return Diagnosis(check=check, level="ok", found=watermark.detail)

    def _is_nobody(self, subscription: Subscription) -> bool:
        """Returns True if every broker says that it has no configuration, offset or member of the group.

        A broker that does not answer, or refuses, may know the group.
        """
        addresses = self._connections.rocketmq.cluster_addresses()
        try:
            return bool(addresses) and not any(
                subscription.group in (*self._groups(address), *self._readers(address, subscription.topic))
                for address in addresses
            )
        except ReconcilerError:
            return False

    def _strangers(self) -> Iterator[Diagnosis]:
        """Yields findings about groups that read a configured topic but have no [[subscriptions]] section."""
        addresses = sorted(self._connections.rocketmq.cluster_addresses())
        retired: frozenset[str] = frozenset()
        with suppress(DatabaseAway):
            retired = renames(self._connections).retired
        for topic, of_topic in self._settings.subscriptions_of_topics().items():
            seen: set[str] = set()
            for address in addresses:
                with suppress(ReconcilerError):
                    seen.update(self._readers(address, topic))
            for group in sorted(g for g in seen - {s.group for s in of_topic} if not g.startswith(OWN_GROUPS)):
                if group in retired:
                    check = group_check(f"{topic}/{group}")
                    yield Diagnosis(check=check, level="note", found=GROUP_RENAMED(), remedy=DELETE_GROUP())
                else:
                    yield check_stranger(self._connections, topic, group)

    def _producers(self) -> Iterator[Diagnosis]:
        admin = self._connections.admin
        addresses = sorted(self._connections.rocketmq.cluster_addresses())
        for producer in self._settings.producers:
            count = 0
            for address in addresses:
                with suppress(ReconcilerError):
                    count += len(admin.producer_connections(address, producer.group))
            check, found = PRODUCER_GROUP(group=producer.group), PRODUCERS_CONNECTED(number=count)
            if count:
                yield Diagnosis(check=check, level="ok", found=found)
            else:
                yield Diagnosis(check=check, level="note", found=found, remedy=NO_PRODUCER())
