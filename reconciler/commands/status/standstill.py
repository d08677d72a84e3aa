"""Why "0 lost" means nothing now: an open outage, losses without a repair, keys without a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from reconciler.clock import utc_text
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.policy.ports import (
    Candidates,
    HeldTopic,
    Outage,
    RepairCount,
    Repairs,
    StoredRound,
    VerdictCount,
    count_text,
)
from reconciler.policy.undecided_keys import UndecidedKeys
from reconciler.settings.schema import Settings

#: Rounds older than both this and ROUNDS_LATE_INTERVALS intervals mean that losses are not looked for any more.
ROUNDS_LATE_SECONDS_MIN = 300.0
ROUNDS_LATE_INTERVALS = 60
#: Losses of a subscription that are looked at: one loss without a repair is enough for the line.
LOSSES_ASKED = 100


def open_outage(outage: Outage | None) -> list[str]:
    """While an outage is open, rounds wait; of one node of a Redis Cluster, those of its own shards."""
    if outage is None or outage.closed_at_ms is not None:
        return []
    step = "inboxes are scanned, rounds follow" if outage.is_scanned else "rounds wait for Redis and the inbox scan"
    return [f"an outage is open since {utc_text(outage.started_at_ms)} ({outage.reason}): {step}"]


def unrepaired(
    settings: Settings,
    subscription: Subscription,
    *,
    candidates: Candidates,
    repairs: Repairs,
    now_ms: int,
    within_seconds: float | None,
) -> list[str]:
    """Proved losses that have no repair: turns end between the verdict and the repair, which is opened next."""
    limit_ms = round(limit_seconds(settings, within_seconds) * 1000)
    losses = [
        row.unique_key
        for row in candidates.open_losses(subscription, limit=LOSSES_ASKED)
        if row.verdict in LOSSES and now_ms - row.first_seen_ms > limit_ms
    ]
    known = repairs.of_keys(subscription.environment, subscription.topic, losses) if losses else {}
    left = [key for key in losses if not known.get(key)]
    if not left:
        return []
    proved = f"{len(left)} losses of {subscription} were proved and have no repair, {left[0]} the oldest"
    return [f"{proved}: turns fail before they open it, the log of `run` says why"]


def undecided(
    verdicts: Iterable[VerdictCount],
    now_ms: int,
    retention_seconds: float,
    *,
    unknown: Mapping[Subscription, UndecidedKeys],
) -> list[str]:
    """Keys that have been open for half of the brokers' retention: their witnesses must answer before it is over.

    A group that lags is left out: its own monitoring shows it. So is what the configuration cannot decide, which
    `unknown` tells of UNKNOWN keys without a proved loss.
    """
    lines = []
    for v in verdicts:
        count, oldest_ms = v.count, v.oldest_ms
        if v.verdict is Verdict.UNKNOWN and v.loss_verdict is None and v.subscription in unknown:
            known = unknown[v.subscription]
            count, oldest_ms = v.count - known.set_up_count, known.other_oldest_ms or now_ms
        hours = (now_ms - oldest_ms) / 3_600_000
        is_open = v.state is CandidateState.OPEN and (v.verdict is Verdict.UNKNOWN or v.verdict in LOSSES)
        if is_open and hours * 3_600 > retention_seconds / 2:
            lines.append(
                f"{v.subscription}: {count_text(count)} keys are {v.verdict}, the oldest since {hours:.0f} hours"
            )
    return lines


def history_behind(
    settings: Settings,
    subscription: Subscription,
    rounds: Collection[StoredRound],
    captured_ms: Mapping[int, int],
    *,
    within_seconds: float | None,
) -> list[str]:
    """Rounds that ran, and are not in the history although it is older than it takes to seal: its disk is full, say.

    `rounds`: the newest of every shard; `captured_ms`: shard -> the newest one in the history, as far as there is one.
    """
    behind_seconds = max(
        (
            (stored.done.at_ms - captured_ms[stored.done.shard.number]) / 1000
            for stored in rounds
            if stored.done.shard.number in captured_ms and not stored.is_void
        ),
        default=0.0,
    )
    if behind_seconds <= settings.history.seal_seconds + limit_seconds(settings, within_seconds):
        return []
    ends = f"the history of {subscription} ends {behind_seconds:.0f} s before its last round"
    return [f"{ends}: does the log of `reconciler run` say history_failing? The audit misses what came since"]


def rejected(verdicts: Iterable[VerdictCount]) -> list[str]:
    """Announced keys that no configured outbox has as committed: foreign announcements, or an outbox is not configured.

    The second kind would be lost messages that are settled without repair, and the verdict is the same.
    """
    return [
        f"{v.subscription}: {count_text(v.count)} announced keys are committed in no configured outbox, and were "
        "settled without repair: does [[producers]] name every service that sends to the topic? "
        "What has no row is asked for again."
        for v in verdicts
        if v.verdict is Verdict.REJECTED
    ]


def before_since(verdicts: Iterable[VerdictCount], since_ms: Mapping[Subscription, int | None]) -> list[str]:
    """Messages that subscriptions do not answer for, or did not, a line each. `since_ms`: 0 or None: for every message
    now. Of a name that the settings lack nothing is judged."""
    lines = []
    for v in verdicts:
        if v.verdict is Verdict.BEFORE_SINCE and v.subscription in since_ms:
            at_ms = since_ms.get(v.subscription)
            if at_ms and v.state is CandidateState.SETTLED:
                lines.append(
                    f"{v.subscription}: {count_text(v.count)} messages were given to groups before its `since`, which "
                    f"is {utc_text(at_ms)}, and had no effect in its inbox: nothing is sent for it alone"
                )
            else:
                lines.append(
                    f"{v.subscription}: {count_text(v.count)} messages that an earlier value of its `since` left out "
                    "are being judged again by `reconciler run`"
                )
    return lines


class NeedKind(StrEnum):
    """What only a person can end."""

    QUARANTINED = "quarantined"
    FAILED = "failed"
    BREAKER = "breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One trouble that only a person can end; as a text with the command that shows or ends it."""

    kind: NeedKind
    #: Keys or repairs.
    count: int = 0
    #: BREAKER: whose.
    topic: str = ""

    def __str__(self) -> str:
        match self.kind:
            case NeedKind.QUARANTINED:
                return f"quarantined keys: {count_text(self.count)} (`reconciler list candidates --state QUARANTINED`)"
            case NeedKind.FAILED:
                return f"failed repairs: {count_text(self.count)} (`reconciler list repairs --state FAILED`)"
            case _:
                return f"the breaker of {self.topic} is open (`reconciler resume {self.topic} --breaker`)"


def persons_needed(
    *, verdicts: Iterable[VerdictCount], repairs: Iterable[RepairCount], holds: Iterable[HeldTopic]
) -> list[Need]:
    """Troubles that only a person can end."""
    quarantined = sum(v.count for v in verdicts if v.state is CandidateState.QUARANTINED)
    failed = sum(r.count for r in repairs if r.state is RepairState.FAILED)
    needed = [Need(kind=NeedKind.QUARANTINED, count=quarantined)] if quarantined else []
    needed += [Need(kind=NeedKind.FAILED, count=failed)] if failed else []
    return needed + [Need(kind=NeedKind.BREAKER, topic=h.topic) for h in holds if h.kind is HoldKind.BREAKER]


def limit_seconds(settings: Settings, within_seconds: float | None) -> float:
    """The longest standstill that is not late, in seconds: the monitor's --rounds-within, or the default."""
    if within_seconds is not None:
        return within_seconds
    return max(ROUNDS_LATE_SECONDS_MIN, ROUNDS_LATE_INTERVALS * settings.rounds.interval_seconds)
