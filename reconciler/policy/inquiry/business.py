"""The witness for the business's own tables: the row of a half's key, the other messages to which that row may belong,
and the effects that effect queries find.

Each message that a look-up sees is recorded before its siblings are looked for. So if two messages are judged at the
same time, at least one look-up sees the other message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.contract.answers import NO_COPY_WITH_KEY
from reconciler.contract.facts import Fact
from reconciler.contract.reasons import (
    ANNOUNCED_BY_HALF,
    BUSINESS_ROLLED_BACK,
    BUSINESS_UNKNOWN,
    NO_BUSINESS_ROW,
    SIBLINGS,
    SIBLINGS_OF_OTHER_TAGS,
    SIBLINGS_UNKNOWN,
    SIBLINGS_UNREAD,
)
from reconciler.errors import InvariantViolation
from reconciler.policy.commit_query import UNREAD, BusinessAnswer, BusinessState, Siblings, digest_of, is_committed
from reconciler.policy.effect_query import WITNESS
from reconciler.policy.evidence import InboxRow, Lookup, StoredMessage
from reconciler.policy.inquiry.case_file import CaseFile, F, Question
from reconciler.policy.ports.evidence import BusinessQueries, HalfReading
from reconciler.policy.ports.ledger import NotedHalf, NotedHalves

#: Maximum number of messages of one business key that a reason names.
SIBLINGS_NAMED_MAX = 5
_NO_COPY = NO_COPY_WITH_KEY()
#: The answer of an effect query about a message without a copy.
WITHOUT_COPY = Lookup[InboxRow].unknown(WITNESS, _NO_COPY)


class BusinessWitness:
    """Asks commit queries and effect queries, and records the halves that commit queries were asked about. Holds no
    state between calls."""

    def __init__(
        self, queries: BusinessQueries | None, halves: NotedHalves | None, reading: HalfReading | None = None
    ) -> None:
        """`queries` and `halves` are None if no topic's commits are proved by a query. `reading` reads half queues
        before sends, and where halves are announcements."""
        self._queries = queries
        self._halves = halves
        self._reading = reading

    def answer(self, files: Sequence[F]) -> list[F]:
        """Adds the row of each message's business key, and the siblings that may share the row. All files are of one
        topic."""
        queries, halves = self._queries, self._halves
        if queries is None or halves is None:
            raise InvariantViolation("no commit query was opened")
        topic = files[0].topic
        copies = {file.unique_key: copy for file in files if (copy := file.key_copy) is not None}
        read = queries.look_up(topic.topic, copies)
        digests = queries.key_digests(topic.topic, copies)
        words = queries.key_words(topic.topic, copies)
        is_noted = halves.note(topic.environment, topic.topic, [*_noted(files, digests)])
        asked = {digests[key] for key, answer in read.items() if is_committed(answer) and key in digests}
        # Half queues are read after the row, because a half is sent before its row is written, and before siblings
        # are looked up, so that all halves are recorded by then.
        unread = self._reading.read_to_end(topic.topic) if self._reading is not None and asked else UNREAD
        known = halves.of_keys(topic.environment, topic.topic, asked) if is_noted else None
        answered: list[F] = []
        for file in files:
            digest, copy = digests.get(file.unique_key), file.key_copy
            siblings = Siblings(are_known=False)
            if known is not None and copy is not None and digest is not None and digest in known:
                others = [one for one in known[digest] if one.unique_key != file.unique_key]
                alike = {one.unique_key for one in others if one.tag_digest == _tag_digest(copy)}
                stored_ms = [one.stored_at_ms for one in others if one.unique_key in alike]
                siblings = Siblings(
                    unique_keys=_youngest_first(others, alike),
                    newest_ms=max(stored_ms, default=0),
                    oldest_ms=min(stored_ms, default=0),
                    of_other_tags=tuple(sorted({one.unique_key for one in others} - alike)),
                    unread=unread,
                )
            word = words.get(file.unique_key)
            answered.append(replace(file, business=read[file.unique_key], siblings=siblings, key_word=word))
        return answered

    def look_for_notes(self, files: Sequence[F]) -> list[F]:
        """Adds whether a half of each message was recorded. A half that announces is recorded before its key counts as
        announced. All files are of one topic."""
        topic, keys = files[0].topic, {file.unique_key for file in files}
        noted = self._halves.noted(topic.environment, topic.topic, keys) if self._halves is not None else ()
        return [replace(file, is_noted=file.unique_key in noted) for file in files]

    def answer_effects(self, files: Sequence[F]) -> list[F]:
        """Adds what the effect query of each group that is asked says about the messages. A message without a copy is
        UNKNOWN, because only a copy has the query key. All files are of one topic."""
        queries = self._queries
        if queries is None:
            raise InvariantViolation("no effect query was opened")
        asked = [file.plans_asked(Question.EFFECT_QUERY) for file in files]
        read: dict[str, Mapping[str, Lookup[InboxRow]]] = {}
        for plan in dict.fromkeys(plan for plans in asked for plan in plans):
            of_plan = [file for file, plans in zip(files, asked, strict=True) if plan in plans]
            copies = {file.unique_key: copy for file in of_plan if (copy := file.effect_copy) is not None}
            read[plan.group] = queries.effects(plan.subscription, copies)
        return [
            file.with_group_answers(
                "inbox", {p.group: read[p.group].get(file.unique_key) or WITHOUT_COPY for p in plans}
            )
            for file, plans in zip(files, asked, strict=True)
        ]

    def note_delivered(self, files: Sequence[CaseFile]) -> None:
        """Records messages that have a committed copy: the row of their key is, or may be, their own. Repairs record
        none, because a verdict has done so."""
        queries, halves = self._queries, self._halves
        if queries is None or halves is None or not files or not files[0].topic.evidence.asks_business:
            return
        topic = files[0].topic
        copies = {file.unique_key: file.own_copies for file in files}
        found = {key: one.records[0] for key, one in copies.items() if one is not None and one.is_found}
        digests = queries.key_digests(topic.topic, found)
        halves.note(
            topic.environment,
            topic.topic,
            [_half(copy, digests.get(key), stored_at_ms=copy.store_timestamp_ms) for key, copy in found.items()],
        )


def doubt_of_announcement(file: CaseFile) -> Fact | Question | None:
    """Returns why a trusted announcement proves no commit, or the next question. None: the message's own service
    announced it.

    A topic may have been announced by its half messages earlier. Such a half is recorded before its key counts as
    announced, and proves no commit, whatever the settings trust since.
    """
    if file.is_noted is None:
        return Question.NOTED_HALVES
    return ANNOUNCED_BY_HALF() if file.is_noted else None


def sibling_doubt(siblings: Siblings | None, *, may_be_unread: bool) -> Fact | None:
    """Returns why a committed row may belong to another message: a try that failed leaves a half, too. None: the row is
    this message's own.

    `may_be_unread`: False means that messages which nobody has read yet are a doubt, too.
    """
    if siblings is None or not siblings.are_known:
        return SIBLINGS_UNKNOWN()
    if siblings.unique_keys:
        names = siblings.unique_keys[:SIBLINGS_NAMED_MAX]
        return SIBLINGS(number=len(siblings.unique_keys), unique_keys=names)
    return SIBLINGS_UNREAD(why=siblings.unread) if siblings.unread is not None and not may_be_unread else None


def other_tags_doubt(siblings: Siblings | None) -> Fact | None:
    """Returns why a committed row does not suffice for a send: it may be of a message with another tag. None: no such
    message exists."""
    names = siblings.of_other_tags if siblings is not None else ()
    return SIBLINGS_OF_OTHER_TAGS(number=len(names), unique_keys=names[:SIBLINGS_NAMED_MAX]) if names else None


def why_not_committed(business: BusinessAnswer) -> Fact:
    """Returns why the business's answer is no commit."""
    if business.why is not None:
        return BUSINESS_UNKNOWN(why=business.why)
    return BUSINESS_ROLLED_BACK() if business.state is BusinessState.ROLLED_BACK else NO_BUSINESS_ROW()


