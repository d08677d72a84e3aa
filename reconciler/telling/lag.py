"""Decides whether a group has fallen behind: messages wait, and the first of them has waited too long. Pure.

The group's progress decides, and not the number of its members. A group without members and messages is at rest, and a
group with members may have stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Subscription
from reconciler.policy.evidence import Watermark

_LAG: Mapping[str, Field] = {"number": Field.NUMBER, "subscription": Field.NAME, "at_ms": Field.TIME}
DESERTED = Code("lag.deserted", **_LAG)
WAITING = Code("lag.waiting", **_LAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The messages that wait for a group."""

    subscription: Subscription
    #: Number of messages that wait in the queues of the topic and its retry topics. Without a stored offset: number of
    #: pending keys.
    waiting: int
    #: Broker store time of the first waiting message, or the time at which the oldest key was first seen.
    since_ms: int
    #: True if every broker says that no member is connected, and the group does not pop.
    is_deserted: bool = False

    @property
    def fact(self) -> Fact:
        """The lag as a fact for people, with the remedy."""
        code = DESERTED if self.is_deserted else WAITING
        return code(number=self.waiting, subscription=str(self.subscription), at_ms=self.since_ms)


def lag_of(
    subscription: Subscription,
    watermark: Watermark,
    *,
    pending: int = 0,
    oldest_pending_ms: int | None = None,
    asked_ms: int,
    alarm_seconds: float,
    skew_margin_seconds: float,
) -> Lag | None:
    """Returns the lag of a group. None: nothing waits, nothing has waited for `alarm_seconds`, or this is unknown.

    `alarm_seconds`: 0 means that there is never a lag. `pending`: number of pending keys, used for a group without an
    offset. Such a group has had no message, or stores its offsets elsewhere. Its pending keys wait only if no member is
    connected, which the caller has to find out. `skew_margin_seconds` is added, because the times come from different
    clocks: `asked_ms` from the ledger, the time of the first message from its broker, and the time of the oldest key
    from Redis.
    """
    waiting, since_ms = watermark.waiting, watermark.waiting_since_ms
    if watermark.lacks_offset:
        waiting, since_ms = pending, oldest_pending_ms
    if since_ms is None or not alarm_seconds:
        return None
    if asked_ms - since_ms <= round((alarm_seconds + skew_margin_seconds) * 1000):
        return None
    return Lag(subscription=subscription, waiting=waiting, since_ms=since_ms)
