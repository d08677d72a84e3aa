"""The names by which people find a message: its unique key, its business id, or its query key.

The producer wrote the business id into the outbox. A commit query finds its row by the query key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from reconciler.commands.asking.availability import database_away
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import NAME_CHARACTERS
from reconciler.contract.tables import OutboxState
from reconciler.contract.unique_key import in_other_case, is_unique_key
from reconciler.errors import DependencyAway, InvalidValue, ReconcilerError
from reconciler.evidence.outbox_inspection import ROWS_COUNTED_MAX
from reconciler.policy.commit_query import digest_of_key
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.ports.ledger import NotedHalf
from reconciler.wiring.commit_queries import configured_queries
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import ConfiguredDatabase, commit_evidence, configured_databases
from reconciler.wiring.evidence import build_witnesses, inspect_outbox
from reconciler.wiring.subscriptions import subscription_of
from reconciler.words import said

WITHOUT_OUTBOX = Code("business.without-outbox", group=Field.NAME)
UNPROVED = Code("business.unproved", outbox=Field.NAME, why=Field.FACT)
DAMAGED = Code("business.damaged", outbox=Field.NAME, damage=Field.TEXT)
OLDER = Code("business.older", older=Field.NUMBER, business_id=Field.NAME)
MANY_OLDER = Code("business.many-older", older=Field.NUMBER, business_id=Field.NAME)
CASE_COUNTS = Code("business.case-counts", unique_keys=Field.NAMES)
MEANING = Code("business.meaning", business_id=Field.NAME, messages=Field.NUMBER, unique_keys=Field.NAMES)
QUERY_KEY = Code(
    "business.query-key", business_id=Field.NAME, halves=Field.NUMBER, topic=Field.NAME, unique_keys=Field.NAMES
)
HALVES_NOT_KEPT = Code("business.halves-not-kept", topic=Field.NAME)
HALVES_LOOKED_UP = Code("business.halves-looked-up", topic=Field.NAME)
#: Maximum number of halves of one query key that a line names.
_NAMED_MAX = 10
#: Maximum number of unknown keys of one command for which known keys that differ in case alone are looked for.
HINTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOfBusiness:
    """One outbox row of a business id, or one half of a query key."""

    unique_key: str
    topic: str
    producer_group: str
    #: None for a half that is in no outbox.
    state: OutboxState | None
    #: The time at which the outbox row was created, or the half was first stored.
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessMessages:
    """What the outboxes have under one business id, and the ledger under one query key."""

    business_id: str
    #: Each message once. The newest message comes first.
    messages: tuple[MessageOfBusiness, ...] = ()
    #: Number of older messages that were not read, counted up to ROWS_COUNTED_MAX for each outbox.
    older: int = 0
    #: Outboxes that did not answer.
    away: tuple[Fact, ...] = ()
    #: Damaged rows.
    damaged: tuple[Fact, ...] = ()
    #: Reasons why there may be further messages.
    silent: tuple[Fact, ...] = ()
    #: One line for each topic with halves that the ledger has noted with this text as their query key.
    halves: tuple[Fact, ...] = ()

    @property
    def unique_keys(self) -> tuple[str, ...]:
        """Keys of the messages. The key of the newest message comes first."""
        return tuple(message.unique_key for message in self.messages)

    @property
    def left_out(self) -> tuple[Fact, ...]:
        """A fact about the number of messages that are not named here. Empty: all messages are named."""
        if not self.older:
            return ()
        code = MANY_OLDER if self.older > ROWS_COUNTED_MAX else OLDER
        return (code(older=min(self.older, ROWS_COUNTED_MAX), business_id=self.business_id),)


def key_shaped(text: str) -> str | None:
    """Returns the unique key that a person may mean, without surrounding spaces. None: the text has another form.

    Upper and lower case stay as typed.
    """
    key = text.strip()
    return key if is_unique_key(key) else None


def other_case_note(connections: Connections, unique_key: str) -> Fact | None:
    """Returns a line with the known keys that differ from an unknown key in case alone.

    None: no place that answers has such a key.
    """
    wanted, known = in_other_case(unique_key), set[str]()
    if not wanted:
        return None
    witnesses = build_witnesses(connections)
    for database in _outboxes(connections):
        with suppress(ReconcilerError):  # the question for the key itself reports what is away
            known |= inspect_outbox(connections, database.url).known(wanted)
    for configured in connections.settings.subscriptions:
        subscription = subscription_of(connections.settings, configured)
        with suppress(ReconcilerError):
            known |= connections.ledger.candidates.of_keys(subscription, wanted).keys()
        if witnesses.inbox.is_configured(subscription):
            found = witnesses.inbox.look_up(subscription, wanted)
            known |= {row.unique_key for lookup in found.values() for row in lookup.records}
    return CASE_COUNTS(unique_keys=tuple(sorted(known))) if known else None


def require_name(text: str) -> str:
    """Returns the text that a person typed. Raises InvalidValue for a text that no row can have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("KEY", text, "no UTF-8 text, so neither a unique key nor a business id") from None
    if len(text) > NAME_CHARACTERS:
        raise InvalidValue(
            "KEY", f"{text[:40]}…", f"{len(text)} characters; a business id has {NAME_CHARACTERS} at most"
        )
    if not text.strip():
        raise InvalidValue("KEY", text, "give a unique key or a business id")
    return text


