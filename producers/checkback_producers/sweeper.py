"""The sweeper: announces what producers could not announce, and settles outbox rows that every inbox has.

It does six steps per source. Each step selects rows by their state and never by a range of ids, and is harmless if it
is repeated or if several sweepers do it. (1) It writes the *sign of life* (the database time of this sweep, by which a
replica proves how far it has come). (2) It judges rows again that a group takes since its setting was changed
(filter_review.py). (3) It announces NEW rows. (4) It settles ANNOUNCED rows from the inboxes; no other step makes rows
SETTLED. (5) It announces the remaining rows again later. (6) It deletes rows that were finished long ago. An inbox that
has another message under a row's key settles nothing. reconciler/policy/sweeping.py decides what becomes of a row; the
loop here reads and writes. Between two sweeps it looks for NEW rows that became due, by one cheap statement per outbox:
so what a dead producer committed waits for no other step of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from checkback_producers.announcer import Announcer
from checkback_producers.filter_review import FilterReview
from checkback_producers.ports import Outbox
from reconciler.clock import utc_text
from reconciler.contract.announcement import AnnouncedKey
from reconciler.errors import ReconcilerError, TransientError
from reconciler.policy.ports.evidence import InboxEvidence
from reconciler.policy.ports.workers import OneByOne, Workers
from reconciler.policy.sweeping import OutboxFact, Settlement, SweepRules, SweptSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSource:
    """One producer group's rows in one outbox."""

    producer_group: str
    outbox: Outbox


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What one sweep did, summed over all sources."""

    #: NEW rows that were announced.
    announced: int = 0
    #: Rows marked SETTLED.
    settled: int = 0
    #: Rows that were announced again.
    announced_again: int = 0
    #: Rows that were looked up and that no inbox has yet.
    unsettled: int = 0
    #: Rows whose key an inbox has with another content: they are not settled, and `problems` names one per page.
    differing: int = 0
    #: Rows that cannot be settled, because a group has no inbox configured, or the topic has no group (weaker mode).
    unprovable: int = 0
    #: SETTLED and ROLLED_BACK rows that were deleted because of their age.
    deleted: int = 0
    #: Rows that took effect in two inboxes of one group: they are never settled but announced again, and `problems`
    #: names them.
    doubled: int = 0
    #: Rows with damaged values that the walk or a review met: they stay as they are, and `problems` names one per page.
    damaged: int = 0
    #: NEW rows that a walk from the oldest to the newest passed without announcing them: in the last whole walk, or in
    #: the present one if that has more.
    walk_rows: int = 0
    #: Rows that became NEW again, because a group takes their tag since its setting was changed.
    reopened: int = 0
    #: The progress of that review, one line per group.
    reviewing: tuple[str, ...] = ()
    #: Sources that were not finished, because of `problems`.
    failed_sources: int = 0
    problems: tuple[str, ...] = ()

    def plus(self, other: SweepReport) -> SweepReport:
        """Returns the sum of both reports."""
        return SweepReport(
            announced=self.announced + other.announced,
            settled=self.settled + other.settled,
            announced_again=self.announced_again + other.announced_again,
            unsettled=self.unsettled + other.unsettled,
            differing=self.differing + other.differing,
            unprovable=self.unprovable + other.unprovable,
            deleted=self.deleted + other.deleted,
            doubled=self.doubled + other.doubled,
            damaged=self.damaged + other.damaged,
            walk_rows=self.walk_rows + other.walk_rows,
            reopened=self.reopened + other.reopened,
            reviewing=self.reviewing + other.reviewing,
            failed_sources=self.failed_sources + other.failed_sources,
            problems=self.problems + other.problems,
        )


@dataclass(slots=True)
class _Walk:
    """The position of a walk over the NEW rows of one source: the next sweep continues it, and after the newest row it
    begins again."""

    #: The last row that was read; None: the walk begins at the oldest row.
    after: OutboxFact | None = None
    #: Rows that the walk has passed since it began.
    left: int = 0
    #: The same number for the last whole walk.
    last_left: int = 0

    def step(self, facts: Sequence[OutboxFact], *, left: int, is_full: bool) -> None:
        """Moves one page further; a page that is not full was the last one."""
        self.left += left
        self.after = facts[-1] if is_full else None
        if not is_full:
            self.last_left, self.left = self.left, 0

    @property
    def rows(self) -> int:
        return max(self.left, self.last_left)


class Sweeper:
    """Sweeps all sources. One thread calls sweep_once() and another one announce_due(); any number of sweepers in any
    process do no harm.

    Outboxes are swept in parallel: one that is silent or has much to do delays no other. Sources of one outbox are
    swept one after the other.

    It keeps in memory only where the last sweep stopped, so that each row has its turn; after a restart it begins at
    the oldest row.
    """

    def __init__(
        self,
        sources: Sequence[OutboxSource],
        *,
        announcer: Announcer,
        subscriptions: Sequence[SweptSubscription],
        inboxes: InboxEvidence,
        rules: SweepRules | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        workers: Workers | None = None,
    ) -> None:
        """`workers`: threads on which outboxes are swept. None: one after the other."""
        self._workers = workers or OneByOne()
        self._sources = tuple(sources)
        of_outbox: dict[int, list[int]] = {}
        for number, source in enumerate(self._sources):
            of_outbox.setdefault(id(source.outbox), []).append(number)
        #: Numbers of the sources of each outbox.
        self._by_outbox = list(of_outbox.values())
        self._announcer = announcer
        self._inboxes = inboxes
        self._rules = rules or SweepRules()
        self._is_stopping = is_stopping
        self._by_topic: dict[str, list[SweptSubscription]] = {}
        for swept in subscriptions:
            self._by_topic.setdefault(swept.subscription.topic, []).append(swept)
        self._stopped_at: dict[int, OutboxFact | None] = {}
        #: Sources whose sign of life cannot be written; an earlier report says so.
        self._lifeless: set[int] = set()
        self._reviews = [
            FilterReview(
                source.producer_group,
                source.outbox,
                subscriptions=subscriptions,
                inboxes=inboxes,
                retention_seconds=self._rules.retention_seconds,
            )
            for source in sources
        ]
        #: Sources whose filters cannot be read; an earlier report says so.
        self._filterless: set[int] = set()
        self._walks = [_Walk() for _ in sources]
        #: Sources that a sweep is working on, or could not finish: announce_due() skips them.
        self._left_to_sweep: set[int] = set()

    def sweep_once(self) -> SweepReport:
        """Makes one pass over all sources; never raises for a database or broker that is away, because the report names
        it."""
        swept = self._workers.map(lambda numbers: {n: self._sweep(n) for n in numbers}, self._by_outbox)
        reports = {number: report for together in swept for number, report in together.items()}
        total = SweepReport()
        for number in sorted(reports):
            total = total.plus(reports[number])
        return total

    def announce_due(self) -> SweepReport:
        """Announces one page of each source's NEW rows that became due since the sweep; raises as rarely as
        sweep_once().

        If this fails, the source is left to the next sweep, which reports the reason.
        """
        total = SweepReport()
        for report in self._workers.map(self._announce_due, self._by_outbox):
            total = total.plus(report)
        return total

    def _announce_due(self, numbers: Sequence[int]) -> SweepReport:
        """Announces the due rows of one outbox's sources."""
        looked_at = {self._sources[n].producer_group: n for n in numbers if n not in self._left_to_sweep}
        if not looked_at or self._is_stopping():
            return SweepReport()
        outbox, age_seconds = self._sources[numbers[0]].outbox, self._rules.sweep_after_seconds
        announced = 0
        try:
            due = outbox.with_due_rows(list(looked_at), older_than_seconds=age_seconds)
            for group in sorted(due):
                source, failures = self._sources[looked_at[group]], dict[str, ReconcilerError]()
                page = outbox.unannounced(
                    group, older_than_seconds=age_seconds, limit=self._rules.page_rows, with_key=True
                )
                confirmed = self._announce(source, _sound(page.facts), failures)
                announced += confirmed
                if failures or not confirmed:
                    self._left_to_sweep.add(looked_at[group])
        except ReconcilerError:
            self._left_to_sweep.update(looked_at.values())
        return SweepReport(announced=announced)

    def _sweep(self, number: int) -> SweepReport:
        """Sweeps one source."""
        source, report = self._sources[number], SweepReport()
        if self._is_stopping():
            return report
        self._left_to_sweep.add(number)
        report = report.plus(self._show_life(source, number))
        may_settle, reviewed = self._review(source, number)
        report = report.plus(reviewed)
        try:
            new = self.announce_new(source, number)
            if not new.failed_sources:
                self._left_to_sweep.discard(number)
            report = report.plus(new)
            if may_settle:
                report = report.plus(self.settle(source, number))
            report = report.plus(self.delete_old(source))
        except ReconcilerError as error:
            report = report.plus(_failure(source, error))
        return replace(report, walk_rows=self._walks[number].rows)

    def _show_life(self, source: OutboxSource, number: int) -> SweepReport:
        """Writes the sign of life: a replica that has it also has everything that was committed before. If it fails,
        the sweep continues; the problem is reported once, until writing succeeds again."""
        try:
            source.outbox.mark_swept()
        except ReconcilerError as error:
            if number in self._lifeless:
                return SweepReport()
            self._lifeless.add(number)
            return SweepReport(problems=(f"{source.producer_group}: no sign of life: {error}",))
        self._lifeless.discard(number)
        return SweepReport()

    def _review(self, source: OutboxSource, number: int) -> tuple[bool, SweepReport]:
        """Runs the review; returns whether rows may be settled, and what was done. It runs before NEW rows are
        announced, so that reopened rows are among them.

        An error does not stop announcements, and is reported once. Without the table, or if it is damaged, rows are
        settled as earlier releases do it. While the database is away no row is settled, because the tags could not be
        recorded.
        """
        rules = self._rules
        try:
            reviewed = self._reviews[number].look(
                page_rows=rules.page_rows, pages_maximum=rules.pages_maximum, is_stopping=self._is_stopping
            )
        except ReconcilerError as error:
            may_settle = not isinstance(error, TransientError)
            if number in self._filterless:
                return may_settle, SweepReport()
            self._filterless.add(number)
            problem = f"{source.producer_group}: a change of tags is not seen: {error}"
            return may_settle, SweepReport(problems=(problem,))
        self._filterless.discard(number)
        report = SweepReport(reopened=reviewed.reopened, reviewing=reviewed.progress)
        return reviewed.may_settle, report.plus(_damage(source, reviewed.damaged))

    def announce_new(self, source: OutboxSource, number: int = 0) -> SweepReport:
        """Announces NEW rows and marks them, page by page, so that rows that stay NEW for ever delay no others.

        Half of the pages begin at the oldest row, because a row that was committed late is older than rows that were
        swept before it. Rows without a valid unique key are left out of these pages. The other half belongs to a walk
        over all rows, which continues from sweep to sweep and then begins again. If announcing fails for a topic, the
        rest of the sweep skips that topic.
        """
        failures: dict[str, ReconcilerError] = {}
        # The walk comes first, because past very many rows the other half may exceed the time of a statement.
        report = self._announce_pages(source, self._walks[number], failures, with_key=False)
        if not self._is_stopping():
            report = report.plus(self._announce_pages(source, _Walk(), failures, with_key=True))
        return report.plus(_failures(source, failures))

    def _announce_pages(
        self, source: OutboxSource, walk: _Walk, failures: dict[str, ReconcilerError], *, with_key: bool
    ) -> SweepReport:
        """Announces half of a sweep's pages, or those up to the newest row."""
        rules = self._rules
        report = SweepReport()
        for _ in range(max(1, rules.pages_maximum // 2)):
            page = source.outbox.unannounced(
                source.producer_group,
                older_than_seconds=rules.sweep_after_seconds,
                limit=rules.page_rows,
                after=walk.after,
                with_key=with_key,
            )
            confirmed = self._announce(source, _sound(page.facts), failures)
            report = replace(report, announced=report.announced + confirmed).plus(_damage(source, page.facts))
            is_full = len(page.facts) == rules.page_rows
            walk.step(page.facts, left=len(page.facts) - confirmed, is_full=is_full)
            if not is_full or self._is_stopping():
                break
        return report

    def settle(self, source: OutboxSource, number: int = 0) -> SweepReport:
        """Settles ANNOUNCED rows that the inbox of every group that takes them has; announces old ones of the rest
        again."""
        rules = self._rules
        report = SweepReport()
        after = self._stopped_at.get(number)
        for _ in range(rules.pages_maximum):
            page = source.outbox.announced(
                source.producer_group,
                older_than_seconds=rules.settle_after_seconds,
                limit=rules.page_rows,
                after=after,
            )
            report = report.plus(self._settle_page(source, _sound(page.facts), page.now_ms))
            report = report.plus(_damage(source, page.facts))
            after = page.facts[-1] if len(page.facts) == rules.page_rows else None
            self._stopped_at[number] = after
            if after is None or report.failed_sources or self._is_stopping():
                break
        return report

    def delete_old(self, source: OutboxSource) -> SweepReport:
        """Deletes rows that were finished long ago, in small transactions; the next sweep deletes the rest."""
        rules = self._rules
        total = 0
        for _ in range(rules.delete_transactions_maximum):
            deleted = source.outbox.delete_finished(
                source.producer_group, older_than_seconds=rules.keep_seconds, limit=rules.delete_rows
            )
            total += deleted
            if deleted < rules.delete_rows or self._is_stopping():
                break
        return SweepReport(deleted=total)

    def _settle_page(self, source: OutboxSource, facts: Sequence[OutboxFact], now_ms: int) -> SweepReport:
        found = self._sort(facts)
        source.outbox.mark_settled([fact.unique_key for fact in found.settled])
        due = found.due_again(self._rules, now_ms)
        failures: dict[str, ReconcilerError] = {}
        confirmed = self._announce(source, due, failures)
        report = SweepReport(
            settled=len(found.settled),
            announced_again=confirmed,
            unsettled=len(found.absent) + len(found.unknown),
            unprovable=len(found.unprovable),
        )
        contradictions = _double_effects(source, found.doubled).plus(_difference(source, found.differing))
        return report.plus(contradictions).plus(_failures(source, failures))

    def _announce(self, source: OutboxSource, facts: Iterable[OutboxFact], failures: dict[str, ReconcilerError]) -> int:
        """Announces the rows; returns how many brokers confirmed. Topics in `failures` are skipped; topics that fail
        now are added to it."""
        by_topic: dict[str, list[AnnouncedKey]] = {}
        for fact in facts:
            key = AnnouncedKey(unique_key=fact.unique_key, tag=fact.tag, committed_at_ms=fact.created_at_ms)
            by_topic.setdefault(fact.topic, []).append(key)
        total = 0
        for topic, keys in by_topic.items():
            if topic in failures:
                continue
            announced = self._announcer.announce(topic, source.producer_group, keys)
            source.outbox.mark_announced(announced.unique_keys)
            total += len(announced.unique_keys)
            if announced.error is not None:
                failures[topic] = announced.error
        return total

    def _sort(self, facts: Sequence[OutboxFact]) -> Settlement:
        settlement = Settlement()
        by_topic: dict[str, list[OutboxFact]] = {}
        for fact in facts:
            by_topic.setdefault(fact.topic, []).append(fact)
        for topic, rows in by_topic.items():
            subscribed = self._by_topic.get(topic, [])
            answers = {
                swept.subscription: self._inboxes.look_up(
                    swept.subscription, [fact.unique_key for fact in rows if swept.wants(fact.tag)]
                )
                for swept in subscribed
                if self._inboxes.is_configured(swept.subscription)
            }
            for fact in rows:
                settlement.add(fact, subscribed, answers)
        return settlement


def _difference(source: OutboxSource, differing: Sequence[tuple[OutboxFact, str]]) -> SweepReport:
    """Reports such rows; the source does not count as failed, as with damaged rows."""
    if not differing:
        return SweepReport()
    first, whose = differing[0]
    problem = (
        f"{source.producer_group}: {len(differing)} keys with another content in an inbox, "
        f"the first is {first.unique_key} in that of {whose}"
    )
    return SweepReport(differing=len(differing), problems=(problem,))


def _double_effects(source: OutboxSource, doubled: Sequence[tuple[OutboxFact, tuple[int, ...]]]) -> SweepReport:
    """Reports such rows; the source does not count as failed, as with damaged rows."""
    if not doubled:
        return SweepReport()
    first, applied_ms = doubled[0]
    problem = (
        f"{source.producer_group}: {len(doubled)} rows are not settled, the first is {first.unique_key}: several "
        "inboxes of the group have this key: a double effect, applied at "
        + " and ".join(utc_text(at_ms, timespec="milliseconds") for at_ms in applied_ms)
    )
    return SweepReport(doubled=len(doubled), problems=(problem,))


def _sound(facts: Sequence[OutboxFact]) -> list[OutboxFact]:
    return [fact for fact in facts if fact.damage is None]


def _damage(source: OutboxSource, facts: Sequence[OutboxFact]) -> SweepReport:
    """Reports such rows; the source does not count as failed, because all its other rows were finished."""
    damaged = [fact for fact in facts if fact.damage is not None]
    if not damaged:
        return SweepReport()
    first = damaged[0]
    problem = f"{source.producer_group}: {len(damaged)} damaged rows, the first is {first.unique_key!r}: {first.damage}"
    return SweepReport(damaged=len(damaged), problems=(problem,))


def _failures(source: OutboxSource, failures: Mapping[str, ReconcilerError]) -> SweepReport:
    """Reports nothing, or one failed source with its last problem: without brokers, every topic has the same
    problem."""
    return _failure(source, [*failures.values()][-1]) if failures else SweepReport()


def _failure(source: OutboxSource, error: ReconcilerError) -> SweepReport:
    return SweepReport(failed_sources=1, problems=(f"{source.producer_group}: {error}",))
