"""What the verification of one round has done so far: what its brakes, its event and its report tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from reconciler.brakes import RoundLoad
from reconciler.contract.subscription import Shard
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import ReconcilerError
from reconciler.verify import Judged

#: Of a pass' keys, so that it counts as nothing but arrivals.
ARRIVED_SHARE = 0.9


@dataclass(slots=True, kw_only=True)
class Looked:
    """One round of one subscription. Memory: two passes' keys, and those of the others that had not arrived."""

    announced: int
    became_due: int = 0
    #: Keys that were taken out of pending.
    settled: int = 0
    #: Keys that were, because the group does not take their tag.
    not_taken: int = 0
    judged: list[Judged] = field(default_factory=list)
    #: Keys of earlier passes that had arrived, counted and not kept; and those of them that the ledger did not know.
    arrived: int = 0
    arrived_first: int = 0
    #: What a person should know of, one line each.
    problems: list[str] = field(default_factory=list)
    #: The first error of a page that no error of ours explains: told when all others are done.
    failure: Exception | None = None
    _pass_begins: int = 0

    @property
    def verified(self) -> int:
        """Keys of all passes."""
        return len(self.judged) + self.arrived

    def note_misshapen(self, shard: Shard, members: Sequence[str]) -> None:
        """Members of pending that are no unique keys were taken out of it."""
        what = f"{len(members)} members that are no unique keys were taken out of pending"
        self.problems.append(f"{shard}: {what}, the first has {len(members[0]) // 2} bytes: {members[0][:64]}")

    @contextmanager
    def beyond_bugs(self) -> Iterator[None]:
        """One page: what goes wrong in it that nobody expects must not stop the others. Raises ReconcilerError."""
        try:
            yield
        except ReconcilerError:
            raise
        except Exception as error:  # noqa: BLE001 - raise_failure() tells it
            self.failure = self.failure or error

    def raise_failure(self) -> None:
        """Raises the first unexpected error of a page: a bug, which the log must tell."""
        if self.failure is not None:
            raise self.failure

    def last_pass_arrived(self) -> bool:
        """Whether the last pass had keys, of which nearly all had arrived."""
        last = self.judged[self._pass_begins :]
        return bool(last) and sum(map(_has_arrived, last)) >= ARRIVED_SHARE * len(last)

    def begin_pass(self) -> None:
        """Another pass begins; of the last one, unless it was the first, only what had not arrived is kept."""
        if self._pass_begins:
            last = self.judged[self._pass_begins :]
            gone = [j for j in last if _has_arrived(j)]
            self.judged[self._pass_begins :] = [j for j in last if not _has_arrived(j)]
            self.arrived += len(gone)
            self.arrived_first += sum(j.dossier.known is None for j in gone)
        self._pass_begins = len(self.judged)

    def verdicts(self) -> dict[str, int]:
        """How often each was given."""
        counts = Counter(str(j.verification.verdict) for j in self.judged)
        if self.arrived:
            counts[str(Verdict.CONSUMED)] += self.arrived
        return dict(sorted(counts.items()))

    def load(self) -> RoundLoad:
        """What the brakes want to know of it."""
        fresh = [j for j in self.judged if j.dossier.known is None or j.dossier.known.loss_verdict is None]
        first_looks = sum(j.dossier.known is None for j in self.judged) + self.arrived_first
        return RoundLoad(
            announced=self.announced,
            left_over=max(0, self.became_due - first_looks),
            verified=len(fresh) + self.arrived,
            losses=sum(j.verification.verdict in LOSSES for j in fresh),
            ladders=sum(j.reached_half for j in self.judged),
            ladders_absent=sum(j.found_nowhere for j in self.judged),
        )


def _has_arrived(judged: Judged) -> bool:
    return judged.verification.verdict is Verdict.CONSUMED
