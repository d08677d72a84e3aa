"""What can happen next, one function an actor. Each looks at as little of the state as the actor sees.

Actions are as coarse as their effects allow: a procedure is one action for every point at which it can end, complete or
by a crash, and only what another process can get between is split (SENDING written, END sent). `mapping.py` says which
product function each action stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from tests.model.state import (
    ANNOUNCED,
    ANNOUNCES,
    COPIES_MAX,
    ENDS,
    IN_TRANSACTION,
    KEY,
    MESSAGE,
    NEW,
    NO_ROW,
    OVER,
    REDIS_MASK,
    TOMBSTONE,
    Bounds,
    Disk,
    Group,
    Key,
    Message,
    Rules,
    State,
    pack_key,
    pack_message,
)

#: Name, message or -1, group or -1, what follows.
Step = tuple[str, int, int, State]


class Move(NamedTuple):
    """A message or a key goes on, at the price of faults."""

    name: str
    after: int
    crashes: int = 0
    lost_ends: int = 0
    announces: bool = False
    #: False: it may happen, and nothing may depend on it.
    is_work: bool = True


class Turn(NamedTuple):
    """A group's round goes on."""

    name: str
    after: Group
    #: Messages whose loss was proved: SENDING is written for them.
    claims: tuple[int, ...] = ()
    crashes: int = 0


# ---- a message: producer, sweeper, check-back, repair


@cache
def message_moves(number: int, rules: Rules) -> tuple[Move, ...]:
    m = MESSAGE[number]
    return (*_producer(m, rules), *_sweeper(m, rules), *_repair(m), *_check_back(m, rules))


def _move(name: str, m: Message, *, crashes: int = 0, lost_ends: int = 0, announces: bool = False) -> Move:
    return Move(name, pack_message(m), crashes, lost_ends, announces)


def _ended(m: Message) -> Message:
    """END COMMIT executed: it is not idempotent, a second one makes a second copy."""
    return m._replace(half_closed=1, copies=min(m.copies + 1, COPIES_MAX))


def _producer(m: Message, rules: Rules) -> Iterator[Move]:
    """Its local transaction commits or rolls back; then END; then the announcement; it dies anywhere."""
    over = m._replace(step=OVER)
    if m.step == IN_TRANSACTION:
        if m.row == NO_ROW:
            yield _move("commits locally", m._replace(step=ENDS, row=NEW))
        yield _move("rolls back", over._replace(row=TOMBSTONE, half_closed=1))
        if not m.half_closed:
            yield _move("rolls back, END lost", over._replace(row=TOMBSTONE), lost_ends=1)
    elif m.step == ENDS:
        yield _move("END", _ended(m)._replace(step=ANNOUNCES))
        yield _move("END lost", m._replace(step=ANNOUNCES), lost_ends=1)
    elif m.step == ANNOUNCES:
        yield _move("announces", over._replace(row=ANNOUNCED), announces=True)
        if rules.has_outbox:
            yield _move("announces, producer dies before marking", over, crashes=1, announces=True)
    if m.step < OVER:
        yield _move("producer dies", over, crashes=1)


def _sweeper(m: Message, rules: Rules) -> Iterator[Move]:
    """Announces what a dead producer did not."""
    if rules.has_outbox and m.step == OVER and m.row == NEW:
        yield _move("sweeper announces", m._replace(row=ANNOUNCED), announces=True)


def _check_back(m: Message, rules: Rules) -> Iterator[Move]:
    """The broker may ask back, or have given up, or be too old for it."""
    if m.half_closed or not rules.has_outbox:
        return
    if m.row == NO_ROW:
        move = _move("check-back: no row, tombstone", m._replace(row=TOMBSTONE, half_closed=1))
    elif m.row == TOMBSTONE:
        move = _move("check-back: tombstone", m._replace(half_closed=1))
    else:
        move = _move("check-back: row", _ended(m))
    yield move._replace(is_work=False)


def _repair(m: Message) -> Iterator[Move]:
    """END by a process that wrote SENDING, and what another owner does with a send whose answer is lost."""
    if m.in_hand:
        gone = m._replace(in_hand=m.in_hand - 1)
        yield _move("END repeated", _ended(gone))
        yield _move("END repeated, request lost", gone, lost_ends=1)
        yield _move("reconciler dies before END", gone, crashes=1)
    if m.repair and not m.copies and m.row in (NEW, ANNOUNCED):
        again = m._replace(in_hand=m.in_hand + 1)
        if not m.in_hand:
            yield _move("no copy: SENDING again", again)
        elif m.in_hand < COPIES_MAX:
            yield _move("owner paused past its lease, another one writes SENDING", again, crashes=1)


# ---- a key in a group: the business consumer


@cache
def key_moves(number: int, copies: int, rules: Rules) -> tuple[Move, ...]:
    return tuple(_consumer(KEY[number], copies, rules))


