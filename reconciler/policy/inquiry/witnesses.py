"""The only place that asks outboxes, inboxes, ledger and brokers about keys, for verdicts and for repairs.

Inbox and outbox are asked for up to 500 keys at once. Each round or pass first reads the groups' positions and then
proves the index horizon, both once and before any look-up whose "not found" counts. The horizon is proved again before
a send by a row of the business, because that row took time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from reconciler.contract.answers import MISSING
from reconciler.contract.tables import EVERY_GROUP, is_former_name_of_another
from reconciler.policy.evidence import InboxRow, Lookup, Presence, QueuePosition, StoredMessage
from reconciler.policy.inquiry.business import BusinessWitness
from reconciler.policy.inquiry.case_file import CaseFile, F, HalfAge, Question
from reconciler.policy.inquiry.delivery import newest_per_broker
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.asked import Asked, heard, known
from reconciler.policy.ports.evidence import (
    BrokerEvidence,
    BusinessQueries,
    HalfReading,
    Horizon,
    InboxEvidence,
    OutboxEvidence,
)
from reconciler.policy.ports.ledger import NotedHalves, Repairs

A = TypeVar("A")
_NO_ANSWER = MISSING()
_MISSING = Lookup[InboxRow].unknown("inbox", _NO_ANSWER)


class BrokerSnapshot:
    """The answers of brokers that one round or pass needs only once: positions, and then the horizon. Look-ups are
    counted here. Only one thread uses a snapshot."""

    def __init__(
        self, brokers: BrokerEvidence, topic: str, plans: Sequence[SubscriptionPlan], *, now_ms: int | None = None
    ) -> None:
        """`now_ms`: Redis TIME of the round. None: a person asks, or a repair does."""
        self._brokers = brokers
        self._topic = topic
        self._plans = plans
        self.now_ms = now_ms
        self._positions: dict[str, Sequence[QueuePosition] | None] = {}
        self._horizon: Horizon | None = None
        self.look_ups = 0

    def horizon(self) -> Horizon:
        """Returns the index horizon."""
        return self._positions_then_horizon()[1]

    def horizon_now(self) -> Horizon:
        """Proves the horizon again, so that messages since the start of the round or pass count, too."""
        horizon = self._brokers.horizon(self._topic)
        self.look_ups += max(1, len(horizon.at_ms))
        return horizon

    def positions(self) -> Mapping[str, Sequence[QueuePosition] | None]:
        """Returns group -> the group's offsets. None: a broker did not answer."""
        return self._positions_then_horizon()[0]

    def _positions_then_horizon(self) -> tuple[Mapping[str, Sequence[QueuePosition] | None], Horizon]:
        """Reads positions and then the horizon. In this order, the retry copy of a message that a group has passed lies
        below the horizon."""
        if self._horizon is None:
            for plan in self._plans:
                self._positions[plan.group] = self._brokers.positions(plan.subscription)
            self._horizon = self._brokers.horizon(self._topic)
            # The look-ups of the probe on every broker count, too.
            self.look_ups += max(1, len(self._horizon.at_ms))
        return self._positions, self._horizon

    @property
    def broker_times_ms(self) -> Sequence[int]:
        """Times of the brokers' own clocks. Empty if the brokers were not asked."""
        return list(self._horizon.at_ms.values()) if self._horizon is not None else []

    def count(self, lookup: Lookup[StoredMessage]) -> None:
        """Counts one QUERY_MESSAGE for each broker that answered."""
        self.look_ups += max(1, len(lookup.answers))


