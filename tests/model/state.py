"""The state of the model: what databases, broker, Redis and processes hold, as tuples of small numbers.

A message is one number (six fields), a key in a group is one number (six fields); both are decoded by table. Redis'
part of a key lies in the low bits, so that a loss of Redis is one mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

# ---- fields of a message: producer's program counter, outbox row, half
IN_TRANSACTION, ENDS, ANNOUNCES, OVER = range(4)
NO_ROW, NEW, ANNOUNCED, TOMBSTONE = range(4)
#: More copies of one message than this are not told apart, nor are more processes about to send.
COPIES_MAX = 2


class Message(NamedTuple):
    """One transactional message; its half is at the broker from the beginning."""

    step: int = IN_TRANSACTION
    row: int = NO_ROW
    half_closed: int = 0
    #: Committed copies at the broker.
    copies: int = 0
    #: 1: the loss is proved and a repair row exists. It is SENT once there is a copy.
    repair: int = 0
    #: Processes that wrote SENDING and have not sent yet: the claim's owner, and one that was paused past its lease.
    in_hand: int = 0


class Key(NamedTuple):
    """One message in one group."""

    in_half: int = 0
    in_commit: int = 0
    #: 0: not pending; else 1 + the offset that the round before the one that found it had covered.
    pending: int = 0
    #: Mark of the original's dedupe in Redis; used by a weakened configuration only.
    marked: int = 0
    effects: int = 0
    #: Copies that the group acknowledged.
    acknowledged: int = 0


def pack_message(m: Message) -> int:
    return m.step | m.row << 2 | m.half_closed << 4 | m.copies << 5 | m.repair << 7 | m.in_hand << 8


def pack_key(k: Key) -> int:
    return k.in_half | k.in_commit << 1 | k.pending << 2 | k.marked << 4 | k.effects << 5 | k.acknowledged << 7


MESSAGE = [Message(n & 3, n >> 2 & 3, n >> 4 & 1, n >> 5 & 3, n >> 7 & 1, n >> 8 & 3) for n in range(1 << 10)]
KEY = [Key(n & 1, n >> 1 & 1, n >> 2 & 3, n >> 4 & 1, n >> 5 & 3, n >> 7 & 3) for n in range(1 << 9)]
#: Redis' fields of a key; what is left survives its loss.
REDIS_BITS = 5
REDIS_MASK = (1 << REDIS_BITS) - 1

#: What Redis may fall back to, on a disk or on a replica: its part of each key, the offset, the last round.
Disk = tuple[tuple[int, ...], int, int]
#: Keys of a group, offset of its announcement consumer, offset at its last round, floor in SQL, disk.
Group = tuple[tuple[int, ...], int, int, int, Disk | None]
#: Messages, groups, unique-key topic (numbers of messages in the order of their announcement), faults left: crashes,
#: losses of Redis, lost ENDs.
State = tuple[tuple[int, ...], tuple[Group, ...], tuple[int, ...], int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much may happen, and how finely it is told."""

    messages: int = 2
    groups: int = 2
    crashes: int = 2
    redis_losses: int = 1
    lost_ends: int = 2
    #: True: Redis may also fall back to what it had on disk at any earlier moment; False: it only loses everything.
    falls_back: bool = False
    #: True: Redis may also come back with what its last fall-back had undone, which costs another loss.
    comes_back: bool = False
    #: True: announcements are taken at any moment; False: right before a round. Nobody but a round reads the half set,
    #: and offset and keys are lost together, so the results are the same (a test compares them).
    takes_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the reconciler does. The product is Rules(); each weakened configuration takes one thing away."""

    has_outbox: bool = True
    keeps_pending: bool = True
    rewinds: bool = True
    ledger_first: bool = True
    has_inbox: bool = True
    floor_waits: bool = True
    #: Whoever may announce can announce any key with a tag that the group does not take. The outbox, which is compared
    #: with it, makes that a step without effect; every message here is taken.
    compares_tags: bool = True
    #: The original: the difference is handed to the business at once and kept nowhere.
    is_original: bool = False


def first_state(bounds: Bounds) -> State:
    """Halves are sent, local transactions are open, nothing else has happened."""
    group: Group = ((0,) * bounds.messages, 0, 0, 0, None)
    return (
        (0,) * bounds.messages,
        (group,) * bounds.groups,
        (),
        bounds.crashes,
        bounds.redis_losses,
        bounds.lost_ends,
    )


def canonical(state: State) -> State:
    """One state for all that differ only in the names of messages and groups."""
    messages, groups, log, crashes, losses, lost_ends = state
    if len(messages) == 2:
        if log:
            turned = log[0] == 1
        elif messages[0] != messages[1]:
            turned = messages[1] < messages[0]
        else:
            turned = sorted(packed_group(_swapped(g)) for g in groups) < sorted(packed_group(g) for g in groups)
        if turned:
            messages, groups = messages[::-1], tuple(map(_swapped, groups))
            log = tuple(1 - number for number in log)
    if len(groups) == 2 and packed_group(groups[1]) < packed_group(groups[0]):
        groups = groups[::-1]
    return (messages, groups, log, crashes, losses, lost_ends)


@cache
def _swapped(group: Group) -> Group:
    keys, offset, last, floor, disk = group
    return (keys[::-1], offset, last, floor, None if disk is None else (disk[0][::-1], disk[1], disk[2]))


def packed(state: State) -> int:
    """One number a state: a set of millions of them fits in memory."""
    messages, groups, log, crashes, losses, lost_ends = state
    n = crashes | losses << 2 | lost_ends << 4 | _LOGS[log] << 6
    for message in messages:
        n = n << 10 | message
    for group in groups:
        n = n << 39 | packed_group(group)
    return n


_LOGS = {log: number for number, log in enumerate([(), (0,), (1,), (0, 1), (1, 0)])}


@cache
def packed_group(group: Group) -> int:
    """39 bits."""
    keys, offset, last, floor, disk = group
    n = offset | last << 2 | floor << 4
    if disk is not None:
        redis, disk_offset, disk_last = disk
        n |= (1 | disk_offset << 1 | disk_last << 3) << 6
        for index, key in enumerate(redis):
            n |= key << (11 + REDIS_BITS * index)
    for index, key in enumerate(keys):
        n |= key << (21 + 9 * index)
    return n
