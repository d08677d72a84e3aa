"""Running totals of one round, for its brakes, its event and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import ReconcilerError
from reconciler.policy.brakes import RoundLoad
from reconciler.policy.judging.judge import JudgedKey

MISSHAPEN = Code("round.misshapen", shard=Field.NAME, number=Field.NUMBER, first=Field.TEXT, first_bytes=Field.NUMBER)

#: Another pass follows in the same round only if at least this share of the pass's keys was settled.
SETTLED_SHARE_MIN = 0.5


@dataclass(slots=True, kw_only=True)
class RoundTally:
    """Running totals of one round of one subscription.

    The judged keys of the first and the latest pass are kept. Of other passes, only keys are kept for which brokers
    were asked.
    """

    announced: int
    became_due: int = 0
    #: Keys that left pending.
    settled: int = 0
    #: Keys that left pending because the group does not take their tag.
    not_taken: int = 0
    #: Keys that were set apart and that the outbox's answer has made suspects.
    going_on: set[str] = field(default_factory=set)
    judged: list[JudgedKey] = field(default_factory=list)
    #: Keys that databases alone had settled, counted by verdict and not kept: keys of earlier passes, and keys that the
    #: gate held back. `let_go_first` counts those keys of earlier passes that the ledger did not know.
    let_go: Counter[Verdict] = field(default_factory=Counter)
    let_go_first: int = 0
    #: Problems that a person should know, one fact each.
    problems: list[Fact] = field(default_factory=list)
    #: The first unexpected error of a page, which is raised after the other pages.
    failure: Exception | None = None
    _pass_begins: int = 0

    @property
    def verified(self) -> int:
        """The number of judged keys in all passes."""
        return len(self.judged) + self.let_go.total()

    @property
    def asked_brokers(self) -> int:
        """The number of keys for which brokers were asked."""
        return sum(j.asked_brokers for j in self.judged)

    def note_misshapen(self, shard: Shard, members: Sequence[str]) -> None:
        """Counts members of pending that were removed because they are no unique keys."""
        first = members[0]
        self.problems.append(
            MISSHAPEN(shard=str(shard), number=len(members), first=first[:64], first_bytes=len(first) // 2)
        )

    @contextmanager
    def beyond_bugs(self) -> Iterator[None]:
        """Surrounds one page: an unexpected error in the page must not stop the other pages. Raises ReconcilerError."""
        try:
            yield
        except ReconcilerError:
            raise
        except Exception as error:  # noqa: BLE001 - raise_failure() raises it
            self.failure = self.failure or error

    def raise_failure(self) -> None:
        """Raises the first unexpected error of a page. Such an error is a bug and belongs in the log."""
        if self.failure is not None:
            raise self.failure

    def last_pass_settled(self) -> bool:
        """Returns True if the last pass had keys and databases alone settled most of them. Such keys arrived, or were
        never committed."""
        last = self.judged[self._pass_begins :]
        return bool(last) and sum(map(_is_settled, last)) >= SETTLED_SHARE_MIN * len(last)

    def begin_pass(self) -> None:
        """Begins another pass. Keys of the last pass that databases alone settled are counted and dropped, except those
        of the first pass."""
        if self._pass_begins:
            last = self.judged[self._pass_begins :]
            gone = [j for j in last if _is_settled(j)]
            self.judged[self._pass_begins :] = [j for j in last if not _is_settled(j)]
            self.let_go.update(j.entry.verdict for j in gone)
            self.let_go_first += sum(j.suspect.known is None for j in gone)
        self._pass_begins = len(self.judged)

    def sort_out(self, judged: Sequence[JudgedKey]) -> list[JudgedKey]:
        """Takes judged keys that are not due yet. Returns those that databases alone settled; these are counted and not
        kept."""
        settled = [j for j in judged if _is_settled(j)]
        self.let_go.update(j.entry.verdict for j in settled)
        return settled

    def verdicts(self) -> dict[str, int]:
        """Returns how often each verdict was given."""
        counts = self.let_go + Counter(j.entry.verdict for j in self.judged)
        return {str(verdict): count for verdict, count in sorted(counts.items())}

    def load(self) -> RoundLoad:
        """Returns the round's numbers for the brakes."""
        fresh = [j for j in self.judged if j.suspect.known is None or j.suspect.known.loss_verdict is None]
        verified = len(fresh) + self.let_go.total()
        committed = verified - self.verdicts().get(str(Verdict.REJECTED), 0)
        first_looks = sum(j.suspect.known is None for j in self.judged) + self.let_go_first
        return RoundLoad(
            # Only the share that turned out to be committed counts, because a flood of forged keys must not allow more
            # losses.
            announced=self.announced * committed // verified if verified else self.announced,
            left_over=max(0, self.became_due - first_looks),
            verified=verified,
            losses=sum(j.entry.verdict in LOSSES for j in fresh),
            half_asked=sum(j.reached_half for j in self.judged),
            found_nowhere=sum(j.found_nowhere for j in self.judged),
        )


def _is_settled(judged: JudgedKey) -> bool:
    return judged.entry.state is CandidateState.SETTLED and not judged.asked_brokers