def _consumer(k: Key, copies: int, rules: Rules) -> Iterator[Move]:
    """Inbox row and effect in one transaction; SADD; acknowledgement. With dedupe in Redis: effect; mark; SADD; ack."""
    if k.acknowledged >= copies:
        return
    is_new = not k.effects if rules.has_inbox else not k.marked
    applied = k._replace(effects=min(k.effects + 1, 2)) if is_new else k
    recorded = applied._replace(in_commit=1, marked=0 if rules.has_inbox else 1)
    yield Move("consumes", pack_key(recorded._replace(acknowledged=k.acknowledged + 1)))
    if is_new:
        yield Move("consumer dies after the effect", pack_key(applied), crashes=1)
    if recorded != k:
        yield Move("consumer dies before the ack", pack_key(recorded), crashes=1)
    if rules.has_inbox and not k.in_commit:
        yield Move("consumes, SADD fails", pack_key(applied._replace(acknowledged=k.acknowledged + 1)), crashes=1)


# ---- a group: announcement consumer and rounds


@cache
def turns(
    group: Group, log: tuple[int, ...], open_halves: tuple[bool, ...], rules: Rules, early: bool
) -> tuple[Turn, ...]:
    """`open_halves`: messages that would be judged lost now. `early`: announcements are taken by steps of their own."""
    found: list[Turn] = []
    if early and group[1] < len(log):
        found.append(Turn(f"announcement taken: {log[group[1]]}", _taken(group, log, 1)))
    for count in range(1) if early else range(len(log) - group[1] + 1):
        start = _taken(group, log, count)
        found += _original_round(start) if rules.is_original else _round(start, open_halves, rules)
    return tuple(turn for turn in found if turn.after != group or turn.claims)


def _taken(group: Group, log: tuple[int, ...], count: int) -> Group:
    """Keys into the half set and offset past them, in one step."""
    keys, offset, last, floor, disk = group
    for i in log[offset : offset + count]:
        keys = _changed(keys, i, KEY[keys[i]]._replace(in_half=1))
    return (keys, offset + count, last, floor, disk)


def _changed(keys: tuple[int, ...], i: int, key: Key) -> tuple[int, ...]:
    return (*keys[:i], pack_key(key), *keys[i + 1 :])


def _round(group: Group, open_halves: tuple[bool, ...], rules: Rules) -> Iterator[Turn]:
    """The MULTI, which tells the floor and keeps what it covered; its durable record with the floor; verification.

    Verification takes any part of what can be decided: the rest is not due yet, or was left to the next turn.
    """
    keys, offset, last, floor, disk = group
    after = tuple(pack_key(_after_multi(KEY[key], last, rules)) for key in keys)
    waiting = [pending for pending in (KEY[key].pending for key in after) if pending]
    raised = max(floor, min(waiting) - 1 if waiting and rules.floor_waits else offset)
    if (raised, offset) != (floor, last):
        unstored: Group = (after, offset, offset, floor, disk)
        yield Turn("round runs, reconciler dies before storing it", unstored, crashes=1)
    if not rules.compares_tags:
        for i in (i for i, key in enumerate(after) if KEY[key].pending):
            left = _changed(after, i, KEY[after[i]]._replace(pending=0))
            yield Turn(f"round, {i} not taken", (left, offset, offset, raised, disk))
    decidable = [i for i, key in enumerate(after) if KEY[key].pending and (KEY[key].effects or open_halves[i])]
    for chosen in product((False, True), repeat=len(decidable)):
        due = [i for i, is_due in zip(decidable, chosen, strict=True) if is_due]
        yield from _verified(Turn("round", (after, offset, offset, raised, disk)), due, rules)


def _after_multi(key: Key, last: int, rules: Rules) -> Key:
    pending = key.pending if rules.keeps_pending else 0
    if key.in_half and not pending:
        pending = 1 + last
    return key._replace(in_half=0, pending=0 if key.in_commit else pending, in_commit=0)


def _verified(turn: Turn, due: list[int], rules: Rules) -> Iterator[Turn]:
    """The turns in which a round verifies the keys `due`, one after the other."""
    if not due:
        yield turn
        return
    i, *rest = due
    keys, *others = turn.after
    key = KEY[keys[i]]
    left: Group = (_changed(keys, i, key._replace(pending=0)), *others)  # type: ignore[assignment]  # as it was
    if key.effects:
        yield from _verified(turn._replace(name=f"{turn.name}, {i} settled", after=left), rest, rules)
        return
    claims = (*turn.claims, i)
    if rules.ledger_first:
        yield from _verified(turn._replace(name=f"{turn.name}, {i} lost: SENDING", claims=claims), rest, rules)
        return
    forgotten = turn._replace(name=f"{turn.name}, {i} forgotten, then lost: SENDING", after=left, claims=claims)
    yield from _verified(forgotten, rest, rules)
    yield Turn(f"{turn.name}, {i} forgotten, reconciler dies before its ledger row", left, turn.claims, crashes=1)