class Witnesses:
    """Adds answers to case files. Holds no state between calls."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        repairs: Repairs,
        queries: BusinessQueries | None = None,
        halves: NotedHalves | None = None,
        reading: HalfReading | None = None,
        check_back_wait_seconds: float | None = None,
    ) -> None:
        """`queries` and `halves` are None if no topic's commits are proved by a query. `reading` reads half queues for
        messages that are to be sent. `check_back_wait_seconds`: how long a half is left to the broker's check-back.
        None: as long as the broker says."""
        self._brokers = brokers
        self._outbox = outbox
        self._inbox = inbox
        self._repairs = repairs
        self._business = BusinessWitness(queries, halves, reading)
        self._check_back_wait_seconds = check_back_wait_seconds

    def settle(
        self, files: Sequence[F], decide: Callable[[F], Question | A], snapshot: BrokerSnapshot
    ) -> list[tuple[F, A]]:
        """Asks one question after the other until each file is decided. Returns the files with their decisions, in the
        same order."""
        undecided = dict(enumerate(files))
        decided: dict[int, tuple[F, A]] = {}
        while undecided:
            asked: dict[Question, list[int]] = {}
            for place, file in undecided.items():
                answer = decide(file)
                if isinstance(answer, Question):
                    asked.setdefault(answer, []).append(place)
                else:
                    decided[place] = (file, answer)
            undecided = {
                place: file
                for question, places in asked.items()
                for place, file in zip(
                    places, self.ask(question, [undecided[p] for p in places], snapshot), strict=True
                )
            }
        return [decided[place] for place in range(len(files))]

    def ask(self, question: Question, files: Sequence[F], snapshot: BrokerSnapshot) -> list[F]:
        """Returns the files with one more answer each, in the same order."""
        match question:
            case Question.INBOX | Question.INBOX_AGAIN:
                return self.ask_inboxes(files, question)
            case Question.OUTBOX:
                return self.ask_outboxes(files)
            case Question.COMMIT_QUERY:
                return self._business.answer(files)
            case Question.EFFECT_QUERY:
                return self._business.answer_effects(files)
            case Question.HAND_OVERS:
                return self._ask_hand_overs(files)
            case Question.NOTED_HALVES:
                return self._business.look_for_notes(files)
            case _:
                return self._ask_brokers(question, files, snapshot)

    def ask_inboxes(self, files: Sequence[F], question: Question = Question.INBOX) -> list[F]:
        """Asks the inbox of every group that the question is about, with one statement per group.

        If an effect is looked for again, it may be recorded under a former name, which only the committed copies show.
        """
        is_again = question is Question.INBOX_AGAIN
        former = [file.former_names if is_again else {} for file in files]
        asked = [file.plans_asked(question) for file in files]
        read = {
            plan.group: self._inbox.look_up(
                plan.subscription,
                [
                    key
                    for file, names, plans in zip(files, former, asked, strict=True)
                    if plan in plans
                    for key in (file.unique_key, *names)
                ],
            )
            for plan in dict.fromkeys(plan for plans in asked for plan in plans)
        }
        return [
            file.with_group_answers(
                "inbox_again" if is_again else "inbox",
                {p.group: _effect(read[p.group], file.unique_key, names) for p in plans},
            )
            for file, names, plans in zip(files, former, asked, strict=True)
        ]

    def ask_outboxes(self, files: Sequence[F]) -> list[F]:
        """Asks for all outbox rows with one statement per topic. All files are of one topic."""
        not_before_ms = {file.unique_key: file.not_before_ms(Question.OUTBOX) for file in files}
        now_ms = next((file.redis_now_ms for file in files), None)
        read = self._outbox.look_up(files[0].topic.topic, not_before_ms, now_ms=now_ms) if files else {}
        return [replace(f, outbox=read.get(f.unique_key) or Lookup.unknown("outbox", _NO_ANSWER)) for f in files]

    def ask_business(self, files: Sequence[F]) -> list[F]:
        """Asks the business's tables for the rows whose keys are in the halves that brokers show. Without a half,
        nothing is known about a row."""
        found = self.find_halves(files)
        shown = [file for file in found if file.key_copy is not None]
        asked = {file.unique_key: file for file in self._business.answer(shown)} if shown else {}
        return [asked.get(file.unique_key, file) for file in found]

    def ask_effects(self, files: Sequence[F]) -> list[F]:
        """Asks again for effects that were missing: inboxes by the keys, and effect queries by the keys in the halves
        that brokers show."""
        if not any(file.plans_asked(Question.EFFECT_QUERY) for file in files):
            return self.ask_inboxes(files)
        return self._business.answer_effects(self.find_halves(files))

    def find_halves(self, files: Sequence[F]) -> list[F]:
        """Adds the halves that brokers show. The brokers' index is not proved here, so a missing half proves
        nothing."""
        unproved = Horizon(at_ms={})

        def ask(file: F) -> Asked[Lookup[StoredMessage]]:
            not_before_ms = file.not_before_ms(Question.HALF_COPIES)
            return self._brokers.half_copies(
                file.topic.topic, file.unique_key, horizon=unproved, not_before_ms=not_before_ms, outbox=file.row
            )

        return [replace(f, halves=halves) for f, halves in zip(files, heard(ask, files), strict=True)]

    def _ask_hand_overs(self, files: Sequence[F]) -> list[F]:
        topic = files[0].topic
        read = self._repairs.of_keys(topic.environment, topic.topic, [file.unique_key for file in files])
        return [
            replace(f, hand_overs=[row for row in read.get(f.unique_key, ()) if row.scope != EVERY_GROUP])
            for f in files
        ]

    def _ask_brokers(self, question: Question, files: Sequence[F], snapshot: BrokerSnapshot) -> list[F]:
        # Positions and horizon are read once, before any look-up.
        horizon, positions = snapshot.horizon(), snapshot.positions()
        if any(file.is_asked_of_now(question) for file in files):
            horizon = snapshot.horizon_now()
        answered: list[F] = []
        for file, lookups in heard(lambda file: self._asked(question, file, horizon), files):
            for lookup in lookups:
                snapshot.count(lookup)
            is_placed = question is Question.COMMITTED_COPIES
            answered.append(file.with_group_answers("positions", positions) if is_placed else file)
        if question is Question.COMMITTED_COPIES:
            self._business.note_delivered(answered)
        return answered

    def _asked(self, question: Question, file: F, horizon: Horizon) -> Asked[tuple[F, Sequence[Lookup[StoredMessage]]]]:
        """Returns one more answer of brokers, and the look-ups behind the answer. Facts about groups and brokers are
        asked for only when they are needed, because most of them are known already."""
        topic, key, not_before_ms = file.topic.topic, file.unique_key, file.not_before_ms(question)
        match question:
            case Question.COMMITTED_COPIES | Question.COPIES_AGAIN:
                copies = self._brokers.committed_copies(topic, key, horizon=horizon, not_before_ms=not_before_ms)
                return partial(_with_copies, question, file, copies)
            case Question.HALF_COPIES:
                halves = self._brokers.half_copies(
                    topic, key, horizon=horizon, not_before_ms=not_before_ms, outbox=file.row
                )
                return partial(_with_copies, question, file, halves)
            case Question.PARKED_COPIES:
                parked = self._brokers.parked_copies(topic, key, horizon=horizon, not_before_ms=not_before_ms)
                return partial(_with_copies, question, file, parked)
            case Question.MESSAGES_OF_KEY if file.key_word is not None:
                named = self._brokers.messages_of_key(
                    topic, file.key_word, horizon=horizon, not_before_ms=not_before_ms
                )
                return partial(_with_copies, question, file, named)
            case Question.MESSAGES_OF_KEY:
                return partial(_with_copies, question, file, known(Lookup(presence=Presence.ABSENT)))
            case Question.SIBLING_COPIES:
                of_siblings = [
                    self._brokers.committed_copies(topic, one, horizon=horizon, not_before_ms=not_before_ms)
                    for one in file.followed_siblings
                ]
                return partial(_with_sibling_copies, file, of_siblings)
            case Question.GROUP_COPIES:
                of_group = {
                    plan.group: self._brokers.group_copies(plan.subscription, key, horizon=horizon)
                    for plan in file.plans_asked(question)
                }
                return partial(_with_group_copies, file, of_group)
            case _:
                return lambda: (self._with_standing(question, file, horizon), ())

    def _with_standing(self, question: Question, file: F, horizon: Horizon) -> F:
        match question:
            case Question.CONSUME_MODE:
                found = {p.group: self._brokers.consume_mode(p.subscription) for p in file.plans_asked(question)}
                return file.with_group_answers("consume_mode", found)
            case Question.PRODUCERS:
                halves = newest_per_broker(file.own_halves.records if file.own_halves is not None else ())
                return replace(file, producers={of: self._brokers.producers_of(half) for of, half in halves.items()})
            case Question.FILTER_KIND:
                kinds = {plan.group: self._brokers.filter_kind(plan.subscription) for plan in file.plans}
                return file.with_group_answers("filter_kind", kinds)
            case _:
                return replace(file, check_back=self._half_age(file, horizon))

    def _half_age(self, file: CaseFile, horizon: Horizon) -> HalfAge:
        halves = file.own_halves.records if file.own_halves is not None else ()
        newest = halves[-1]
        # Put-back copies have new store times, so the age is that of the first copy, by its broker's clock. A broker
        # without a horizon did not prove its time, so its half counts as just stored.
        now_ms = horizon.at_ms.get(newest.broker, 0)
        wait = self._check_back_wait_seconds
        age = HalfAge(
            age_seconds=max(0.0, (now_ms - min(copy.store_timestamp_ms for copy in halves)) / 1000),
            wait_seconds=self._brokers.check_back_wait_seconds(newest) if wait is None else wait,
            rollback_evident_after_seconds=self._brokers.rollback_evident_after_seconds(newest),
        )
        if not age.looks_rolled_back(halves):
            return age
        return replace(age, is_past_check=self._brokers.is_past_check(newest))


def _with_copies(
    question: Question, file: F, asked: Asked[Lookup[StoredMessage]]
) -> tuple[F, Sequence[Lookup[StoredMessage]]]:
    found = asked()
    match question:
        case Question.COMMITTED_COPIES:
            return replace(file, copies=found), (found,)
        case Question.COPIES_AGAIN:
            return replace(file, copies_again=found), (found,)
        case Question.HALF_COPIES:
            return replace(file, halves=found), (found,)
        case Question.MESSAGES_OF_KEY:
            return replace(file, of_key=found), (found,)
        case _:
            return replace(file, parked=found), (found,)


def _with_sibling_copies(
    file: F, asked: Sequence[Asked[Lookup[StoredMessage]]]
) -> tuple[F, Sequence[Lookup[StoredMessage]]]:
    """Adds an answer about all siblings: FOUND if any of them has a copy, ABSENT only if none has."""
    found = [one() for one in asked]
    by_weight = sorted(found, key=lambda one: (not one.is_found, not one.is_unknown))
    return replace(file, sibling_copies=by_weight[0]), found


def _with_group_copies(
    file: F, of_group: Mapping[str, Asked[Mapping[str, Lookup[StoredMessage]]]]
) -> tuple[F, Sequence[Lookup[StoredMessage]]]:
    found = {group: asked() for group, asked in of_group.items()}
    return file.with_group_answers("copies", found), [one for copies in found.values() for one in copies.values()]


def _is_of_message(unique_key: str, digest: bytes, row: InboxRow) -> bool:
    """Returns True if a row under a former name belongs to this message. Two messages with the same content may share
    that name."""
    if is_former_name_of_another(unique_key, topic=row.topic, duplicate_of=row.duplicate_of):
        return False
    return row.content_digest is None or row.content_digest == digest


def _effect(
    answers: Mapping[str, Lookup[InboxRow]], unique_key: str, former_names: Mapping[str, bytes]
) -> Lookup[InboxRow]:
    """Returns the effect under the key or under one of its former names. ABSENT only if no name has an effect.

    A broker whose store was replaced assigns offsets again, and so these names, too. So a row with another digest, or
    with another key, is of another message. Rows of this release contain the key.
    """
    found = [answers.get(unique_key) or _MISSING]
    if found[0].incomplete is not None:
        return found[0]  # the row under the former name is complete and says nothing about the handler
    for name, digest in former_names.items():
        found.append((answers.get(name) or _MISSING).only(partial(_is_of_message, unique_key, digest)))
    effect = next((one for one in found if one.is_found), None)
    return effect or next((one for one in found if one.is_unknown), found[0])
