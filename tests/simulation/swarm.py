"""What one history is like: drawn from a second PRNG, so that each kind of trouble is off in half of the histories."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from reconciler.policy.pace import RoundPace
from tests.simulation.faults import ASKED_FOR, BESIDE_HALVES, FAULTS, OF_HALVES

#: Releases of the broker.
VERSIONS = ("3.2.6", "4.2.0", "4.4.0", "4.9.7", "5.3.3")

#: Faults of histories in which halves announce that these have only where they are asked for.
OF_QUERIES = frozenset({"sends by a query", "effects by a query"})

#: Fault -> faults that its histories leave out.
LEFT_OUT = {
    # One inbox of a group has another message's row, and no other one the effect.
    "keys taken": ("several inboxes", "inboxes by instance"),
    # Who trusts announcements believes these, too.
    "no outbox known": ("forged announcements", "foreign copies"),
    # Of a row without a digest nothing is compared but its tag.
    "outboxes contradict": ("rows without a digest",),
    # Another content of the same tag is the message's, as far as can be known.
    "rows without a digest": ("foreign copies",),
    # Nobody who cannot see effects sees that one is half, another message's, or the second, or that a repaired message
    # was given up. And what is never settled is announced twice and no more.
    "no inbox known": (
        "halfway handlers",
        "inboxes by instance",
        "keys taken",
        "queues anew",
        "broker tail",
        "retention",
        "ledger damage",
        "tags corrected",
        "poison",
    ),
    # Of a group that pops nobody knows whether it had no use for a message, or has it still.
    "filters by SQL92": ("groups that pop",),
    # By a clock that is wrong by hours a young row is an old one.
    "inboxes kept short": ("database clocks",),
    # After its clock was set back the ledger asks again hours later.
    "another outbox": ("database clocks",),
    # What was settled before its group came is announced to nobody again.
    "since moved": ("queues anew", "retention", "broker tail", "database clocks"),
    "halves announce": tuple(sorted(FAULTS.keys() - BESIDE_HALVES - {"halves announce", *OF_QUERIES, *OF_HALVES})),
}

#: Fault -> one that it cannot be without.
BROUGHT = {
    "outboxes contradict": "several outboxes",
    "another outbox": "long troubles",
    "acts on anything": "operators",
    "lag beside pops": "groups that pop",
    "no sign of popping": "groups that pop",
    "since moved": "groups added",
    "groups removed": "operators",
    "two tries": "halves announce",
    "several tags": "halves announce",
    "older copies ended": "halves announce",
    "query replica": "halves announce",
    "moving group": "halves announce",
    "effects by a query": "sends by a query",
    "sends by a query": "halves announce",
}

#: Settings that few have: half of the histories with one of them have workers of their own, too.
SET_UPS = frozenset({"no inbox known", "inboxes kept short", "filters by SQL92", "dry run", "groups removed"})

#: Troubles that are drawn one by one. A trouble that is on has a strength between 0 and 1.
TROUBLES = tuple(FAULTS)


#: Shares of histories: whose sweepers look for due rows, and whose rounds are closer together than five seconds.
LOOK_FOR_DUE_ROWS, OFTEN = 0.2, 0.1


@dataclass(kw_only=True)
class Swarm:
    """Parameters of one history; times in seconds."""

    seed: int
    messages: int
    messages_per_second: float
    version: str
    brokers: int
    queues: int
    groups: int
    shards: int
    producers: int
    consumers: int
    reconcilers: int
    sweepers: int
    announcers: int
    round_interval: float
    grace_period: float
    skew_margin: float
    commit_generations: int
    keep_bodies: bool
    local_transaction_timeout: float
    repair_order: str
    #: Clocks differ by up to nine tenths of the margin, and step: no kind of fault, no planted bug needs it.
    clocks_differ: bool = False
    #: Requests to brokers that a process sends at once: no fault, either.
    workers: int = 1
    #: Several requests to brokers are on their way at the same time.
    asks_at_once: bool = False
    #: Between two sweeps rows that became due are looked for.
    looks_for_due_rows: bool = False
    troubles: dict[str, float] = field(default_factory=dict)

    def of(self, trouble: str) -> float:
        """Strength; 0 is off."""
        return self.troubles.get(trouble, 0.0)

    @property
    def pace(self) -> RoundPace:
        """What numbers of rounds, and of a round, are worth."""
        return RoundPace(interval_seconds=self.round_interval)

    @property
    def older_sets(self) -> int:
        """Older commit sets that Redis keeps."""
        return self.pace.rounds(self.commit_generations)

    @property
    def load_seconds(self) -> float:
        """How long messages are sent."""
        return self.messages / self.messages_per_second


def draw(
    seed: int,
    *,
    only: frozenset[str] | None = None,
    always: frozenset[str] = frozenset(),
    never: frozenset[str] = frozenset(),
) -> Swarm:
    """The parameters of a seed. `always`, `never`: troubles that are on, or off, in every history, for planted bugs."""
    dice = random.Random(seed ^ 0x5EED5EED)
    pick = dice.choice
    swarm = Swarm(
        seed=seed,
        messages=dice.randint(100, 125),
        messages_per_second=pick((2.0, 4.0, 8.0)),
        version=pick(VERSIONS),
        brokers=pick((1, 1, 2)),
        queues=pick((1, 2)),
        groups=pick((1, 1, 2)),
        shards=pick((1, 1, 2)),
        producers=pick((1, 2)),
        consumers=pick((1, 1, 2)),
        reconcilers=pick((1, 1, 2)),
        sweepers=pick((1, 1, 2)),
        announcers=pick((1, 1, 2)),
        round_interval=pick((5.0, 10.0, 15.0)),
        grace_period=pick((10.0, 20.0, 30.0)),
        skew_margin=pick((2.0, 5.0, 10.0)),
        commit_generations=pick((1, 2, 2, 4)),
        keep_bodies=dice.random() < 0.7,
        local_transaction_timeout=pick((15.0, 20.0, 40.0)),
        repair_order=pick(("full", "full", "full", "republish", "hand-over")),
    )
    # Where everything goes wrong at once, a careful reconciler repairs nothing until it is over: some histories have
    # few faults, so that repairs meet them.
    share = pick((0.1, 0.2, 0.5, 0.8, 0.9))
    swarm.troubles = _troubles(dice, share, only=only, always=always, never=never)
    if swarm.of("overlapping consumers") or swarm.of("inboxes by instance"):
        swarm.consumers = max(2, swarm.consumers)
    if swarm.of("no outbox known"):
        swarm.keep_bodies = False  # or nobody reads them
    if swarm.of("several outboxes"):
        swarm.producers = 2
    if any(fault in always for fault in ("groups that pop", "lag beside pops", "no sign of popping")):
        swarm.version = "5.3.3"
    swarm.version = _release(swarm)
    if swarm.of("groups added"):
        swarm.groups = 1  # and one more
    if any(map(swarm.of, ("keys of text", "lag beside pops", "groups removed"))):
        swarm.groups = 2
    if swarm.of("route"):
        swarm.brokers = 2
    if swarm.of("pauses") or swarm.of("claims answered late"):
        swarm.reconcilers = 2
    if swarm.of("sends by a query") and swarm.repair_order == "hand-over":
        swarm.repair_order = "full"  # a worker is handed nothing over by a row
    swarm.clocks_differ = dice.random() < 0.5 and only is None
    swarm.workers = 4 if always & SET_UPS and seed % 2 else 1
    swarm.asks_at_once = bool(seed % 2)
    if only is None and not always:  # the others are what they were
        swarm.looks_for_due_rows = dice.random() < LOOK_FOR_DUE_ROWS
        if dice.random() < OFTEN:
            swarm.round_interval = pick((1.0, 2.0))
    return swarm


def _release(swarm: Swarm) -> str:
    """One that knows what the history needs."""
    if swarm.of("filters by SQL92") and swarm.version == "3.2.6":
        return "4.2.0"  # the first ones know tags only
    if swarm.of("halves announce") and swarm.version in ("3.2.6", "4.2.0"):
        return "4.4.0"  # the older ones have no half topic
    return swarm.version


def _troubles(
    dice: random.Random, share: float, *, only: frozenset[str] | None, always: frozenset[str], never: frozenset[str]
) -> dict[str, float]:
    """Those that are on, with their strengths."""
    found: dict[str, float] = {}
    for trouble in TROUBLES:
        if trouble in ASKED_FOR:
            continue  # no dice are thrown: histories without them are what they were
        strength = dice.random()
        is_on = dice.random() < share
        if trouble in never:
            continue
        if trouble in always:
            found[trouble] = 0.5 + strength / 2
        elif is_on and (only is None or trouble in only):
            found[trouble] = strength
    found |= dict.fromkeys(sorted(ASKED_FOR & always), 1.0)
    for fault, other in BROUGHT.items():
        if fault in found:
            found[other] = 1.0
    if "halves announce" in found:
        drawn = [one for one in OF_HALVES if dice.random() < 0.5]
        found |= {one: 1.0 for one in drawn if one not in never and (only is None or one in only)}
    left_out = {other for fault in found for other in LEFT_OUT.get(fault, ())}
    return {fault: strength for fault, strength in found.items() if fault not in left_out}
