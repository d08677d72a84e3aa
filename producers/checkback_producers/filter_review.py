"""Reviews outbox rows after a group's setting `tags` has grown. Rows that were settled without the group are judged
again.

A row is settled when every group that takes its tag has it, so SETTLED is true only for one value of `tags`. The outbox
stores by which tags of a group its rows were settled. Before a row is settled by fewer tags, the stored value is
narrowed. After all rows within the brokers' retention were looked at, the stored value is widened. Rows that the
group's inbox has stay as they are. The remaining rows become NEW, and the same sweep announces them. Announcements need
not be read again, because the outbox alone says what was committed and with which tag.

A crash loses nothing. The rows' states record what was done, and a review that crashed begins again with the oldest
row. Two sweepers with different settings narrow the value again and again, until one sweeper ends. A damaged row may
have been settled too early. So the value is widened only after the row is repaired or older than the brokers'
retention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkback_producers.ports import Outbox
from reconciler.clock import utc_text
from reconciler.contract.tables import OutboxState
from reconciler.policy.ports.evidence import InboxEvidence
from reconciler.policy.sweeping import OutboxFact, SettledTags, SweptSubscription, Widening, agreed_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterReviewOutcome:
    """The result of one look."""

    #: False: another sweeper changed the stored value meanwhile, so the present setting may not settle rows yet.
    may_settle: bool = True
    #: Number of rows that became NEW again.
    reopened: int = 0
    #: Rows that the review could not read.
    damaged: tuple[OutboxFact, ...] = ()
    #: Progress of the review, as one line for each group whose tags have grown.
    progress: tuple[str, ...] = ()


class FilterReview:
    """The review of one producer group's rows in one outbox. Only the sweeper's thread uses it.

    The position of the review only saves time. After a restart the review begins with the oldest row again.
    """

    def __init__(
        self,
        producer_group: str,
        outbox: Outbox,
        *,
        subscriptions: Sequence[SweptSubscription],
        inboxes: InboxEvidence,
        retention_seconds: float,
    ) -> None:
        self._producer_group = producer_group
        self._outbox = outbox
        self._subscriptions = tuple(subscriptions)
        self._inboxes = inboxes
        self._retention_seconds = retention_seconds
        self._widenings: tuple[Widening, ...] = ()
        self._after: OutboxFact | None = None
        #: True if a row between the oldest one and the position is damaged.
        self._is_damaged = False
        #: True once all rows were looked at and announced again. From then on the review waits for damaged rows.
        self._is_waiting = False

    def look(self, *, page_rows: int, pages_maximum: int, is_stopping: Callable[[], bool]) -> FilterReviewOutcome:
        """Notices a change of the tags and reads `pages_maximum` pages. Raises DatabaseAway, or ConfigurationError if
        the table is missing."""
        widenings = self._agree()
        if widenings is None:
            return FilterReviewOutcome(may_settle=False)
        if widenings != self._widenings:
            self._widenings, self._after = widenings, None
            self._is_damaged = self._is_waiting = False
        if not widenings:
            return FilterReviewOutcome()
        reopened = pages = 0
        damaged: tuple[OutboxFact, ...] = ()
        while True:
            page = self._outbox.written(
                self._producer_group,
                younger_than_seconds=self._retention_seconds,
                limit=page_rows,
                after=self._after,
            )
            sound = [fact for fact in page.facts if fact.damage is None]
            damaged += tuple(fact for fact in page.facts if fact.damage is not None)
            missing = [self._missing(widening, sound) for widening in widenings]
            known = [keys for keys in missing if keys is not None]
            if len(known) < len(missing):
                return self._outcome(reopened, damaged, "an inbox is away")
            self._is_damaged |= len(sound) < len(page.facts)
            reopened += self._outbox.reopen(sorted(set().union(*known)))
            if len(page.facts) < page_rows:
                return self._outcome(reopened, damaged, self._end())
            self._after = page.facts[-1]
            pages += 1
            if pages == pages_maximum or is_stopping():
                return self._outcome(reopened, damaged, f"looked at up to {utc_text(self._after.created_at_ms)}")

    def _agree(self) -> tuple[Widening, ...] | None:
        """Narrows the stored tags to the tags that both values have. Returns None if another sweeper was faster."""
        stored = self._outbox.settled_tags(self._producer_group)
        widenings: list[Widening] = []
        for swept in self._subscriptions:
            found = stored.get(_key(swept))
            common = agreed_tags(found, swept)
            if found is None or common != found.tags:
                if not self._write(swept, common, None if found is None else found.version):
                    return None
                found = SettledTags(tags=common, version=1 if found is None else found.version + 1)
            if common != swept.tags:
                widenings.append(Widening(swept, found))
        return tuple(widenings)

    def _missing(self, widening: Widening, facts: Sequence[OutboxFact]) -> set[str] | None:
        """Returns the keys that the group takes now and that its inbox lacks. Without an inbox, returns all keys that
        the group takes now. Returns None if the inbox does not answer."""
        concerned = [fact for fact in facts if widening.concerns(fact) and self._is_due(fact)]
        subscription = widening.swept.subscription
        if not concerned or not self._inboxes.is_configured(subscription):
            return {fact.unique_key for fact in concerned}
        effects = self._inboxes.look_up(subscription, [fact.unique_key for fact in concerned])
        return widening.missing(concerned, effects)

    def _is_due(self, fact: OutboxFact) -> bool:
        """Returns False if an earlier look of this review has made the row NEW again."""
        return not self._is_waiting or fact.state is OutboxState.SETTLED

    def _end(self) -> str:
        """Widens the stored value. If a row is damaged, or if another sweeper has changed the value meanwhile, the next
        look begins with the oldest row."""
        self._is_waiting, self._after, self._is_damaged = self._is_damaged, None, False
        if self._is_waiting:
            return "waits for damaged rows"
        for widening in self._widenings:
            self._write(widening.swept, widening.swept.tags, widening.settled_by.version)
        return "done"

    def _write(self, swept: SweptSubscription, tags: frozenset[str] | None, instead_of: int | None) -> bool:
        return self._outbox.write_settled_tags(self._producer_group, _key(swept), tags, instead_of=instead_of)

    def _outcome(self, reopened: int, damaged: tuple[OutboxFact, ...], how_far: str) -> FilterReviewOutcome:
        lines = (f"{one.swept.subscription} takes more tags than before: {how_far}" for one in self._widenings)
        return FilterReviewOutcome(reopened=reopened, damaged=damaged, progress=tuple(lines))


def _key(swept: SweptSubscription) -> tuple[str, str]:
    return swept.subscription.topic, swept.subscription.group
