"""Every role that reaches a broker, each with a user of its own: what it asks of the broker, step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.remoting import RemotingAnnouncements
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.commands.asking.broker_rights import refusals
from reconciler.commands.asking.check_services import check_services
from reconciler.commands.renaming.group_on_brokers import GroupOnBrokers
from reconciler.commands.topics import create_topics
from reconciler.contract import least_rights
from reconciler.contract.announcement import AnnouncedKey
from reconciler.contract.broker_rights import NEW_GROUP, BrokerRight
from reconciler.contract.subscription import Subscription
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.halves.values import BrokerFindings
from reconciler.policy.evidence import ConsumeMode, EndOutcome, Recorded, StoredMessage, WatermarkState
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState
from reconciler.rocketmq.producer.transaction_producer import HalfReceipt, TransactionMQProducer
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.schema import upgrade
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import broker_evidence
from reconciler.wiring.half_scan import ScanRequest, scan_halves
from reconciler.words import said
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.settings_file import settings_file

T = TypeVar("T")

TOPIC, GROUP, PRODUCERS = "ORDERS", "billing-group", "order-service"
#: What `group rename` calls the group.
RENAMED_GROUP = "invoicing-group"
UNIQUE_KEY_TOPIC, PROBE_TOPIC = "RECONCILER_UNIQUE_KEY", "RECONCILER_PROBE"
#: Longer than six characters: ACL 1.0 asks for it.
SECRET = "marked-secret-of-every-user"
QUEUES = 1

ROLES = {role.name: role for role in least_rights.ROLES if role.brokers}


def user_of(role: str) -> str:
    """Access key of the role's user."""
    return f"user-{role.replace(' ', '-')}"


def credentials_of(role: str, *, user_suffix: str = "") -> AclCredentials:
    """Keys of the role's user, or of another one whose name ends in `user_suffix`."""
    return AclCredentials(access_key=user_of(role) + user_suffix, secret_key=lambda: SECRET)


def granted(right: BrokerRight, *, is_acl: bool) -> list[tuple[str, str, str]]:
    """(Action, kind, name) of the right with the names of this file."""
    name = right.filled(topic=TOPIC, group=GROUP, unique_key_topic=UNIQUE_KEY_TOPIC, probe_topic=PROBE_TOPIC)
    return [
        (action, right.kind, name.replace(NEW_GROUP, RENAMED_GROUP))
        for action in (right.acl if is_acl else right.authorization)
    ]


def rights_of(role: str, *, is_acl: bool) -> list[tuple[str, str, str]]:
    """Each right of the role once."""
    every = (one for right in ROLES[role].brokers for one in granted(right, is_acl=is_acl))
    return list(dict.fromkeys(every))


def settings_of(role: str, name_servers: str, folder: Path, *, user_suffix: str = "") -> Settings:
    """Settings of a command that runs with the role's user."""
    file = settings_file(
        folder,
        "rocketmq.request_timeout_seconds = 20",
        f'rocketmq.acl = {{ access_key = "{user_of(role)}{user_suffix}", secret_key = "{SECRET}" }}',
        f"unique_key_topic.queues = {QUEUES}",
        name_servers=name_servers,
        topic=TOPIC,
        producer_group=PRODUCERS,
        group=GROUP,
    )
    return load_settings(file, {})


