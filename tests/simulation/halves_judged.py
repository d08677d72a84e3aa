"""Judges a history in which halves announce: by the transactions of services and by brokers' queues, never by what the
reconciler believes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import key_of
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.policy.evidence import Presence
from reconciler.policy.ports.ledger import Candidate, VerdictEntry
from tests.simulation.business_table import CANCELLED
from tests.simulation.checkers import Checkers, Judgement
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.sends_judged import NEVER_SECONDS, SendsJudged, is_of_siblings, unfinished, unsent

if TYPE_CHECKING:
    from tests.simulation.halves_world import HalvesWorld
    from tests.simulation.reconciling import LedgerSeen


class HalvesJudged(Checkers):
    """Sees every verdict as it is written, and the state of each order when it was asked for."""

    _world: HalvesWorld

    def __init__(self, world: HalvesWorld) -> None:
        super().__init__(world)
        self.sends = SendsJudged(world, self.judgement.other)
        #: Process and order -> the primary's state when the process asked for the order last, and when that was.
        self._states: dict[tuple[Process, str], tuple[str | None, float]] = {}
        #: Process -> group and key -> what its effect query answered last; None: nothing.
        self._effects: dict[Process, dict[tuple[str, str], bool | None]] = {}

    # ---- while it runs

    def watch(self, process: Process, ledger: LedgerSeen) -> None:
        """Verdicts that the process writes, and its sends."""
        self.sends.watch(process, ledger)
        record = ledger.candidates.record

        def watched(shard: Any, entries: Sequence[VerdictEntry], *arguments: Any, **named: Any) -> Any:
            for entry in entries:
                self._judged(process, shard.subscription, entry)
            return record(shard, entries, *arguments, **named)

        ledger.candidates.__dict__["record"] = watched

    def asked(self, process: Process, orders: Sequence[str]) -> None:
        """A process asks for the states of orders."""
        now = self._world.kernel.now
        self._states.update({(process, order): (self._world.table.state(order), now) for order in orders})

    def said(self, process: Process, order: str) -> tuple[str | None, float]:
        """The primary's state when the process asked for the order last, and when that was."""
        return self._states.get((process, order), (None, -NEVER_SECONDS))

    def committed_at(self, key: str) -> float:
        """A half announces when it is sent."""
        return self._world.sent_at.get(key, -1e9)

    def repaired(self, process: Process, unique_key: str, kind: str) -> None:
        """END COMMIT or a republish has reached a broker."""
        judgement = self.judgement
        judgement.repairs += 1
        if not self._world.plan.sends_by_query:
            judgement.other.append(f"{unique_key} was sent by {kind} of {process.name}: no row alone may bring that")
            return
        if not self._world.is_committed(unique_key):
            judgement.phantom.append(f"{unique_key} was sent by {kind}, but its business never committed")
            return
        self._claimed(process, unique_key, kind)
        self._proved(process, unique_key, kind)
        if self._had_shown_copy(process, unique_key):
            judgement.other.append(f"{unique_key} was sent by {kind}, but a broker had its copy")
        self.sends.sent(process, unique_key, kind)

    def copied(self, record: Any) -> None:
        super().copied(record)
        self.sends.copied(record)

    def floor_raised(self, subscription: Subscription) -> None:
        """What lies below a floor is judged at the end: whoever never read a half names no loss of it."""

    def ended(self, process: Process, broker: Any, half: Any) -> None:
        """The index is proved once more behind the look for halves: what was put back since is seen right before."""
        self.sends.ended(process, broker, half)

    def _judged(self, process: Process, subscription: Subscription, entry: VerdictEntry) -> None:
        if is_of_siblings(entry):
            self._called_undecided(process, subscription, entry)
        elif entry.verdict in LOSSES:
            self._world.kernel.saw("loss proved by a row", f"{entry.unique_key[-4:]} {entry.verdict}")
            self._called_lost(process, subscription, entry)
        elif subscription.group in self._world.by_effect_query:
            self._by_effect_query(process, subscription, entry)
        elif entry.verdict is Verdict.DELIVERED:
            self._world.kernel.saw("message delivered, effect unknown", entry.unique_key[-4:])
            if not self._has_passed(subscription.group, entry.unique_key):
                self.judgement.other.append(
                    f"{entry.unique_key} is called DELIVERED: {subscription.group} passed no copy"
                )

    def asked_effects(self, process: Process, group: str, answers: Mapping[str, bool | None]) -> None:
        """An effect query is asked; None: it has not answered."""
        self._effects.setdefault(process, {}).update({(group, key): answer for key, answer in answers.items()})

    def _by_effect_query(self, process: Process, subscription: Subscription, entry: VerdictEntry) -> None:
        """A copy that the group has passed settles nothing: what the query has answered last does."""
        group, key = subscription.group, entry.unique_key
        answer = self._effects.get(process, {}).get((group, key))
        wanted = {Verdict.CONSUMED: True, Verdict.DELIVERED_NOT_APPLIED: False}
        if entry.verdict is Verdict.CONSUMED:
            self._world.kernel.saw("effect found by a query", key[-4:])
        if entry.verdict is Verdict.DELIVERED or wanted.get(entry.verdict, answer) is not answer:
            self.judgement.other.append(f"{key} is called {entry.verdict} in {group}; its effect query said {answer}")

    def _called_undecided(self, process: Process, subscription: Subscription, entry: VerdictEntry) -> None:
        """A copy settles a try, whatever became of the others. A copy that comes after this look waits for the next
        one, which may be an hour later."""
        seen = entry.evidence.get("committed_copies")
        is_answered = isinstance(seen, Mapping) and seen["presence"] != Presence.UNKNOWN
        if is_answered and self._had_shown_copy(process, entry.unique_key):
            self.judgement.other.append(
                f"{entry.unique_key} is called UNKNOWN in {subscription.group} for its tries, but a broker has its copy"
            )

    def _called_lost(self, process: Process, subscription: Subscription, entry: VerdictEntry) -> None:
        world, key = self._world, entry.unique_key
        said = f"{key} is called {entry.verdict} in {subscription.group}"
        if not world.is_committed(key):
            self.judgement.phantom.append(f"{said}, but its business never committed")
            return
        row = world.candidate(subscription.group, key)
        if row is not None and row.loss_verdict is not None and subscription.group not in world.inboxes.unknown:
            return  # until its effect is there it stays what it was
        state, _ = self.said(process, world.orders[key].keys[0])
        if state in (None, CANCELLED):
            self.judgement.other.append(f"{said}, but the primary said {state} when it was asked")
        if self._had_copy(key, {broker: proved for broker, (proved, _) in process.proved.items()}):
            self.judgement.other.append(f"{said}, but a broker has its copy")

    def _had_shown_copy(self, process: Process, key: str) -> bool:
        """A copy that the process' last look for it could see. A later probe of the same pass, for another question,
        proves nothing of that look."""
        looked = {of: proved for (of, one), (_, proved) in process.looked_for_copies.items() if one == key}
        return self._had_copy(key, looked)

    def _had_copy(self, key: str, proved: Mapping[str, int]) -> bool:
        """A copy that lies before the probe which had proved the index of its broker when the process looked for it."""
        return any(
            record.physical_offset <= proved.get(broker.name, 0)
            for broker in self._world.cluster.brokers.values()
            for record in broker.index.get((TOPIC, key), ())
        )

    def _has_passed(self, group: str, key: str) -> bool:
        return any(
            broker.offsets.get((group, TOPIC, record.queue_id), 0) > record.queue_offset
            for broker in self._world.cluster.brokers.values()
            for record in broker.index.get((TOPIC, key), ())
        )

    # ---- at the end

    def judge(self, *, is_quiet: bool, why_not: str) -> Judgement:
        world, judgement = self._world, self.judgement
        judgement.count(world)
        for group, inbox in world.inboxes.items():
            for effect in inbox.effects:
                if not world.is_committed(effect.unique_key):
                    judgement.phantom.append(f"{effect.unique_key} had an effect in {group}, but was never committed")
            for key in world.orders:
                if why := untold(world, group, key):
                    judgement.lost.append(why)
        self._budgets()
        if not is_quiet and not judgement.lost:
            judgement.unaccounted.append(f"not quiet at the end: {why_not}")
        return judgement


