"""Repairs, hand-overs and closings, as a part of the ledger in memory (memory.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from reconciler.clock import Standstill
from reconciler.contract.defaults import CLAIM_LEASE_SECONDS, SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.hand_over import decode_hand_over, encode_hand_over
from reconciler.contract.row_rules import FINISHED_REPAIRS, is_repair_due, wait_ms
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.closing import Closing, KeyAsRead
from reconciler.policy.ports.ledger import Candidate, Repair, RepairChange
from reconciler.testing.memory_candidates import MemoryCandidates, MemoryRepairRows, RepairKey

_CLAIM_LEASE_MS = wait_ms(CLAIM_LEASE_SECONDS)


class MemoryRepairs:
    """Repairs and claims over a dictionary."""

    def __init__(self, rows: MemoryRepairRows) -> None:
        self._rows = rows
        self._standstill = Standstill(rows.clock)

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts a row unless one exists."""
        self.insert((environment, topic, EVERY_GROUP, unique_key), rung)

    def insert(self, key: RepairKey, rung: Rung, message: str | None = None) -> None:
        """Inserts a row unless one exists."""
        with self._rows.lock:
            if key in self._rows.repairs:
                return
            now_ms = self._rows.clock.now_ms()
            environment, topic, scope, unique_key = key
            self._rows.repairs[key] = Repair(
                environment=environment,
                topic=topic,
                scope=scope,
                unique_key=unique_key,
                state=RepairState.OPEN,
                rung=rung,
                next_at_ms=now_ms,
                created_at_ms=now_ms,
            )
            if message is not None:
                self._rows.messages[key] = message

    def of_keys(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """Returns the rows of each key, by scope."""
        with self._rows.lock:
            found: dict[str, list[Repair]] = {}
            wanted = set(unique_keys)
            for key in sorted(self._rows.repairs):
                if key[:2] == (environment, topic) and key[3] in wanted:
                    found.setdefault(key[3], []).append(self._rows.repairs[key])
            return found

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Returns due rows without a living claim."""
        with self._rows.lock:
            found = [
                row
                for key, row in self._rows.repairs.items()
                if key[:3] == (environment, topic, scope) and self._is_claimable(row)
            ]
        return sorted(found, key=lambda row: (row.next_at_ms, row.created_at_ms, row.unique_key))[:limit]

    def due_topics(self, environment: str) -> Collection[str]:
        """Returns topics with due repairs for every group."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            of = [
                row for row in self._rows.repairs.values() if (row.environment, row.scope) == (environment, EVERY_GROUP)
            ]
        return {row.topic for row in of if row.next_at_ms <= now_ms and row.state not in FINISHED_REPAIRS}

    def _is_claimable(self, row: Repair) -> bool:
        now_ms = self._rows.clock.now_ms()
        is_free = row.token is None or row.lease_until_ms is None or row.lease_until_ms < now_ms
        if not is_free and row.lease_until_ms is not None and row.lease_until_ms > now_ms + _CLAIM_LEASE_MS:
            look = (row.token, row.lease_until_ms)
            is_free = self._standstill.seconds(_key(row), look) >= CLAIM_LEASE_SECONDS
        return row.state not in FINISHED_REPAIRS and is_repair_due(row.next_at_ms, now_ms=now_ms) and is_free

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Claims the row if it is claimable."""
        with self._rows.lock:
            row = self._rows.repairs.get(_key(repair))
            if row is None or not self._is_claimable(row):
                return None
            row = replace(row, created_at_ms=self._at_most_now(row.created_at_ms))
            if row.sent_at_ms is not None:
                row = replace(row, sent_at_ms=self._at_most_now(row.sent_at_ms))
            return self._write(replace(row, token=token, lease_until_ms=self._lease_until_ms(lease_seconds)))

    def _at_most_now(self, at_ms: int) -> int:
        """Lowers a time that is ahead of both clocks to the later clock's time, as the SQL ledger does."""
        if self._rows.host_clock is None:
            return at_ms
        present_ms = max(self._rows.clock.now_ms(), self._rows.host_clock.now_ms())
        return present_ms if at_ms > present_ms + wait_ms(SKEW_MARGIN_SECONDS) else at_ms

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Changes the row if `token` holds it."""
        with self._rows.lock:
            row = self._rows.repairs.get(_key(repair))
            if row is None or row.token != token:
                return None
            now_ms = self._rows.clock.now_ms()
            is_first = change.counts_as_attempt and row.sent_at_ms is None
            is_finished = change.state in FINISHED_REPAIRS
            gives_up = change.releases or is_finished
            if change.state is RepairState.DONE:
                self._rows.messages.pop(_key(repair), None)
            answered = row if change.answer is None else self._rows.answered(row, change.answer)
            return self._write(
                replace(
                    answered,
                    state=change.state,
                    rung=change.rung,
                    token=None if gives_up else token,
                    lease_until_ms=None if gives_up else row.lease_until_ms,
                    attempts=row.attempts + change.counts_as_attempt - change.takes_back_attempt,
                    sent_at_ms=now_ms if change.counts_as_attempt else row.sent_at_ms,
                    first_sent_at_ms=now_ms if is_first else row.first_sent_at_ms,
                    done_at_ms=now_ms if change.state is RepairState.DONE else row.done_at_ms,
                    next_at_ms=now_ms + wait_ms(change.wait_seconds),
                    target=row.target if change.target is None else dict(change.target),
                )
            )

    def open_all(self, environment: str, topic: str, rungs: Mapping[str, Rung]) -> None:
        """Inserts a row per key unless one exists."""
        with self._rows.lock:
            for unique_key, rung in rungs.items():
                self.open(environment, topic, unique_key, rung=rung)

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> list[Repair | None]:
        """Claims each row that is claimable."""
        with self._rows.lock:
            return [self.claim(repair, token=token, lease_seconds=lease_seconds) for repair, token in claims]

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> list[Repair | None]:
        """Makes each change whose token holds its row."""
        with self._rows.lock:
            return [self.change(repair, change, token=token) for repair, change, token in changes]

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease of the claim."""
        with self._rows.lock:
            row = self._rows.repairs.get(_key(repair))
            if row is None or row.token != token:
                return None
            return self._write(replace(row, lease_until_ms=self._lease_until_ms(lease_seconds)))

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """Makes a row OPEN if it is FAILED, dismissed, or closed unsent."""
        with self._rows.lock:
            row = self._rows.repairs.get(_key(repair))
            now_ms = self._rows.clock.now_ms()
            is_dismissed = row is not None and row.is_dismissed and row.scope == EVERY_GROUP
            is_closed = row is not None and (row.closed_unsent or is_dismissed)
            if row is not None and is_closed and row.done_at_ms == repair.done_at_ms:
                opened = replace(row, attempts=int(is_dismissed), created_at_ms=now_ms, done_at_ms=None)
            elif row is not None and row.state is RepairState.FAILED and _sends(row) == _sends(repair):
                opened = replace(row, attempts=1)
            else:
                return False
            self._write(replace(opened, state=RepairState.OPEN, rung=rung, next_at_ms=now_ms))
            return True

    def dismiss(self, repair: Repair, *, answer: Fact | str) -> bool:
        """Makes a FAILED row DONE."""
        with self._rows.lock:
            row = self._rows.repairs.get(_key(repair))
            if row is None or row.state is not RepairState.FAILED:
                return False
            now_ms = self._rows.clock.now_ms()
            self._write(replace(self._rows.answered(row, answer), state=RepairState.DONE, done_at_ms=now_ms))
            self._rows.messages.pop(_key(repair), None)
            return True

    def _lease_until_ms(self, lease_seconds: float) -> int:
        return self._rows.clock.now_ms() + wait_ms(lease_seconds)

    def _write(self, row: Repair) -> Repair:
        self._rows.repairs[_key(row)] = row
        return row