class SecuredRoles:
    """One cluster with access control, and the steps of each role on it. Steps raise what the client raises."""

    def __init__(
        self, name_servers: str, folder: Path, *, is_refused: Callable[[], bool] = lambda: False, user_suffix: str = ""
    ) -> None:
        """`is_refused`: nothing is waited for any more."""
        self._is_refused = is_refused
        self._user_suffix = user_suffix
        self.name_servers = name_servers
        self.folder = folder
        self.taken: list[ReceivedMessage] = []
        self.half: HalfReceipt | None = None

    def steps(self) -> Mapping[str, Callable[[], object]]:
        """Role -> its requests; in an order in which each finds what it needs."""
        return {
            "topics create": self.create_topics,
            "announcing service": self.announce,
            "consuming service": self.consume,
            "run": self.run,
            "sweep": self.sweep,
            "announcements": self.pull_announcements,
            "doctor": lambda: self.look("doctor"),
            "console": lambda: self.look("console"),
            "scan": self.scan,
            "group rename": self.rename_group,
        }

    def create_topics(self) -> None:
        """Topics and groups."""
        create_topics(self._settings("topics create"), business_queues=QUEUES)

    def announce(self) -> None:
        """A transaction that commits, one whose END gets lost, and announcements of both."""
        with self._instance("announcing service") as instance, self._producer(instance) as producer:
            committed = producer.send_half(Message(topic=TOPIC, body=b"committed"))
            answer = producer.end(committed, LocalTransactionState.COMMIT)
            assert answer.code == 0, answer
            self.half = producer.send_half(Message(topic=TOPIC, body=b"lost"))
            self._announce(instance, PRODUCERS, [committed.unique_key, self.half.unique_key])

    def consume(self) -> None:
        """Takes what is committed, the first one only at its second delivery, and leaves with its offsets stored."""

        def listen(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
            self.taken.extend(messages)
            is_first = messages[0].reconsume_times == 0 and messages[0].body == b"committed"
            return ConsumeStatus.RECONSUME_LATER if is_first else ConsumeStatus.CONSUME_SUCCESS

        settings = PushSettings(offset_commit_interval_seconds=0.2, suspend_seconds=1.0)
        consumer = PushConsumer(
            GROUP,
            name_servers=self.name_servers,
            acl=credentials_of("consuming service", user_suffix=self._user_suffix),
            settings=settings,
        )
        with ExitStack() as stack:
            consumer.subscribe(TOPIC).register_listener(listen).start()
            stack.callback(consumer.shutdown)
            eventually(
                lambda: (
                    self._is_refused() or [m.reconsume_times for m in self.taken if m.body == b"committed"] == [0, 1]
                ),
                within_seconds=30,
                message="taken, sent back and taken again",
            )

    def run(self) -> None:
        """The half is found and ended, another message republished; then nothing is unknown about either."""
        settings = self._settings("run")
        with Connections(settings) as connections:
            assert not refusals(connections)
            half = self._witnessed(connections)
            repairs = RemotingBrokerRepairs(connections.rocketmq, english=said)
            assert repairs.end_transaction(half, expected=_row_of(half), commit=True)()().outcome is EndOutcome.DONE
            assert repairs.republish(half)().outcome is EndOutcome.DONE

    def _witnessed(self, connections: Connections) -> StoredMessage:
        brokers = broker_evidence(connections)
        subscription = Subscription(environment="test", topic=TOPIC, group=GROUP)
        key = self.half.unique_key if self.half is not None else "0" * 32
        horizon = self._until(lambda: brokers.horizon(TOPIC), lambda found: bool(found.at_ms))
        halves = brokers.half_copies(TOPIC, key, horizon=horizon, not_before_ms=0, outbox=None)()
        assert halves.is_found, halves.reason
        for found in (
            brokers.committed_copies(TOPIC, key, horizon=horizon, not_before_ms=0)(),
            brokers.parked_copies(TOPIC, key, horizon=horizon, not_before_ms=0)(),
            *brokers.group_copies(subscription, key, horizon=horizon)().values(),
        ):
            assert not found.is_unknown, found.reason
        self._until(lambda: brokers.watermark(subscription), lambda found: found.state is WatermarkState.KNOWN)
        brokers.check_back_wait_seconds(halves.records[-1])
        assert brokers.is_past_check(halves.records[-1]) is not None
        return halves.records[-1]

    def sweep(self) -> None:
        """An announcement for a producer that died."""
        with Connections(self._settings("sweep")) as connections:
            self._announce(connections.rocketmq, "reconciler-sweeper", ["0" * 32])

    def pull_announcements(self) -> None:
        """What was announced."""
        with Connections(self._settings("announcements")) as connections:
            source = RemotingAnnouncementSource(connections.rocketmq.client, connections.rocketmq.routes)
            pulled = 0
            for queue in source.queues(UNIQUE_KEY_TOPIC):
                begin = source.earliest(queue)
                pulled += len(source.pull(queue, tag=TOPIC, offset=begin, max_messages=32).messages)
            assert pulled >= 2

    def rename_group(self) -> None:
        """What the command asks of brokers; the new name goes on where the old one stopped."""
        settings = self._settings("group rename")
        upgrade(settings.ledger.url, "ledger")
        with Connections(settings) as connections:
            group = GroupOnBrokers(connections, [TOPIC], old=GROUP, new=RENAMED_GROUP, english=said)
            assert not [member for member in group.members() if member.startswith(f"{RENAMED_GROUP}:")]
            topics = group.all_topics()
            assert topics == [TOPIC]
            assert ConsumeMode.POP not in group.consume_modes(topics).values()
            assert not group.popped_by_new(topics)
            passed = [queue for queue in group.queues(topics) if not queue.is_retry and queue.offset is not None]
            group.make_group()
            assert [one.unread for one in group.delayed()] == [""]
            for queue in passed:
                group.move(queue)
            assert passed

    def scan(self) -> None:
        """Everything that a scan reads. A broker of 4.x has no half topic to read before its first round."""
        request = ScanRequest(
            name_servers=self.name_servers,
            acl=credentials_of("scan", user_suffix=self._user_suffix),
            request_timeout_seconds=20,
            is_counting=True,
        )

        def seen() -> BrokerFindings | None:
            (found,) = scan_halves(request, progress=lambda *_: None)
            waits = found.unread is not None and found.unread.code.name == "scan.before-first-round"
            return None if waits and not self._is_refused() else found

        found = eventually(seen, within_seconds=60)
        assert found.unread is None, found
        assert not found.notes, found.notes

    def look(self, role: str) -> None:
        """What a command that only looks asks of brokers."""
        with Connections(self._settings(role)) as connections:
            assert not refusals(connections)
            if role == "console":  # `explain` inquires into a key
                self._witnessed(connections)
                return
            assert not list(check_services(connections))
            subscription = Subscription(environment="test", topic=TOPIC, group=GROUP)
            brokers = broker_evidence(connections)
            self._until(lambda: brokers.watermark(subscription), lambda found: found.state is WatermarkState.KNOWN)
            # Clocks are compared by it.
            self._until(lambda: brokers.horizon(TOPIC), lambda found: bool(found.at_ms))

    def _until(self, ask: Callable[[], T], is_known: Callable[[T], bool]) -> T:
        """The first answer that is known; once something was refused, no other one is waited for."""

        def asked() -> tuple[T] | None:
            found = ask()
            return (found,) if is_known(found) or self._is_refused() else None

        (answer,) = eventually(asked, within_seconds=60)
        assert is_known(answer), answer
        return answer

    def _instance(self, role: str) -> AbstractContextManager[ClientInstance]:
        return patient_instance(self.name_servers, acl=credentials_of(role, user_suffix=self._user_suffix))

    def _settings(self, role: str) -> Settings:
        return settings_of(role, self.name_servers, self.folder, user_suffix=self._user_suffix)

    def _producer(self, instance: ClientInstance) -> TransactionMQProducer:
        return TransactionMQProducer(PRODUCERS, None, instance=instance).start(TOPIC)

    def _announce(self, instance: ClientInstance, group: str, keys: Sequence[str]) -> None:
        route = AnnouncementRoute(environment="test", queues=QUEUES)
        announced = [AnnouncedKey(unique_key=key, tag=None, committed_at_ms=instance.clock.now_ms()) for key in keys]
        Announcer(RemotingAnnouncements(group, instance), route).announce(TOPIC, group, announced)


def _row_of(half: StoredMessage) -> Recorded:
    return Recorded(
        unique_key=half.unique_key,
        topic=TOPIC,
        producer_group=PRODUCERS,
        tag=None,
        content_digest=None,
        created_at_ms=0,
    )


class RefusalLog(logging.Handler):
    """What the client logs of refusals, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the lines about refusals."""
        text = record.getMessage()
        if text.startswith("access_refused"):
            self.lines.append(text)

    def __enter__(self) -> RefusalLog:
        logging.getLogger("reconciler.rocketmq.client.connection").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("reconciler.rocketmq.client.connection").removeHandler(self)
