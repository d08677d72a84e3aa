"""Announces committed unique keys on the unique-key topic and marks their rows. A second announcement of a key is
harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from checkback_producers.ports import AnnouncementMessage, AnnouncementSender
from reconciler.contract.announcement import (
    SIGNATURE_PROPERTY,
    UNIQUE_KEY_TOPIC_DEFAULT,
    AnnouncedKey,
    Announcement,
    SignatureSecret,
    encode_announcement,
    sign,
    split_by_shard,
)
from reconciler.contract.keyspace import SHARDS_DEFAULT, SHARDS_MAX
from reconciler.errors import ConfigurationError, InvalidValue, ReconcilerError

#: Number of messages refused by all brokers after which an announcer stops. The sweeper announces the rest.
FAILURES_MAXIMUM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementRoute:
    """Where and how announcements are sent. The values must equal [unique_key_topic] of the reconciler's settings."""

    environment: str
    unique_key_topic: str = UNIQUE_KEY_TOPIC_DEFAULT
    #: Number of queues on every master. Each shard has one queue.
    queues: int = SHARDS_DEFAULT
    #: Business topic -> its own unique-key topic, if it has one.
    topics: Mapping[str, str] = field(default_factory=dict)
    #: Secret with which every announcement is signed (HMAC-SHA256). The secret is given as bytes, or as a function that
    #: returns a list of secrets. The first secret of the list signs. None: announcements are not signed.
    signature_secret: SignatureSecret | None = field(default=None, repr=False)
    #: Version 0: one bare key per message.
    bare_keys: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.queues <= SHARDS_MAX:
            raise InvalidValue("queues", self.queues, f"1 to {SHARDS_MAX}, as the unique-key topic has on every master")
        if not isinstance(self.environment, str) or not self.environment or len(self.environment) > 64:
            raise InvalidValue("environment", self.environment, "1 to 64 characters, as in the service's settings")

        if self.signature_secret == b"":
            raise InvalidValue("signature_secret", "(empty)", 'a secret, or None: any sender can sign with ""')

    @classmethod
    def of(cls, environment: str, given: AnnouncementRoute | None) -> AnnouncementRoute:
        """Returns the given route, or the default route. Raises ConfigurationError if the route is of another
        environment."""
        route = given or cls(environment=environment)
        if route.environment != environment:
            raise ConfigurationError(f"announcements are for {route.environment!r}, the producer for {environment!r}")
        return route

    def unique_key_topic_of(self, topic: str) -> str:
        """Returns the unique-key topic of a business topic."""
        return self.topics.get(topic, self.unique_key_topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementReceipt:
    """The keys that brokers confirmed, and the last failure."""

    unique_keys: tuple[str, ...]
    error: ReconcilerError | None


class Announcer:
    """Sends announcements. An announcer has no state, and is as thread-safe as its sender."""

    def __init__(self, sender: AnnouncementSender, route: AnnouncementRoute) -> None:
        self._sender = sender
        self.route = route

    def announce(self, topic: str, producer_group: str, keys: Sequence[AnnouncedKey]) -> AnnouncementReceipt:
        """Sends the keys of one topic. Each message has at most 500 keys of one shard. Errors of brokers are returned
        and never raised.

        Returns the keys that brokers confirmed, and the caller marks these keys. The sweeper sends the remaining keys
        later.
        """
        whole = Announcement(
            environment=self.route.environment, topic=topic, producer_group=producer_group, keys=tuple(keys)
        )
        confirmed: list[str] = []
        failures = 0
        error: ReconcilerError | None = None
        for message, unique_keys in self._messages(whole):
            try:
                self._sender.send_announcement(message)
            except ReconcilerError as problem:
                error = problem
                failures += 1
                if failures == FAILURES_MAXIMUM:
                    break
            else:
                confirmed.extend(unique_keys)
        return AnnouncementReceipt(unique_keys=tuple(confirmed), error=error)

    def _messages(self, whole: Announcement) -> Iterator[tuple[AnnouncementMessage, list[str]]]:
        for shard, part in split_by_shard(whole, self.route.queues):
            unique_keys = [key.unique_key for key in part.keys]
            if self.route.bare_keys:
                for unique_key in unique_keys:
                    yield self._message(shard, whole.topic, unique_key.encode("ascii")), [unique_key]
            else:
                yield self._message(shard, whole.topic, encode_announcement(part)), unique_keys

    def _message(self, shard: int, topic: str, body: bytes) -> AnnouncementMessage:
        secret = self.route.signature_secret
        return AnnouncementMessage(
            unique_key_topic=self.route.unique_key_topic_of(topic),
            queue_id=shard,
            tag=topic,
            body=body,
            properties={} if secret is None else {SIGNATURE_PROPERTY: sign(body, secret)},
        )
