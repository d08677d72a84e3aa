"""What can no longer make a difference is set to one value, so that states that behave alike are one state.

Valid for the product's rules: with the inbox a second delivery changes nothing but the commit set, and only a loss of
Redis reads floors, last rounds and what is taken already. A test compares with the search that forgets nothing.
"""

from __future__ import annotations

from functools import cache

from tests.model.state import COPIES_MAX, KEY, MESSAGE, NO_ROW, OVER, TOMBSTONE, Group, State, pack_key, pack_message

#: Stands for "all there will ever be".
_ALL = COPIES_MAX + 1
_INERT = pack_message(MESSAGE[0]._replace(step=OVER, row=TOMBSTONE, half_closed=1))


def without_dead_fields(s: State) -> State:
    messages, groups, log, crashes, losses, lost_ends = s
    messages = tuple(map(_message, messages))
    return (messages, tuple(_group(group, log, losses) for group in groups), log, crashes, losses, lost_ends)


@cache
def _message(number: int) -> int:
    m = MESSAGE[number]
    if m.row in (NO_ROW, TOMBSTONE) and m.step == OVER:
        return _INERT  # no broker will ever deliver it: check-back and END ROLLBACK only close its half
    if m.copies:
        m = m._replace(repair=0)  # SENT: only copies and effects count from here on
    if m.copies == COPIES_MAX:
        m = m._replace(in_hand=0)
    return pack_message(m)


@cache
def _group(group: Group, log: tuple[int, ...], losses: int) -> Group:
    keys, offset, last, floor, disk = group
    if disk is not None and losses:
        return group
    taken = log[:offset]
    keys = tuple(_key(key, i in taken, losses) for i, key in enumerate(keys))
    return (keys, offset, last, floor, None) if losses else (keys, offset, 0, 0, None)


def _key(number: int, is_taken: bool, losses: int) -> int:
    k = KEY[number]
    if not losses and k.pending:
        k = k._replace(pending=1)
    if is_taken and not k.pending and not k.in_half:
        # Announced and matched: nothing reads the commit set for it unless Redis loses the announcement.
        k = k._replace(in_commit=0)
        if not losses and k.effects:
            k = k._replace(acknowledged=_ALL)
    return pack_key(k)
