"""Writes verdicts down. A key leaves pending in Redis only after its row is committed in the ledger. If the process
dies between two calls, the next round judges the key again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reconciler.clock import Clock
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.policy.events import EventSink, KeysLeft, LeftKey, NewLoss, VerdictsWritten
from reconciler.policy.judging.judge import JudgedKey
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import Candidates, VerdictEntry
from reconciler.policy.ports.rounds import ShardMemory
from reconciler.policy.repairing.repair import Repairer


class VerdictWriter:
    """Writes the verdicts of judged keys."""

    def __init__(
        self, *, memory: ShardMemory, candidates: Candidates, repairer: Repairer, clock: Clock, events: EventSink
    ) -> None:
        self._memory = memory
        self._candidates = candidates
        self._repairer = repairer
        self._clock = clock
        self._events = events

    def write(self, topic: TopicPlan, plan: SubscriptionPlan, judged: Sequence[JudgedKey], began_seconds: float) -> int:
        """Writes verdicts into SQL, then opens repairs and removes keys from pending. Returns how many keys left."""
        by_shard: dict[int, list[VerdictEntry]] = {}
        for one in judged:
            if one.supersedes_closed_row and one.suspect.known is not None:
                self._candidates.reopen(one.suspect.known)
            by_shard.setdefault(one.suspect.shard, []).append(one.entry)
        left = 0
        for number, entries in sorted(by_shard.items()):
            shard = Shard(subscription=plan.subscription, number=number)
            self._candidates.record(shard, entries)
            new_losses = tuple(_new_losses(j for j in judged if j.suspect.shard == number))
            self._events.emit(
                VerdictsWritten(
                    shard=shard,
                    entries=tuple(entries),
                    new_losses=new_losses,
                    took_seconds=self._clock.monotonic_seconds() - began_seconds,
                )
            )
            self._repairer.open(topic, {v.unique_key: v.verdict for v in entries if v.verdict in LOSSES})
            closed = [
                LeftKey(unique_key=v.unique_key, state=v.state, verdict=v.verdict)
                for v in entries
                if v.state is not CandidateState.OPEN
            ]
            if closed:
                left += self.forget(shard, closed)
        lost = [j for j in judged if j.entry.verdict in LOSSES]
        self._repairer.reopen_unsent(topic, [(j.suspect.repair, j.entry.verdict) for j in lost])
        consumed = [j.suspect for j in judged if j.entry.verdict is Verdict.CONSUMED]
        failed = [s.repair for s in consumed if s.repair is not None and s.repair.state is RepairState.FAILED]
        self._repairer.end_failed(topic, failed)
        self._repairer.withdraw(
            [s.hand_over for s in consumed if s.hand_over is not None and s.hand_over.state not in FINISHED_REPAIRS]
        )
        return left

    def forget(self, shard: Shard, keys: Sequence[LeftKey]) -> int:
        """Removes keys from pending whose ledger rows are committed."""
        left = self._memory.forget(shard, [key.unique_key for key in keys])
        self._events.emit(KeysLeft(shard=shard, keys=tuple(keys)))
        return left


def _new_losses(judged: Iterable[JudgedKey]) -> Iterator[NewLoss]:
    for one in judged:
        suspect, verdict = one.suspect, one.entry.verdict
        is_new = suspect.known is None or suspect.known.loss_verdict is None
        if verdict in LOSSES and is_new and suspect.now_ms is not None:
            yield NewLoss(verdict=verdict, waited_seconds=max(0, suspect.now_ms - suspect.first_seen_ms) / 1000)