class MemoryHandOvers:
    """Hand-over rows over a dictionary."""

    def __init__(self, rows: MemoryRepairRows, repairs: MemoryRepairs) -> None:
        self._rows = rows
        self._repairs = repairs

    def insert(
        self,
        environment: str,
        message: StoredMessage,
        *,
        groups: Sequence[str],
        content_digest: bytes | None = None,
    ) -> None:
        """Inserts one OPEN row per group. A FAILED row begins again with 0 attempts."""
        text = encode_hand_over(message, content_digest=content_digest)
        with self._rows.lock:
            for group in groups:
                key = (environment, message.real_topic, group, message.unique_key)
                known = self._rows.repairs.get(key)
                if known is not None and known.state is RepairState.FAILED:
                    now_ms = self._rows.clock.now_ms()
                    self._rows.repairs[key] = replace(known, state=RepairState.OPEN, attempts=0, next_at_ms=now_ms)
                    self._rows.messages[key] = text
                self._repairs.insert(key, Rung.HAND_OVER, text)

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """Returns the message, or None if the message was deleted."""
        with self._rows.lock:
            text = self._rows.messages.get(_key(repair))
        return None if text is None else StoredMessage.handed_over(decode_hand_over(text))

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """Makes the row DONE, and empties its message."""
        done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=answer)
        return self._repairs.change(repair, done, token=token)


