"""Kinds of fault: what each is, and which accidents of the world's trace count as one of it.

A counter is told where the world meets the effect (a refused write, a look-up that an index could not answer), so a
fault that is switched on and does nothing counts nothing. Variants of one kind do the same to the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconciler.contract.verdicts import Verdict
from tests.simulation.kernel import BASE_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Counted histories for which `FIRED_MIN` is asked; fewer histories are asked for their share.
HISTORIES = 20_000
FIRED_MIN = 100

#: Name -> accidents of the trace (Kernel.saw).
FAULTS: Mapping[str, tuple[str, ...]] = {
    # Redis
    "redis network": ("redis request lost", "redis reply lost", "redis slow"),
    "redis away": ("redis refused", "redis away"),
    "redis exec replies": ("redis reply to the round lost",),
    "redis wipe": ("Redis lost everything",),
    "redis suffix": ("Redis lost its last writes", "Redis restored from an old snapshot"),
    "redis suffix across a round": ("Redis lost a round that had been answered",),
    "redis back and forth": ("Redis came back with what it had undone",),
    "redis full": ("Redis refused a write: out of memory",),
    "redis scripts": ("Redis did not know a script any more",),
    "retries on": ("redis-py silently sent a pipeline again",),
    # brokers
    "end lost": ("END lost", "END delayed", "END executed twice"),
    "end busy": ("END refused: system busy",),
    "broker network": ("broker request lost", "broker reply lost", "broker slow"),
    "broker away": ("broker refused", "broker away"),
    "broker tail": ("broker lost what it had not flushed",),
    "broker disk": ("broker disk full",),
    "index lag": ("index behind a look-up", "no index horizon"),
    "retention": ("retention deleted records",),
    "route": ("route read without a broker",),
    "checks lost": ("check-back question lost",),
    "foreign copies": ("look-up met another message",),
    "announcements lost": ("announcement not taken by its broker", "announcement stored twice"),
    # databases
    "outbox away": ("outbox request lost", "outbox reply lost", "outbox slow", "outbox refused", "outbox away"),
    "outbox behind": ("outbox row not shown yet",),
    "outbox commits": ("outbox COMMIT answered to nobody",),
    "inbox away": ("inbox request lost", "inbox reply lost", "inbox slow", "inbox refused", "inbox away"),
    "inbox commits": ("inbox COMMIT answered to nobody",),
    "ledger away": ("ledger request lost", "ledger reply lost", "ledger slow", "ledger refused", "ledger away"),
    # processes
    "producers die": ("producer died",),
    "consumers die": ("consumer died",),
    "sweepers die": ("sweeper died",),
    "announcers die": ("announcer died",),
    "reconcilers die": ("reconciler died",),
    "pauses": (
        "producer stopped for a while", "consumer stopped for a while", "sweeper stopped for a while",
        "announcer stopped for a while", "reconciler stopped for a while", "reconcilers stopped for long",
        "announcement consumers stopped for long",
    ),
    "group stopped": ("group stopped for long",),
    "producers gone": ("producer does not come back", "check-back without a producer"),
    # what services do
    "rollbacks": ("business rolled back", "outbox deadlock", "half stored less safely than told"),
    "late commits": ("commit after the end of the block",),
    "forgotten commits": ("commit forgotten",),
    "long transactions": ("check-back met an open transaction",),
    "filtered": ("message filtered by its tag",),
    "tags corrected": ("row opened again by corrected tags",),
    "poison": ("poison message failed",),
    "flaky handlers": ("handler failed once", "inbox deadlock"),
    "overlapping consumers": ("inbox row waited for another writer", "group's offset set back"),
    "forged announcements": ("announced key rejected",),
    "malformed announcements": ("announcement refused",),
    # set-ups
    "several outboxes": ("check-back about another database's half",),
    "older instances": ("an older instance rolled back another database's half",),
    "mixed group": ("check-back about a stranger's half",),
    "several inboxes": ("inboxes of a group answered differently",),
    "inboxes by instance": ("effect in two inboxes of a group",),
    "outbox damage": ("outbox row unreadable",),
    "inbox damage": ("inbox row unreadable",),
    "ledger damage": ("ledger row unreadable",),
    "outbox replica": ("outbox replica behind a read",),
    "inbox replica": ("inbox replica behind a read",),
    # clocks; those of processes and other servers differ by less than the margin, and step: no kind of fault
    "redis clock": ("Redis' clock was set back", "Redis' clock was set forward"),
    # from here on in the order of their coming, so that seeds of before draw the others as they did
    "groups that pop": ("message handed out in vain",),
    "keys of text": ("key of text",),
    "operators": ("operator's dismissal: dismissed", "operator repaired", "operator resumed repairs"),
    "halfway handlers": ("handler committed halfway",),
    "standing servers": ("ledger stood still", "redis stood still", "outbox stood still", "inbox stood still"),
    "queues anew": ("announcement queues began anew",),
    "database clocks": (
        "ledger's clock was set back", "ledger's clock was set forward", "outbox's clock was set back",
        "outbox's clock was set forward", "inbox's clock was set back", "inbox's clock was set forward",
    ),
    "groups added": ("group added", "message from before a group was added"),
    "groups renamed": ("group renamed", "member came while a group was renamed", "died while a group was renamed"),
    "claims out of reach": ("ledger's clock was set back over a claim",),
    "late rows": ("commit long after its row was written",),
    "business queues": ("business queues began anew", "business queues lost their tail"),
    "small bounds": ("breaker opened", "outbox page full"),
    "claims answered late": ("ledger answered a claim late",),
    "no outbox known": ("repair without a known outbox",),
    "outboxes contradict": ("outboxes contradict each other",),
    "long troubles": ("repair amid troubles",),
    "keys taken": ("inbox row of another message",),
    "rows without a digest": ("outbox row without a digest", "inbox row without a digest"),
    "connections break": (
        "redis connection broke", "broker connection broke", "outbox connection broke", "inbox connection broke",
        "ledger connection broke",
    ),
    "long holds": ("repairs held for long",),
    "lag beside pops": ("group lags beside one that pops",),
    "acts on anything": ("operator is told what an act on a message came to", "operator's dismissal taken back"),
    "no inbox known": ("repair without a known inbox",),
    "inboxes kept short": ("message older than its inbox row",),
    "filters by SQL92": ("message filtered by SQL92",),
    "no sign of popping": ("nobody tells how a group consumes",),
    "dry run": ("repair not sent in a dry run",),
    "groups removed": ("row of a group that was removed",),
    "since moved": ("group answers for every message from now on",),
    "blocks cancelled": ("block cancelled behind its commit", "block cancelled before its commit"),
    "another outbox": ("outbox without the row was read",),
    # stock services, whose halves announce, and whose own tables prove commits
    "halves announce": ("half read as an announcement", "check service stood still"),
    "two tries": ("second try of an order",),
    "several tags": ("order with messages of two tags",),
    "older copies ended": ("half ended on an older copy",),
    "query replica": ("commit query read a replica",),
    "moving group": ("half with an outbox's mark",),
    "sends by a query": ("end by a row", "republish by a row"),
    "effects by a query": ("effect found by a query",),
}  # fmt: skip
#: Faults of histories of their own: no history has them by chance.
ASKED_FOR = frozenset(
    {
        "groups added", "groups renamed", "claims out of reach", "late rows", "business queues", "small bounds",
        "claims answered late", "rows without a digest", "keys taken",
        "no outbox known", "outboxes contradict", "long troubles", "connections break", "long holds",
        "lag beside pops", "acts on anything", "no inbox known", "inboxes kept short", "filters by SQL92",
        "no sign of popping", "dry run", "groups removed", "since moved",
        "blocks cancelled", "another outbox", "halves announce", "two tries", "several tags", "older copies ended",
        "query replica", "moving group", "sends by a query", "effects by a query",
    }
)  # fmt: skip
#: Faults that histories have by lot in which halves announce.
OF_HALVES = (
    "two tries", "several tags", "older copies ended", "query replica", "moving group", "late rows", "no inbox known",
)  # fmt: skip
#: Of these the ones that no other history has.
BY_LOT = frozenset(OF_HALVES) - {"late rows", "no inbox known"}
#: Others that such histories may have: the rest is about outboxes, sweepers, announcements and what people do.
BESIDE_HALVES = frozenset(
    {
        "redis network", "redis away", "redis exec replies", "redis wipe", "redis suffix",
        "redis suffix across a round", "redis back and forth", "redis full", "redis scripts", "retries on",
        "end lost", "end busy", "broker network", "broker away", "broker disk", "index lag", "checks lost",
        "outbox away", "outbox commits", "inbox away", "inbox commits", "ledger away", "producers die",
        "consumers die", "announcers die", "reconcilers die", "pauses", "group stopped", "producers gone",
        "rollbacks", "long transactions", "flaky handlers", "long troubles", "connections break",
    }
)  # fmt: skip


def fired(seen: Mapping[str, int]) -> dict[str, int]:
    """Fault -> how often the world met it."""
    return {name: sum(seen.get(kind, 0) for kind in kinds) for name, kinds in FAULTS.items()}


def too_rare(seen: Mapping[str, int], *, histories: int) -> dict[str, int]:
    """Faults that fired less than their share; nothing is asked of fewer than 2 000 histories."""
    if histories < HISTORIES / 10:
        return {}
    least = FIRED_MIN * min(1.0, histories / HISTORIES)
    return {name: number for name, number in fired(seen).items() if number < least and name not in ASKED_FOR}


def saw_round(world: World) -> None:
    """Told of each round's EXEC: whether a reconciler's clock was wrong by Redis' clock."""
    redis_ms = world.redis.data.now_ms() - BASE_MS - int(world.kernel.now * 1000)
    clocks = [process.clock for process in world.processes if process.kind == "reconciler"]
    if any(abs(clock.skew_ms - redis_ms) >= 1_000 for clock in clocks):
        world.kernel.saw("round by a clock that is wrong")


def saw_at_rest(world: World) -> None:
    """What the ledger shows of strangers' announcements."""
    rows = world.ledger.rows
    for group, inbox in world.inboxes.items():
        for key in inbox.doubled():
            world.kernel.saw("effect in two inboxes of a group", f"{key[-4:]} {group}")
    for (owner, key), row in rows.candidates.items():
        if row.verdict is Verdict.REJECTED:
            world.kernel.saw("announced key rejected", key[-4:])
        if row.verdict is Verdict.BEFORE_SINCE:
            world.kernel.saw("message from before a group was added", f"{key[-4:]} {owner.group}")
    for refused in rows.refused.values():
        world.kernel.saw("announcement refused", refused.refused.reason)