def messages_of(connections: Connections, business_id: str, *, limit: int) -> BusinessMessages:
    """Returns the newest messages of a business id from all configured outboxes, and the halves of a query key.

    `business_id`: the business id or the query key. Upper case, lower case and accents count. `limit`: most messages
    that are returned. The result names each outbox that is away. Raises DatabaseAway if the ledger is away.
    """
    found: dict[str, MessageOfBusiness] = {}
    older = 0
    unanswered: list[Fact] = []
    damaged: list[Fact] = []
    halves: list[Fact] = []
    silent = [WITHOUT_OUTBOX(group=group) for group in commit_evidence(connections.settings).announced_only]
    for database in _outboxes(connections):
        try:
            rows = inspect_outbox(connections, database.url).newest_of_business(business_id, limit=limit)
        except ReconcilerError as error:
            unanswered.append(database_away([database.fact], str(error)))
            continue
        if rows.doubt is not None:
            silent.append(UNPROVED(outbox=database.name, why=rows.doubt))
        older += rows.older
        for read in rows.newest:
            if read.damage is not None:
                damaged.append(DAMAGED(outbox=database.name, damage=read.damage))
            else:
                row = MessageOfBusiness(**read.values | {"state": OutboxState(read.values["state"])})
                found.setdefault(row.unique_key, row)
    for topic, noted in _noted_halves(connections, business_id, silent):
        found = {one.unique_key: _message(topic, one) for one in noted} | found
        named = tuple(one.unique_key for one in noted[:_NAMED_MAX])
        halves.append(QUERY_KEY(business_id=business_id, halves=len(noted), topic=topic, unique_keys=named))
    newest = sorted(found.values(), key=lambda row: (-row.created_at_ms, row.unique_key))
    return BusinessMessages(
        business_id=business_id,
        messages=tuple(newest[:limit]),
        older=older + len(newest[limit:]),
        away=tuple(unanswered),
        damaged=tuple(damaged),
        silent=tuple(silent),
        halves=tuple(halves),
    )


def _noted_halves(
    connections: Connections, query_key: str, silent: list[Fact]
) -> Iterator[tuple[str, Sequence[NotedHalf]]]:
    """Yields each topic with its halves of a query key. The newest half comes first, and no half comes twice.

    `silent` collects the reasons why there may be further halves.
    """
    settings = connections.settings
    announcing = {one.topic for one in settings.subscriptions if one.reads_halves}
    for topic, one in configured_queries(settings).items():
        value = one.query.key_type.value_of(query_key)
        if value is None:
            continue
        digest = digest_of_key(value)
        noted = connections.ledger.halves.of_keys(settings.environment, topic, [digest])
        if noted is None:
            silent.append(HALVES_NOT_KEPT(topic=topic))
            continue
        if topic not in announcing:
            silent.append(HALVES_LOOKED_UP(topic=topic))
        first = sorted(noted[digest], key=lambda half: (half.stored_at_ms, half.unique_key), reverse=True)
        if first:
            yield topic, tuple({half.unique_key: half for half in first}.values())


def _message(topic: str, half: NotedHalf) -> MessageOfBusiness:
    return MessageOfBusiness(
        unique_key=half.unique_key, topic=topic, producer_group="", state=None, created_at_ms=half.stored_at_ms
    )


def business_ids_of(connections: Connections, unique_keys: Sequence[str]) -> dict[str, str]:
    """Returns unique key -> business id for keys that the answering outboxes have. Raises nothing."""
    found: dict[str, str] = {}
    for database in _outboxes(connections) if unique_keys else ():
        with suppress(ReconcilerError):  # without an answer only the business id is missing
            asked = inspect_outbox(connections, database.url)
            for begin in range(0, len(unique_keys), PAGE_KEYS):
                found = asked.business_ids(unique_keys[begin : begin + PAGE_KEYS]) | found
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMessages:
    """What a person's name for messages means."""

    #: Keys of the messages. The key of the newest message comes first.
    unique_keys: tuple[str, ...]
    #: None: the name was a unique key.
    business: BusinessMessages | None = None
    #: How the name was understood.
    notes: tuple[Fact, ...] = ()


def keys_named(connections: Connections, name: str, *, limit: int) -> NamedMessages:
    """Returns the unique keys that a name means.

    If the ledger or an outbox has the name as a unique key, that key is meant. Otherwise the name is a business id, and
    the keys of its messages are meant. Raises InvalidValue for a name that is neither. Raises DependencyAway while an
    outbox does not answer, because an act on a business id needs all of its messages.
    """
    require_name(name)
    key = key_shaped(name)
    if key is not None and _is_known(connections, key):
        return NamedMessages(unique_keys=(key,))
    found = messages_of(connections, name, limit=limit)
    if found.away:
        raise DependencyAway("; ".join(map(said, found.away)))
    if not found.messages and key is not None:
        note = other_case_note(connections, key)
        return NamedMessages(unique_keys=(key,), notes=(note,) if note else ())
    if not found.messages:
        why = map(said, (*found.damaged, *found.silent))
        told = "; ".join(("no outbox has a message of this business id, and it is no unique key", *why))
        raise InvalidValue("KEY", name, told)
    number = len(found.messages) + found.older
    meaning = MEANING(business_id=name, messages=number, unique_keys=found.unique_keys)
    notes = (meaning, *found.left_out, *found.damaged, *found.silent)
    return NamedMessages(unique_keys=found.unique_keys, business=found, notes=notes)


def _is_known(connections: Connections, unique_key: str) -> bool:
    """Returns True if the ledger or an outbox has the key. Raises DatabaseAway."""
    life = connections.ledger.reports.life(connections.settings.environment, unique_key)
    if life.candidates or life.repairs or life.actions:
        return True
    return any(inspect_outbox(connections, database.url).known([unique_key]) for database in _outboxes(connections))


def _outboxes(connections: Connections) -> list[ConfiguredDatabase]:
    return [database for database in configured_databases(connections.settings) if database.tree == "outbox"]