def _youngest_first(halves: Iterable[NotedHalf], unique_keys: Collection[str]) -> tuple[str, ...]:
    found = sorted(halves, key=lambda one: (-one.stored_at_ms, one.unique_key))
    return tuple(dict.fromkeys(one.unique_key for one in found if one.unique_key in unique_keys))


def _noted(files: Iterable[CaseFile], digests: Mapping[str, bytes]) -> Iterable[NotedHalf]:
    """Yields the halves of each file, one per broker, stored when the first of the half's copies there was stored."""
    for file in files:
        of_broker: dict[str, list[StoredMessage]] = {}
        for lookup in (file.own_halves, file.own_parked):
            for copy in lookup.records if lookup is not None else ():
                of_broker.setdefault(copy.broker, []).append(copy)
        for copies in of_broker.values():
            stored_at_ms = min(copy.store_timestamp_ms for copy in copies)
            yield _half(copies[0], digests.get(file.unique_key), stored_at_ms=stored_at_ms)


def _half(copy: StoredMessage, key_digest: bytes | None, *, stored_at_ms: int) -> NotedHalf:
    return NotedHalf(
        unique_key=copy.unique_key,
        broker=copy.broker,
        key_digest=key_digest,
        tag_digest=_tag_digest(copy),
        stored_at_ms=stored_at_ms,
    )


def _tag_digest(copy: StoredMessage) -> bytes | None:
    return digest_of(copy.tag) if copy.tag else None
