"""What one process sees of outboxes and inboxes: the evidence ports by SELECT only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway
from reconciler.evidence import InboxRow, Lookup, OutboxRow, Presence, WitnessAnswer
from tests.simulation.inbox_database import InboxDatabase
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import OutboxDatabase


class OutboxSeen:
    """ports.OutboxEvidence of one process."""

    def __init__(self, process: Process, databases: Sequence[OutboxDatabase]) -> None:
        self._process = process
        self._databases = databases

    def is_configured(self, topic: str) -> bool:
        return True

    def read(self, topic: str, not_before_ms: Mapping[str, int]) -> Mapping[str, Lookup[OutboxRow]]:
        unique_keys = list(not_before_ms)
        rows: dict[str, list[OutboxRow]] = {key: [] for key in unique_keys}
        answers: list[WitnessAnswer] = []
        for database in self._databases:
            try:
                found = database.link.call(
                    self._process, partial(database.shown, unique_keys), DatabaseAway, what="SELECT outbox"
                )
                for row in found:
                    if row.topic == topic:
                        rows[row.unique_key].append(row)
                presence = Presence.ABSENT
            except DatabaseAway:
                presence = Presence.UNKNOWN
            answers.append(WitnessAnswer(witness=database.name, presence=presence, detail=""))
        unknown = any(answer.presence is Presence.UNKNOWN for answer in answers)
        missing = Presence.UNKNOWN if unknown else Presence.ABSENT
        return {
            key: Lookup(
                presence=Presence.FOUND if found else missing, records=tuple(found), answers=tuple(answers)
            )
            for key, found in rows.items()
        }  # fmt: skip


class InboxSeen:
    """ports.InboxEvidence of one process."""

    def __init__(self, process: Process, databases: Mapping[str, InboxDatabase]) -> None:
        self._process = process
        self._databases = databases

    def is_configured(self, subscription: Subscription) -> bool:
        return True

    def _call(self, subscription: Subscription, act: Callable[[InboxDatabase], Any]) -> Any:
        database = self._databases[subscription.group]
        self._process.asked_inbox_at = self._process.kernel.now
        return database.link.call(self._process, lambda: act(database), DatabaseAway, what="SELECT inbox")

    def read(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        group = subscription.group
        try:
            rows = self._call(subscription, lambda database: {k: database.rows.get(k) for k in unique_keys})
        except DatabaseAway as error:
            return {key: Lookup.unknown(f"inbox of {group}", str(error)) for key in unique_keys}
        answers: dict[str, Lookup[InboxRow]] = {}
        for key, row in rows.items():
            presence = Presence.ABSENT if row is None else Presence.FOUND
            answer = WitnessAnswer(witness=f"inbox of {group}", presence=presence, detail="")
            records = () if row is None else (_inbox_row(row),)
            answers[key] = Lookup(presence=presence, records=records, answers=(answer,))
        return answers

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        def page(database: InboxDatabase) -> list[InboxRow]:
            places = sorted(
                (row["applied_at_ms"], key) for key, row in database.rows.items() if row["applied_at_ms"] >= since_ms
            )
            chosen = [place for place in places if after is None or place > after][:limit]
            return [_inbox_row(database.rows[key]) for _, key in chosen]

        found: list[InboxRow] = self._call(subscription, page)
        return found

    def newest_ms(self, subscription: Subscription) -> int | None:
        newest: int | None = self._call(
            subscription, lambda database: max((row["applied_at_ms"] for row in database.rows.values()), default=None)
        )
        return newest


def _inbox_row(row: Mapping[str, Any]) -> InboxRow:
    return InboxRow(
        group=row["consumer_group"],
        unique_key=row["unique_key"],
        topic=row["topic"],
        content_digest=row["content_digest"],
        source=row["source"],
        applied_at_ms=row["applied_at_ms"],
        duplicate_of=row["duplicate_of"],
    )
