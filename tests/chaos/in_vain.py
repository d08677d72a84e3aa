"""Repairs that turned out superfluous: which of them could have been known to be, and their stories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tests.chaos.legs import repair_lines, verdict_lines

#: Faults that ended so long before a copy was stored still stand in its story.
BEFORE_SECONDS = 15.0
#: Stories of so many keys are told.
TOLD_MAX = 40
_COPIES = """
SELECT c.key, c.broker, c.queue, c.stored_at_ms FROM copies c WHERE c.key IN (
 SELECT key FROM copies WHERE key IN (SELECT unique_key FROM reconciler_repair WHERE attempts > 0)
 GROUP BY key HAVING count(*) > 1)
ORDER BY c.key, c.stored_at_ms
"""
#: A send is the first SENDING row of its attempt; the questions before it were asked after its claim.
_SENDS = """
SELECT DISTINCT ON (s.attempts) s.at_ms AS written,
 (SELECT min(c.at_ms) FROM repair_steps c WHERE c.key = s.key AND c.token = s.token) AS claimed
FROM repair_steps s WHERE s.key = :key AND s.state = 'SENDING' ORDER BY s.attempts, s.number
"""
_EFFECTS = "SELECT consumer_group, at_ms FROM effects WHERE key = :key ORDER BY at_ms"
_COMMITTED = "SELECT created_at_ms FROM reconciler_outbox WHERE unique_key = :key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One attempt of a repair, milliseconds of the ledger's database."""

    #: Whoever sent it asked inboxes and brokers after this ...
    claimed_ms: int
    #: ... and wrote down that he sends at this time, before a byte left.
    written_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault and when it was on, milliseconds."""

    name: str
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InVain:
    """Second copies of what was repaired."""

    #: There was a copy before the repair was claimed, so that the questions asked afterwards had to find it.
    unnecessary: int = 0
    #: The other copy came after the claim: between the question and the send, or later. Nobody can fence a broker.
    raced: int = 0
    stories: tuple[str, ...] = ()


def sort_out(stored_ms: Sequence[int], sends: Iterable[Send]) -> tuple[int, int]:
    """(unnecessary, raced) second copies of one key."""
    superfluous = max(0, len(stored_ms) - 1)
    first = min(stored_ms, default=0)
    knowable = sum(first < send.claimed_ms for send in sends)
    unnecessary = min(superfluous, knowable)
    return unnecessary, superfluous - unnecessary


def repairs_in_vain(connection: sa.Connection, blows: Sequence[Blow]) -> InVain:
    """Of the whole run."""
    copies: dict[str, list[sa.Row[tuple[str, str, int, int]]]] = {}
    for row in connection.execute(sa.text(_COPIES)):
        copies.setdefault(row.key, []).append(row)
    unnecessary = raced = 0
    stories: list[tuple[bool, str]] = []
    for key, of_key in copies.items():
        sends = [
            Send(claimed_ms=row.claimed, written_ms=row.written)
            for row in connection.execute(sa.text(_SENDS), {"key": key})
        ]
        known, unknown = sort_out([row.stored_at_ms for row in of_key], sends)
        unnecessary, raced = unnecessary + known, raced + unknown
        if len(stories) < TOLD_MAX or known:
            stories.append((not known, _story(connection, key, of_key, "unnecessary" if known else "raced", blows)))
    told = tuple(story for _, story in sorted(stories)[:TOLD_MAX])
    return InVain(unnecessary=unnecessary, raced=raced, stories=told)


def _story(
    connection: sa.Connection,
    key: str,
    copies: Sequence[sa.Row[tuple[str, str, int, int]]],
    what: str,
    blows: Sequence[Blow],
) -> str:
    since_ms = int(connection.execute(sa.text(_COMMITTED), {"key": key}).scalar_one())

    def at(ms: int) -> str:
        return f"{(ms - since_ms) / 1000:8.2f} s"

    lines = [f"  {at(row.stored_at_ms)}  copy: {row.broker} queue {row.queue}" for row in copies]
    lines += [f"  {at(row.at_ms)}  effect: {row.consumer_group}" for row in _rows(connection, _EFFECTS, key)]
    lines += verdict_lines(connection, key, since_ms) + repair_lines(connection, key, since_ms)
    until_ms = copies[-1].stored_at_ms
    lines += [
        f"  {at(blow.since_ms)}  fault: {blow.name} until {at(blow.until_ms).strip()}"
        for blow in blows
        if blow.since_ms <= until_ms and blow.until_ms >= since_ms - BEFORE_SECONDS * 1000
    ]
    return "\n".join([f"{what} second copy of {key}, times since its commit:", *sorted(lines, key=_time_of)])


def _rows(connection: sa.Connection, sql: str, key: str) -> Sequence[sa.Row[tuple[str, int]]]:
    return connection.execute(sa.text(sql), {"key": key}).all()


def _time_of(line: str) -> float:
    return float(line.split()[0])
