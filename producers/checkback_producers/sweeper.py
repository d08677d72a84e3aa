"""The sweeper announces rows that producers could not announce, and settles outbox rows whose keys every inbox has.

A sweep does six steps per source. Each step selects rows by their state and never by a range of ids. A step is harmless
if it is repeated, or if several sweepers do it. (1) The sweep writes the *sign of life*, which is the database time of
this sweep. By the sign of life, a replica proves how far it has come. (2) The sweep judges rows again that a group
takes since its setting was changed (filter_review.py). (3) The sweep announces NEW rows. (4) The sweep settles
ANNOUNCED rows from the inboxes. No other step makes rows SETTLED. (5) The sweep announces the remaining rows again
later. (6) The sweep deletes rows that were finished long ago. If an inbox has another message under a row's key, that
inbox does not settle the row. reconciler/policy/sweeping.py decides what becomes of a row; this module reads and
writes. Between two sweeps, the sweeper looks for NEW rows that became due, by one cheap statement per outbox. So the
keys that a dead producer committed need not wait for the other steps of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

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
    """Results of one sweep, summed over all sources."""

    #: NEW rows that were announced.
    announced: int = 0
    #: Rows marked SETTLED.
    settled: int = 0
    #: Rows that were announced again.
    announced_again: int = 0
    #: Rows that were looked up, but that no inbox has yet.
    unsettled: int = 0
    #: Rows whose key an inbox has with another content. They are not settled. `problems` names one such row per page.
    differing: int = 0
    #: Rows that cannot be settled, because a group has no inbox in the settings, or because the topic has no group.
    #: This is the weaker mode.
    unprovable: int = 0
    #: SETTLED and ROLLED_BACK rows that were deleted because of their age.
    deleted: int = 0
    #: Rows that took effect in two inboxes of one group. Such rows are never settled, but announced again. `problems`
    #: names one such row per page.
    doubled: int = 0
    #: Rows with damaged values that the walk or a review met. They stay as they are. `problems` names one such row per
    #: page.
    damaged: int = 0
    #: NEW rows that a walk from the oldest to the newest row passed without announcing them. The number is that of the
    #: last whole walk, or of the present walk if it is greater.
    walk_rows: int = 0
    #: Rows that became NEW again, because a changed setting lets a group take their tag.
    reopened: int = 0
    #: Progress of the review of changed tags, as one line per group.
    reviewing: tuple[str, ...] = ()
    #: Sources that were not finished, because of `problems`.
    failed_sources: int = 0
    problems: tuple[str, ...] = ()

    def plus(self, other: SweepReport) -> SweepReport:
        """Returns the sum of both reports."""
        return SweepReport(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(slots=True)
class _Walk:
    """The position of a walk over the NEW rows of one source. The next sweep continues the walk. After the newest row,
    the walk begins again."""

    #: The last row that was read. None: the walk begins at the oldest row.
    after: OutboxFact | None = None
    #: Rows that the walk has passed since it began.
    left: int = 0
    #: The same number for the last whole walk.
    last_left: int = 0

    def step(self, facts: Sequence[OutboxFact], *, left: int, is_full: bool) -> None:
        """Moves one page further. A page that is not full was the last page of the walk."""
        self.left += left
        self.after = facts[-1] if is_full else None
        if not is_full:
            self.last_left, self.left = self.left, 0

    @property
    def rows(self) -> int:
        return max(self.left, self.last_left)


class Sweeper:
    """Sweeps all sources. One thread calls sweep_once(), and another thread calls announce_due(). Several sweepers, in
    any process, do no harm.

    Outboxes are swept in parallel, so an outbox that is silent or has much to do delays no other outbox. Sources of one
    outbox are swept one after the other.

    A sweeper keeps in memory only the row at which the last sweep stopped, so that each row has its turn. After a
    restart the sweeper begins at the oldest row.
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
        """`workers` are the threads on which outboxes are swept. With None, outboxes are swept one after the other."""
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
        #: Sources whose sign of life cannot be written. An earlier report names each such source.
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
        #: Sources whose filters cannot be read. An earlier report names each such source.
        self._filterless: set[int] = set()
        self._walks = [_Walk() for _ in sources]
        #: Sources that a sweep is working on, or could not finish. announce_due() skips these sources.
        self._left_to_sweep: set[int] = set()

    def sweep_once(self) -> SweepReport:
        """Makes one pass over all sources. If a database or broker is away, the report names it, and nothing is
        raised."""
        swept = self._workers.map(lambda numbers: {n: self._sweep(n) for n in numbers}, self._by_outbox)
        reports = {number: report for together in swept for number, report in together.items()}
        total = SweepReport()
        for number in sorted(reports):
            total = total.plus(reports[number])
        return total

    def announce_due(self) -> SweepReport:
        """Announces one page of each source's NEW rows that became due since the sweep. Like sweep_once(), raises
        nothing if a database or broker is away.

        If announcing fails, the next sweep takes the source and reports the reason.
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
        """Writes the sign of life. A replica that has the sign of life also has everything that was committed before
        it. If writing fails, the sweep continues. The problem is reported once, until writing succeeds again."""
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
        """Runs the review. Returns whether rows may be settled, and a report. The review runs before NEW rows are
        announced, so that reopened rows are announced, too.

        An error does not stop announcements, and is reported once. If the table is missing or damaged, rows are settled
        as earlier releases settle them. While the database is away, no row is settled, because the tags could not be
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
        """Announces NEW rows and marks them, page by page. Rows that stay NEW for ever delay no other rows.

        Half of the pages begin at the oldest row, because a row that was committed late may be older than rows that
        were swept before. Rows without a valid unique key are left out of these pages. The other half of the pages
        belongs to a walk over all rows. The walk continues from sweep to sweep, and begins again after the newest row.
        If announcing fails for a topic, the rest of the sweep skips that topic.
        """
        failures: dict[str, ReconcilerError] = {}
        # The walk comes first. If very many rows must be skipped, reading the other half of the pages may exceed the
        # deadline of a statement.
        report = self._announce_pages(source, self._walks[number], failures, with_key=False)
        if not self._is_stopping():
            report = report.plus(self._announce_pages(source, _Walk(), failures, with_key=True))
        return report.plus(_failures(source, failures))

    def _announce_pages(
        self, source: OutboxSource, walk: _Walk, failures: dict[str, ReconcilerError], *, with_key: bool
    ) -> SweepReport:
        """Announces half of a sweep's pages, or fewer if the newest row comes earlier."""
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
        """Settles ANNOUNCED rows if every group that takes a row has it in its inbox. Announces the old rows among the
        rest again."""
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
        """Deletes rows that were finished long ago, in small transactions. The next sweep deletes what is left."""
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
        """Announces the rows. Returns the number of rows that brokers confirmed. Skips topics that are in `failures`,
        and adds topics that fail now."""
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
    """Reports rows with another content in an inbox, if there are any. The source does not count as failed."""
    if not differing:
        return SweepReport()
    first, whose = differing[0]
    problem = (
        f"{source.producer_group}: {len(differing)} keys with another content in an inbox, "
        f"the first is {first.unique_key} in that of {whose}"
    )
    return SweepReport(differing=len(differing), problems=(problem,))


def _double_effects(source: OutboxSource, doubled: Sequence[tuple[OutboxFact, tuple[int, ...]]]) -> SweepReport:
    """Reports rows with a double effect, if there are any. The source does not count as failed."""
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
    """Reports damaged rows, if there are any. The source does not count as failed: all its other rows were finished."""
    damaged = [fact for fact in facts if fact.damage is not None]
    if not damaged:
        return SweepReport()
    first = damaged[0]
    problem = f"{source.producer_group}: {len(damaged)} damaged rows, the first is {first.unique_key!r}: {first.damage}"
    return SweepReport(damaged=len(damaged), problems=(problem,))


def _failures(source: OutboxSource, failures: Mapping[str, ReconcilerError]) -> SweepReport:
    """Reports one failed source with its last problem, or nothing without a failure. While brokers are away, every
    topic has the same problem."""
    return _failure(source, [*failures.values()][-1]) if failures else SweepReport()


def _failure(source: OutboxSource, error: ReconcilerError) -> SweepReport:
    return SweepReport(failed_sources=1, problems=(f"{source.producer_group}: {error}",))
