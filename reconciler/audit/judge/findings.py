"""Findings: Python rows for the few keys that people look at. Each finding has the facts that made its rule match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.audit.judge.facts import NEVER, CodedRows, GroupFacts, TopicFacts, flagged
from reconciler.audit.judge.group import GroupRows
from reconciler.audit.judge.keys import Codes, KeyLayout, Longs, Words
from reconciler.audit.judge.rows import NULL, Vocabulary
from reconciler.audit.result.classes import LISTED, NUMBERS, KeyClass
from reconciler.audit.result.values import EvidenceValue
from reconciler.contract.tables import OutboxState

_LISTED_NUMBERS = np.array(sorted(NUMBERS[name] for name in KeyClass if name in LISTED), np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """Finding of one prefix. `subscription` is the subscription's place in the plan."""

    subscription: int
    number: int
    key: bytes
    evidence: dict[str, EvidenceValue]


def listed_codes(classes: npt.NDArray[np.uint8], words: Words, layout: KeyLayout, findings_max: int) -> Codes:
    """Lists codes of keys in listed classes, sorted by class and key. Only the first codes are kept."""
    codes = np.flatnonzero(np.isin(classes, _LISTED_NUMBERS)).astype(np.int32)
    columns: list[npt.NDArray[Any]] = [*reversed(layout.ordered(words[codes])), classes[codes]]
    order = np.lexsort(columns)
    first: Codes = codes[order[:findings_max]]
    return first


class EvidenceOf:
    """Evidence of some keys of one subscription."""

    def __init__(self, topic: TopicFacts, rows: GroupRows, facts: GroupFacts, vocabulary: Vocabulary) -> None:
        self._topic = topic
        self._rows = rows
        self._facts = facts
        self._vocabulary = vocabulary

    def of(self, codes: Codes, classes: npt.NDArray[np.uint8], as_of_ms: int) -> list[dict[str, EvidenceValue]]:
        """Makes one dict per code, in the order of the codes. Unknown facts are left out."""
        wanted = flagged(codes, self._topic.size)
        found: dict[int, dict[str, Any]] = {int(code): {} for code in codes}
        self._outbox(found, wanted)
        self._inbox(found, wanted)
        self._candidate(found, wanted)
        self._repair(found, wanted)
        self._left(found, wanted)
        for code, evidence in found.items():
            self._times(code, evidence)
            evidence["as_of_ms"] = as_of_ms
            if classes[code] == NUMBERS[KeyClass.REPAIR_DIFFERS]:
                evidence["outbox_digest"] = _smallest_digest(self._topic.commits, code)
                evidence["inbox_digest"] = _smallest_digest(self._rows.inbox, code)
        return [
            {name: value for name, value in found[int(code)].items() if value is not None} for code in codes.tolist()
        ]

    def _records(
        self, coded: CodedRows, wanted: npt.NDArray[np.bool_], *columns: str
    ) -> Iterable[tuple[int, list[Any]]]:
        """Reads code and columns of each wanted row, sorted, so that the order of reading changes nothing."""
        rows = np.flatnonzero(wanted[coded.codes]) if len(coded.codes) else np.empty(0, np.intp)
        values: list[list[Any]] = []
        for column in columns:
            if column in coded.rows.names:
                values.append([self._vocabulary.name(number) for number in coded.rows.names[column][rows].tolist()])
            else:
                values.append([None if n == NULL else n for n in coded.rows.times[column][rows].tolist()])
        records = [(code, [value[place] for value in values]) for place, code in enumerate(coded.codes[rows].tolist())]
        return sorted(records, key=lambda record: (record[0], [(v is not None, v) for v in record[1]]))

    def _outbox(self, found: dict[int, dict[str, Any]], wanted: npt.NDArray[np.bool_]) -> None:
        """Adds the earliest committed row of the outbox, or the earliest tombstone if no row is committed."""
        records = self._records(self._topic.outbox, wanted, "created_at_ms", "state", "producer_group", "tag")
        for is_ended in (True, False):
            for code, (created_at, state, producer_group, tag) in reversed(list(records)):
                if (state == OutboxState.ROLLED_BACK) is is_ended:
                    found[code].update(
                        committed_at_ms=None if is_ended else created_at,
                        rolled_back_at_ms=created_at if is_ended else None,
                        outbox_state=state,
                        producer_group=producer_group,
                        tag=tag,
                    )

    def _inbox(self, found: dict[int, dict[str, Any]], wanted: npt.NDArray[np.bool_]) -> None:
        for code, (applied_at, source) in reversed(
            list(self._records(self._rows.inbox, wanted, "applied_at_ms", "source"))
        ):
            found[code].update(applied_at_ms=applied_at, source=source)

    def _candidate(self, found: dict[int, dict[str, Any]], wanted: npt.NDArray[np.bool_]) -> None:
        """Adds the candidate's newest row."""
        names = ("updated_at_ms", "state", "verdict", "loss_verdict", "first_seen_ms")
        for code, (_, state, verdict, loss_verdict, first_seen) in self._records(self._rows.candidate, wanted, *names):
            found[code].update(
                candidate_state=state, verdict=verdict, loss_verdict=loss_verdict, first_seen_ms=first_seen
            )

    def _repair(self, found: dict[int, dict[str, Any]], wanted: npt.NDArray[np.bool_]) -> None:
        """Adds the repair with the most sends. An older row of the same repair may have the time of the first send."""
        names = ("attempts", "scope", "rung", "state", "created_at_ms")
        for code, (attempts, scope, rung, state, created_at) in self._records(self._rows.repair, wanted, *names):
            found[code].update(
                repair_scope=scope,
                repair_rung=rung,
                repair_state=state,
                repair_attempts=attempts,
                repair_created_at_ms=created_at,
            )

    def _left(self, found: dict[int, dict[str, Any]], wanted: npt.NDArray[np.bool_]) -> None:
        for code, (left_at, reason) in reversed(list(self._records(self._rows.left, wanted, "at_ms", "reason"))):
            found[code].update(left_at_ms=left_at, left_reason=reason)

    def _times(self, code: int, evidence: dict[str, Any]) -> None:
        facts = self._facts
        evidence["announced_at_ms"] = _known(facts.announced_at, code)
        if facts.committed[code] and facts.key_time[code] != facts.created_at[code]:
            evidence["counted_at_ms"] = int(facts.key_time[code])
        evidence["consumed_at_ms"] = _known(facts.consumed_at, code)
        sends = [int(sent[code]) for sent in facts.repair.first_sent if sent[code] != NEVER]
        evidence["repair_first_sent_ms"] = max(sends, default=None)
        evidence["effects"] = None if facts.effects[code] == NULL else int(facts.effects[code])
        evidence["snapshot_at_ms"] = None if facts.looked_at[code] < 0 else int(facts.looked_at[code])


def _known(times: Longs, code: int) -> int | None:
    return None if times[code] == NEVER else int(times[code])


def _smallest_digest(coded: CodedRows, code: int) -> str | None:
    if coded.rows.digests is None:
        return None
    words, there = coded.rows.digests
    rows = np.flatnonzero((coded.codes == code) & there)
    return min((words[row].tobytes().hex() for row in rows), default=None)