def _original_round(group: Group) -> Iterator[Turn]:
    """SDIFF, DEL, DEL in one MULTI; the difference is replayed, or forgotten with the process."""
    keys, offset, last, floor, disk = group
    before = [KEY[key] for key in keys]
    missing = [key.in_half and not key.in_commit for key in before]
    emptied = [key._replace(in_half=0, in_commit=0) for key in before]
    replayed = [key._replace(effects=1) if lost else key for lost, key in zip(missing, emptied, strict=True)]
    yield Turn("round replays the difference", (tuple(map(pack_key, replayed)), offset, last, floor, disk))
    if any(missing):
        forgot: Group = (tuple(map(pack_key, emptied)), offset, last, floor, disk)
        yield Turn("round runs, reconciler dies before the replay", forgot, crashes=1)


# ---- Redis


def redis_losses(groups: tuple[Group, ...], rules: Rules, bounds: Bounds) -> Iterator[tuple[str, tuple[Group, ...]]]:
    """Everything, or everything since the disk was up to date; offset and last round go with the keys, floors stay."""
    yield (
        "Redis loses everything",
        tuple(
            (tuple(key & ~REDIS_MASK for key in keys), floor if rules.rewinds else offset, 0, floor, None)
            for keys, offset, _last, floor, _disk in groups
        ),
    )
    if groups[0][4] is not None:
        yield "Redis falls back to its disk", tuple(_fallen_back(group, rules, bounds) for group in groups)


def _fallen_back(group: Group, rules: Rules, bounds: Bounds) -> Group:
    keys, offset, _last, floor, disk = group
    assert disk is not None
    redis, disk_offset, disk_last = disk
    undone = _saved_group(group) if bounds.comes_back else None
    keys = tuple(key & ~REDIS_MASK | old for key, old in zip(keys, redis, strict=True))
    return (keys, disk_offset if rules.rewinds else offset, disk_last, floor, undone)


def _saved(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """At any one moment; what comes later is what a fall-back loses."""
    return tuple((*group[:4], _saved_group(group)) for group in groups)


def _saved_group(group: Group) -> Disk:
    keys, offset, last, _floor, _disk = group
    return tuple(key & REDIS_MASK for key in keys), offset, last


# ---- all together


def steps(s: State, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """Everything that can follow."""
    yield from work(s, rules, bounds, only_work=False)
    messages, groups, log, crashes, losses, lost_ends = s
    if losses:
        for name, after in redis_losses(groups, rules, bounds):
            yield name, -1, -1, (messages, after, log, crashes, losses - 1, lost_ends)
        if bounds.falls_back and groups[0][4] is None:
            yield "Redis' disk is up to date here", -1, -1, (messages, _saved(groups), log, crashes, losses, lost_ends)


def work(s: State, rules: Rules, bounds: Bounds, *, only_work: bool = True) -> Iterator[Step]:
    """What producers, sweeper, repair, consumers and rounds can do with the faults that are left."""
    messages, groups, log, crashes, losses, lost_ends = s
    for i, number in enumerate(messages):
        for name, after, crash, lost, announces, is_work in message_moves(number, rules):
            if crash > crashes or lost > lost_ends or (only_work and not is_work):
                continue
            now = (*log, i) if announces and i not in log else log
            rest = (groups, now, crashes - crash, losses, lost_ends - lost)
            yield name, i, -1, ((*messages[:i], after, *messages[i + 1 :]), *rest)
    for g, group in enumerate(groups):
        for i, key in enumerate(group[0]):
            for name, after, crash, _lost, _announces, _is_work in key_moves(key, MESSAGE[messages[i]].copies, rules):
                if crash <= crashes:
                    changed = ((*group[0][:i], after, *group[0][i + 1 :]), *group[1:])
                    yield name, i, g, (messages, _put(groups, g, changed), log, crashes - crash, losses, lost_ends)
    open_halves = tuple(_would_be_lost(number, rules) for number in messages)
    early = bounds.takes_early or not rules.rewinds
    for g, group in enumerate(groups):
        for name, turned, claims, crash in turns(group, log, open_halves, rules, early):
            if crash <= crashes:
                claimed = (
                    tuple(_claimed(n) if i in claims else n for i, n in enumerate(messages)) if claims else messages
                )
                yield name, -1, g, (claimed, _put(groups, g, turned), log, crashes - crash, losses, lost_ends)


def _put(groups: tuple[Group, ...], g: int, group: Group) -> tuple[Group, ...]:
    return (*groups[:g], group, *groups[g + 1 :])


@cache
def _would_be_lost(number: int, rules: Rules) -> bool:
    """No copy, an open half, the commit proved, and no repair is under way."""
    m = MESSAGE[number]
    is_proved = not rules.has_outbox or m.row in (NEW, ANNOUNCED)
    return is_proved and not (m.copies or m.half_closed or m.repair)


@cache
def _claimed(number: int) -> int:
    return pack_message(MESSAGE[number]._replace(repair=1, in_hand=1))


def healing(calm: State, rules: Rules, bounds: Bounds) -> Iterator[State]:
    """What may come next in a state without faults left, when all processes do their work; best first.

    Whatever a message or a consumer can do comes first; then rounds, those that verify most before the others.
    """
    found = list(work(calm, rules, bounds))
    yield from (after for _name, i, _g, after in found if i >= 0)
    yield from (after for _name, i, _g, after in reversed(found) if i < 0)
