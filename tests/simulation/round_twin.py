"""The round's Lua script (reconciler/shards/round.lua) once more in Python: by Lua, its 40 commands cost
more than the rest of the round. test_round_twin.py compares the two on thousands of drawn shards.

Only for the text whose hash known_scripts.py tells, and only where no history is kept: all else is run by Lua.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.redis_data import RedisData

_PROOF, _PROOFS = re.compile(rb"(\d+) .*"), re.compile(rb"proofs \d+")
_LAST = re.compile(rb" (\d+)$")
_QUEUE, _OFFSET = re.compile(rb"[^\n]*/\d+"), re.compile(rb"\d+")


def round_twin(data: RedisData, keys: list[str], arguments: list[Any]) -> list[Any] | None:
    """What the script answers; None: there is a history to be kept, ask Lua."""
    epoch, expected, lowest, h, x, kept, _, chunk, covered_max, ahead_max = arguments
    if int(kept):
        return None
    run, values = data.commands, data.values
    epoch_key, generation, pending, new, taken, offsets, covered, proofs = keys[:8]
    half, matched, commit = keys[8 : 9 + x], keys[9 + x : 10 + 2 * x], keys[10 + 2 * x : 11 + 2 * x + h]
    if run["GET"](epoch_key) != str(epoch).encode() or (run["GET"](generation) or b"0") != str(expected).encode():
        return [b"moved"]
    for kind, names in (
        (b"zset", [pending]), (b"set", [new]), (b"hash", [taken, offsets, covered, proofs]), (b"set", half),
        (b"zset", matched), (b"set", commit),
    ):  # fmt: skip
        for name in names:
            found = run["TYPE"](name)
            if found not in (b"none", kind):
                return [b"wrong", name.encode(), found, kind]

    at, clock, is_damaged = _times(data, int(lowest), pending, covered, ahead_max)
    before, announced = len(values.get(pending) or ()), len(values.get(half[0]) or ())
    fresh = run["SDIFFSTORE"](new, half[0], *commit)
    added = _add(data, pending, new, clock, chunk)
    if clock != at or is_damaged:
        _date_back(data, pending, clock, chunk)
    late = run["ZINTERSTORE"](matched[0], 2, pending, commit[0], "WEIGHTS", 1, 0)
    if late * 2 > before + added:
        run["ZDIFFSTORE"](pending, 2, pending, matched[0])
    elif late:
        members = [member for _, member in sorted((score, member) for member, score in values[matched[0]].items())]
        for first in range(0, late, chunk):
            run["ZREM"](pending, *members[first : first + chunk])

    run["UNLINK"](commit[h])
    for older, younger in zip(commit[h:0:-1], commit[h - 1 :: -1], strict=True):
        if values.get(younger):
            run["RENAME"](younger, older)
    run["UNLINK"](*matched, *half, new, taken)
    floor = _floor(data, int(expected) + 1, at, (pending, offsets, covered, proofs), int(covered_max))
    after = len(values.get(pending) or ())
    ran = [announced, fresh, before, added, late, after, run["INCRBY"](generation, 1)]
    oldest = min((values.get(pending) or {}).values(), default=None)
    offsets_now = [word for pair in run["HGETALL"](offsets).items() for word in pair]
    return [b"ran", *ran, b"%d" % at, b"%d" % clock, *floor, b"" if oldest is None else b"%d" % oldest, offsets_now]


def _times(data: RedisData, lowest: int, pending: str, covered: str, ahead_max: int) -> tuple[int, int, bool]:
    """The round's time in ms (no key and no earlier round is younger), the time by which keys age, and whether a key
    has a time that no clock tells.
    """
    seconds, microseconds = data.commands["TIME"]()
    youngest = max((data.values.get(pending) or {}).values(), default=0)
    is_damaged = youngest > 2**53
    if is_damaged:
        youngest = 0
    last = _LAST.search(data.commands["HGET"](covered, "last") or b"")
    after_last = int(last.group(1)) + 1 if last is not None else 0
    clock = int(seconds) * 1000 + int(microseconds) // 1000
    at = max(lowest, clock, int(youngest), after_last)
    return at, at if at <= clock + ahead_max else clock, is_damaged


def _date_back(data: RedisData, pending: str, clock: int, chunk: int) -> None:
    scores: dict[bytes, float] = data.values.get(pending) or {}
    for _ in range(10):
        youngest = sorted((score, member) for member, score in scores.items())[-chunk:]
        ahead = [member for score, member in youngest if score > clock]
        if not ahead:
            return
        data.commands["ZADD"](pending, *[word for member in ahead for word in (clock, member)])


def _add(data: RedisData, pending: str, new: str, at: int, chunk: int) -> int:
    fresh: set[bytes] = data.values.get(new) or set()
    before = len(data.values.get(pending) or ())
    if before * 2 < len(fresh):
        words = (2, pending, new, "WEIGHTS", 1, at, "AGGREGATE", "MIN")
        return int(data.commands["ZUNIONSTORE"](pending, *words)) - before
    added = 0
    members = sorted(fresh)
    for first in range(0, len(members), chunk):
        scored = [word for member in members[first : first + chunk] for word in (at, member)]
        added += int(data.commands["ZADD"](pending, "NX", *scored))
    return added


def _floor(
    data: RedisData, number: int, at: int, keys: tuple[str, str, str, str], covered_max: int
) -> tuple[bytes, bytes]:
    """Notes what this round has covered, forgets rounds, and tells what the newest before the oldest key covered."""
    pending, offsets, covered, proofs = keys
    run = data.commands
    places = [
        pair for pair in run["HGETALL"](offsets).items() if _QUEUE.fullmatch(pair[0]) and _OFFSET.fullmatch(pair[1])
    ]
    run["HSET"](covered, at, b"\n".join(word for pair in places for word in pair))
    known = [(queue, run["HGET"](proofs, queue) or b"", offset) for queue, offset in places]
    proved = [(queue, proof) for queue, proof, offset in known if b"\n" not in proof and _of(proof) == offset]
    if proved:
        run["HSET"](covered, b"proofs %d" % at, b"\n".join(word for pair in proved for word in pair))
    run["HSET"](covered, "last", b"%d %d" % (number, at))
    oldest = min((data.values.get(pending) or {}).values(), default=None)
    rounds = sorted(int(field) for field in run["HGETALL"](covered) if field.isdigit())
    base = sum(oldest is None or one < int(oldest) for one in rounds)
    gone = rounds[: max(0, base - 1)]
    left = rounds[max(base, 1) - 1 :]
    if len(left) > covered_max:
        holes = [
            ((later - sooner) / (at - sooner), one)
            for sooner, one, later in zip(left, left[1:], left[2:], strict=False)
        ]
        if holes:
            gone.append(min(holes)[1])
    for one in gone:
        run["HDEL"](covered, one)
    floor = (b"", b"")
    if base:
        floor = (
            run["HGET"](covered, rounds[base - 1]) or b"",
            run["HGET"](covered, b"proofs %d" % rounds[base - 1]) or b"",
        )
    kept = {b"proofs %d" % one for one in rounds if one not in gone}
    for field in list(run["HGETALL"](covered)):
        if _PROOFS.fullmatch(field) and field not in kept:
            run["HDEL"](covered, field)
    return floor


def _of(proof: bytes) -> bytes | None:
    found = _PROOF.fullmatch(proof)
    return found.group(1) if found else None
