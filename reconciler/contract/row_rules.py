"""Rules about rows that the SQL adapters share with the adapters in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from reconciler.contract.tables import CandidateState, RepairState

#: A verdict never moves a candidate to a lower state: a settled candidate stays settled even if a slower owner writes.
STATE_RANK = {CandidateState.OPEN: 0, CandidateState.QUARANTINED: 1, CandidateState.SETTLED: 2}

#: Repairs in these states are never claimed again.
FINISHED_REPAIRS = frozenset({RepairState.DONE, RepairState.FAILED})

#: The command of an act that gave a group another name. Retention keeps such an act.
GROUP_RENAME = "group rename"
#: The command of an act that accepted a commit query. Retention keeps such an act.
QUERY_ACCEPTANCE = "query accept"
#: The command of an act that withdrew the acceptance of a topic's query. Retention keeps such an act.
QUERY_WITHDRAWAL = "query withdraw"

#: Number of bytes that are kept of a refused announcement (contract/tables.py, reconciler_quarantine.body).
QUARANTINE_BODY_BYTES = 4096

#: Number of characters that are kept of an explanation.
TEXT_CHARACTERS = 2_000
NAME_CHARACTERS = 160

#: Maximum number of brokers that are remembered for one topic, because a route from a hostile name server must not fill
#: a table.
BROKERS_MAX = 1_000

#: The beginning of an entry that names a Redis, in the list of a use. An entry that names a broker begins with the name
#: of a cluster, which contains no blank.
_REDIS = "Redis "


#: If a row waits longer than this, it may have been written before the database's clock was set back. So the reader
#: checks whether the row's last change lies in the future. Few rows wait so long, so this check costs little.
USUAL_WAIT_MS = 300_000


def is_of_the_future(*, next_at_ms: int, updated_at_ms: int, now_ms: int) -> bool:
    """Returns True if a row would wait too long, because the database's clock was set back after the row was
    written."""
    return updated_at_ms > now_ms and next_at_ms > now_ms + USUAL_WAIT_MS


#: The longest wait of a repair. A time that lies further ahead was written before the clock was set back.
REPAIR_WAIT_MS_MAX = 900_000


def is_repair_due(next_at_ms: int, *, now_ms: int) -> bool:
    """Returns True if the time of a repair has come, or lies further ahead than any repair waits."""
    return not now_ms < next_at_ms <= now_ms + REPAIR_WAIT_MS_MAX


#: The longest pause before a closed row is asked about again. A time that lies further ahead was written before the
#: clock was set back.
ASK_AGAIN_MS_MAX = 6 * 3_600_000


def is_asked_again(ask_again_at_ms: int, *, now_ms: int) -> bool:
    """Returns True if the time of the next question has come, or lies further ahead than the longest pause."""
    return not now_ms < ask_again_at_ms <= now_ms + ASK_AGAIN_MS_MAX


#: A closed row is asked about a minute after its verdict, and from then on at intervals that double. So if the next
#: question lies within this time after the last change, there was none yet.
FIRST_QUESTION_MS_MAX = 90_000


def is_unreviewed(ask_again_at_ms: int | None, *, updated_at_ms: int) -> bool:
    """Returns True if no round has put the row off since its verdict, so that nobody has confirmed the absence on which
    the verdict rests. False if the verdict lies in the future, because a clock was set back."""
    return ask_again_at_ms is not None and 0 <= ask_again_at_ms - updated_at_ms < FIRST_QUESTION_MS_MAX


def aged_by_ms(database_ms: int, host_ms: int) -> int:
    """Returns the time by which the age of rows is measured before their deletion: the earlier of database time and the
    host's time. So one clock that jumps ahead ages no row."""
    return min(database_ms, host_ms)


def wait_ms(seconds: float) -> int:
    """Returns whole milliseconds."""
    return round(seconds * 1000)


def bounded_text(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """Returns the text in a form that every database can store. NUL, which PostgreSQL refuses, and lone surrogates are
    replaced. The text is cut to the length."""
    return text[:characters].replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")


def is_storable(text: str, characters: int = NAME_CHARACTERS) -> bool:
    """Returns True if every database stores the text unchanged. Do not look up rows by other texts, because some
    databases raise an error for them."""
    return bounded_text(text, characters) == text


def storable_names(names: Iterable[str]) -> list[str]:
    """Returns the broker names that every database stores unchanged. The names are sorted, and at most BROKERS_MAX."""
    return sorted(filter(is_storable, names))[:BROKERS_MAX]


def brokers_of(text: str | bytes) -> frozenset[str]:
    """Returns the texts of a JSON list. For any other text, returns an empty set."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return frozenset(found) if is_list else frozenset()


def use_text(brokers: Iterable[str], redis: str) -> str:
    """Returns the stored text of a use of an environment: its brokers and its Redis in one JSON list.

    Brokers and Redis are in one list, so that a process without a Redis does not keep the Redis of another process.
    """
    return json.dumps(sorted(brokers) + ([_REDIS + redis] if redis else []))


def use_of(text: str | bytes) -> tuple[frozenset[str], str]:
    """Returns the brokers and the Redis in the stored text of a use. Any other text has no brokers and no Redis."""
    told = brokers_of(text)
    every_redis = {one for one in told if one.startswith(_REDIS)}
    return told - every_redis, min(every_redis, default="").removeprefix(_REDIS)


def brokers_after(
    known: Mapping[str, int | None], seen: Collection[str] | None, *, now_ms: int, keep_seconds: float
) -> dict[str, int | None]:
    """Returns the known brokers after a look at the route: name -> the time since which the route lacks the broker.
    None: the route has the broker.

    `seen`: the brokers of the route. None: the route is unknown. A broker that has been missing for `keep_seconds` is
    forgotten.
    """
    after = dict(known)
    if seen is not None:
        after = {name: now_ms if since is None else since for name, since in known.items()}
        after |= dict.fromkeys(storable_names(seen))
    too_long_ago = now_ms - wait_ms(keep_seconds)
    return {name: since for name, since in after.items() if since is None or since >= too_long_ago}


def later_end(one_ms: int | None, other_ms: int | None) -> int | None:
    """Returns the later of two ends, for a hold that two persons ask for. None: the hold lasts until a person lifts the
    hold."""
    return None if one_ms is None or other_ms is None else max(one_ms, other_ms)


def held_again(held_by: str, held_because: str, *, by: str, reason: str) -> str:
    """Returns the reason of a HOLD that is asked for again: by a second person, or by the same person with another
    reason. The newest reason comes first.

    If the same person repeats the same words, nothing changes.
    """
    words = f"{by}: {reason}"
    is_said = (held_by, held_because) == (by, reason) or held_because.startswith((f"{words}; ", bounded_text(words)))
    return held_because if is_said else bounded_text(f"{words}; {held_because}")