class MemoryClosings:
    """Closings over the dictionaries."""

    def __init__(
        self,
        rows: MemoryRepairRows,
        candidates: MemoryCandidates,
        repairs: MemoryRepairs,
        hand_overs: MemoryHandOvers,
    ) -> None:
        self._rows = rows
        self._candidates = candidates
        self._repairs = repairs
        self._hand_overs = hand_overs

    def hand_over(
        self, read: KeyAsRead, message: StoredMessage, *, group: str, content_digest: bytes | None = None
    ) -> bool:
        """Inserts the row if the key's rows are unchanged since they were read. Does both in one step under the
        lock."""
        with self._rows.lock:
            if self._is_as_read(read):
                self._hand_overs.insert(read.environment, message, groups=[group], content_digest=content_digest)
                return True
            return False

    def cancel(self, read: KeyAsRead, *, group: str) -> bool:
        """Deletes the unclaimed OPEN row if the key's rows are unchanged since they were read. Does both in one step
        under the lock."""
        key = (read.environment, read.topic, group, read.unique_key)
        with self._rows.lock:
            row = self._rows.repairs.get(key)
            is_free = row is not None and (row.token is None or (row.lease_until_ms or 0) < self._rows.clock.now_ms())
            if row is None or row.state is not RepairState.OPEN or not is_free or not self._is_as_read(read):
                return False
            del self._rows.repairs[key]
            self._rows.messages.pop(key, None)
            return True

    def last_taken_ms(self, environment: str, topic: str, *, group: str) -> int | None:
        """Returns the time of the latest attempt of the group's rows."""
        place = (environment, topic, group)
        with self._rows.lock:
            rows = [row for row in self._rows.repairs.values() if (row.environment, row.topic, row.scope) == place]
            return max((row.sent_at_ms for row in rows if row.sent_at_ms is not None), default=None)

    def _is_as_read(self, read: KeyAsRead) -> bool:
        candidates, repairs = self._rows_of(read)
        return read.still_holds(list(candidates.values()), repairs)

    def close(self, closing: Closing) -> bool:
        """Closes the key in one step under the lock, or changes nothing."""
        key = closing.unique_key
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            place = (closing.environment, closing.topic)
            candidates, repairs = self._rows_of(closing)
            if not closing.still_holds(list(candidates.values()), repairs):
                return False
            if self.claimed(closing) is not None:
                return False
            for scope in sorted(closing.scopes):
                self._repairs.insert((*place, scope, key), Rung.END if scope == EVERY_GROUP else Rung.HAND_OVER)
                row = self._rows.repairs[*place, scope, key]
                if row.state is not RepairState.DONE:
                    free = replace(self._rows.answered(row, closing.answer), token=None, lease_until_ms=None)
                    self._rows.repairs[_key(row)] = replace(free, state=RepairState.DONE, done_at_ms=now_ms)
                    self._rows.messages.pop(_key(row), None)
            for owner, entry in closing.verdicts.items():
                shard = Shard(subscription=owner, number=candidates[owner].shard)
                self._candidates.record(shard, [entry])
        return True

    def take_back(self, closing: Closing) -> bool:
        """Takes the dismissal back in one step under the lock, or changes nothing."""
        with self._rows.lock:
            candidates, repairs = self._rows_of(closing)
            are_dismissed = all(owner in candidates and candidates[owner].is_dismissed for owner in closing.verdicts)
            if not (closing.still_holds(list(candidates.values()), repairs) and are_dismissed):
                return False
            for row in repairs:
                if row.scope in closing.scopes and row.is_made_by_dismissal:
                    del self._rows.repairs[_key(row)]
                elif row.scope in closing.scopes and row.is_dismissed:
                    again = self._rows.answered(row, closing.answer)
                    self._rows.repairs[_key(row)] = replace(again, state=RepairState.FAILED, done_at_ms=None)
            for owner, entry in closing.verdicts.items():
                self._candidates.wake_dismissed(owner, [entry])
        return True

    def _rows_of(self, closing: KeyAsRead) -> tuple[dict[Subscription, Candidate], Sequence[Repair]]:
        key, place = closing.unique_key, (closing.environment, closing.topic)
        candidates = {
            owner: row
            for (owner, of_key), row in self._rows.candidates.items()
            if (of_key, owner.environment, owner.topic) == (key, *place)
        }
        return candidates, self._repairs.of_keys(*place, [key]).get(key, ())

    def claimed(self, closing: Closing) -> Repair | None:
        """Returns the claimed row with the first scope."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            found = self._repairs.of_keys(closing.environment, closing.topic, [closing.unique_key])
            ours = [row for row in found.get(closing.unique_key, ()) if row.scope in closing.scopes]
            return next((r for r in ours if r.token is not None and (r.lease_until_ms or 0) >= now_ms), None)


def _sends(repair: Repair) -> tuple[int, int | None]:
    return repair.attempts, repair.sent_at_ms


def _key(repair: Repair) -> RepairKey:
    return (repair.environment, repair.topic, repair.scope, repair.unique_key)
