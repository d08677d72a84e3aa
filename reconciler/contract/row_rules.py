"""Rules about rows that the SQL adapters and the ones in memory must share."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from reconciler.contract.tables import CandidateState, RepairState

#: A verdict never moves a candidate to a lower state: what is settled stays settled when a slower owner writes.
STATE_RANK = {CandidateState.OPEN: 0, CandidateState.QUARANTINED: 1, CandidateState.SETTLED: 2}

#: Repairs in these states are never claimed again.
FINISHED_REPAIRS = frozenset({RepairState.DONE, RepairState.FAILED})

#: The command of an act that gave a group another name: retention keeps it.
GROUP_RENAME = "group rename"
#: The command of an act that accepted a commit query: retention keeps it.
QUERY_ACCEPTANCE = "query accept"
#: The command of an act that took back what was accepted of a topic: retention keeps it.
QUERY_WITHDRAWAL = "query withdraw"

#: Bytes of a refused announcement that are kept (contract/tables.py, reconciler_quarantine.body).
QUARANTINE_BODY_BYTES = 4096

#: Characters of an explanation that are kept.
TEXT_CHARACTERS = 2_000
NAME_CHARACTERS = 160

#: Brokers of one topic that are remembered: a route of a hostile name server must not fill a table.
BROKERS_MAX = 1_000

#: A Redis in the list of a use begins so; the name of a cluster, with which a broker begins there, has no blank.
_REDIS = "Redis "


#: A row that waits for longer may be due because the database's clock was set back since it was written: it is looked
#: at whether its last change lies in the future. Few rows wait so long, so the look costs little.
USUAL_WAIT_MS = 300_000


def is_of_the_future(*, next_at_ms: int, updated_at_ms: int, now_ms: int) -> bool:
    """True if a row waits for a time that its database reaches only once the clock has caught up with a step back."""
    return updated_at_ms > now_ms and next_at_ms > now_ms + USUAL_WAIT_MS


#: No repair is put off for longer, so one that lies further ahead was put off before the clock was set back.
REPAIR_WAIT_MS_MAX = 900_000


def is_repair_due(next_at_ms: int, *, now_ms: int) -> bool:
    """True if the time of a repair has come, or lies further ahead than any repair waits."""
    return not now_ms < next_at_ms <= now_ms + REPAIR_WAIT_MS_MAX


#: No closed row is asked about after a longer pause, so one whose time lies further ahead was written before the clock
#: was set back.
ASK_AGAIN_MS_MAX = 6 * 3_600_000


def is_asked_again(ask_again_at_ms: int, *, now_ms: int) -> bool:
    """True if the time of the next question has come, or lies further ahead than any pause is long."""
    return not now_ms < ask_again_at_ms <= now_ms + ASK_AGAIN_MS_MAX


def aged_by_ms(database_ms: int, host_ms: int) -> int:
    """The time by which rows are old enough to be forgotten: database time, or the host's if that is earlier. One clock
    that jumps ahead makes nothing old."""
    return min(database_ms, host_ms)


def wait_ms(seconds: float) -> int:
    """Whole milliseconds."""
    return round(seconds * 1000)


def bounded_text(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """The text as every database can store it: no NUL (PostgreSQL refuses it), no lone surrogate, cut to length."""
    return text[:characters].replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")


def is_storable(text: str, characters: int = NAME_CHARACTERS) -> bool:
    """Whether every database keeps the text as it is: no row is asked for by another one, which is an error there."""
    return bounded_text(text, characters) == text


def storable_names(names: Iterable[str]) -> list[str]:
    """Brokers' names that every database keeps as they are, sorted, at most BROKERS_MAX."""
    return sorted(filter(is_storable, names))[:BROKERS_MAX]


def brokers_of(text: str | bytes) -> frozenset[str]:
    """The texts of a JSON list; none where it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return frozenset(found) if is_list else frozenset()


def use_text(brokers: Iterable[str], redis: str) -> str:
    """What a use of an environment keeps: its brokers and its Redis, in one JSON list.

    In one list, so that a process that writes no Redis leaves none of another one.
    """
    return json.dumps(sorted(brokers) + ([_REDIS + redis] if redis else []))


def use_of(text: str | bytes) -> tuple[frozenset[str], str]:
    """The brokers and the Redis of such a text; neither where it is something else."""
    told = brokers_of(text)
    every_redis = {one for one in told if one.startswith(_REDIS)}
    return told - every_redis, min(every_redis, default="").removeprefix(_REDIS)


def brokers_after(
    known: Mapping[str, int | None], seen: Collection[str] | None, *, now_ms: int, keep_seconds: float
) -> dict[str, int | None]:
    """Known brokers after a look at the route: name -> since when it has been missing in it, None: it is there.

    `seen` is the route; None: it is unknown. A broker that has been missing for `keep_seconds` is forgotten.
    """
    after = dict(known)
    if seen is not None:
        after = {name: now_ms if since is None else since for name, since in known.items()}
        after |= dict.fromkeys(storable_names(seen))
    too_long_ago = now_ms - wait_ms(keep_seconds)
    return {name: since for name, since in after.items() if since is None or since >= too_long_ago}


def later_end(one_ms: int | None, other_ms: int | None) -> int | None:
    """Until when a topic is held that two people hold: as long as either wants it. None: until a person lifts it."""
    return None if one_ms is None or other_ms is None else max(one_ms, other_ms)


def held_again(held_by: str, held_because: str, *, by: str, reason: str) -> str:
    """The reason of a HOLD that another person asks for, too, or the same one for another reason: the newest first.

    The same words of the same person change nothing."""
    words = f"{by}: {reason}"
    is_said = (held_by, held_because) == (by, reason) or held_because.startswith((f"{words}; ", bounded_text(words)))
    return held_because if is_said else bounded_text(f"{words}; {held_because}")