def untold(world: HalvesWorld, group: str, key: str) -> str:
    """A committed message has no effect, and no loss is named; empty: neither, or nobody could know."""
    if not world.is_committed(key) or world.inboxes[group].has_row(key):
        return ""
    row = world.candidate(group, key)
    if world.copies[key]:
        return f"{key} was delivered, and has no effect in {group}"
    if world.is_cancelled(key) or _is_told(world, row, key):
        return unsent(world, key) if world.plan.sends_by_query else ""
    said = "nothing" if row is None else f"{row.state} {row.verdict}: {row.evidence.get('reason')}"
    return f"{key} has no effect in {group}; the ledger says {said}"


def _is_told(world: HalvesWorld, row: Candidate | None, key: str) -> bool:
    """Of one of several tries nobody can say which of them committed."""
    if row is None or row.state is not CandidateState.OPEN:
        return False
    return row.verdict in LOSSES or (is_of_siblings(row) and world.has_siblings(key))


def unrest_of_halves(world: HalvesWorld) -> str:
    """Why the world is not quiet yet; empty when it is."""
    if world.is_producing():
        return "messages are still sent"
    if world.table.open and not world.producers_stay_away:
        return "a local transaction is open"
    for group in world.inboxes:
        for key in world.orders:
            if why := untold(world, group, key):
                return why
            row = world.candidate(group, key)
            if row is not None and row.state is CandidateState.OPEN:
                is_of_tries = is_of_siblings(row) and world.has_siblings(key)
                if world.copies[key] and not is_of_tries:
                    return f"{key} was delivered, and is {row.verdict} in {group}"
                if row.verdict not in LOSSES and not is_of_tries:
                    return f"{key} is {row.verdict} in {group}: {row.evidence.get('reason')}"
    if world.has_open_outage():
        return "an outage is open"
    return unfinished(world) or _still_pending(world)


def _still_pending(world: HalvesWorld) -> str:
    for name, members in world.redis.data.values.items():
        for member in members if name.endswith((":pending", ":half")) else ():
            row = world.candidate(name.split(":")[4], key_of(member))
            if row is None or row.state is not CandidateState.OPEN:
                return f"{key_of(member)} is still in {name}"
    return ""
