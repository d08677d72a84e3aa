"""Decides whether a group has fallen behind: messages wait for it, and the first one has waited too long. Pure.

It is decided by progress and not by members: a group without members and without messages is at rest, and one with
members may have stopped.
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
    #: How many messages its topic's and retry topics' queues have for it; its pending keys if it has stored no offset.
    waiting: int
    #: Broker store time of the first of them, or when the oldest key was first seen.
    since_ms: int
    #: True if every broker says that no member is connected, and the group does not pop.
    is_deserted: bool = False

    @property
    def fact(self) -> Fact:
        """What waits, and what to do, as a fact."""
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
    """Returns None if nothing waits, if it has not waited for that long, or if that is unknown. `alarm_seconds` 0:
    never.

    A group without an offset has had nothing, or stores its offsets elsewhere: its pending keys wait if no member is
    connected, which the caller asks. The margin is added, because `asked_ms` is the ledger's time, the first message
    has its broker's time, and the oldest key Redis'.
    """
    waiting, since_ms = watermark.waiting, watermark.waiting_since_ms
    if watermark.lacks_offset:
        waiting, since_ms = pending, oldest_pending_ms
    if since_ms is None or not alarm_seconds:
        return None
    if asked_ms - since_ms <= round((alarm_seconds + skew_margin_seconds) * 1000):
        return None
    return Lag(subscription=subscription, waiting=waiting, since_ms=since_ms)
