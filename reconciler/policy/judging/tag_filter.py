"""Between steps 7 and 8: keys with a tag that the group does not take leave pending, on the evidence of the outbox.

An announcement names the tag of each key, so the announcement consumer knows which ones the group will not take. It may
not drop them: announcements can be forged, and only the outbox has the tag of what was committed. Nor may it ask: an
outbox that is away would stop it. So such a key is admitted like every other one and *set apart* in the same
atomic step, in a set beside the half set. That set is a hint and nothing rests on it. Round and floor see an ordinary
pending key; a hint that is lost, forged, or not understood by a release that runs beside this one costs one verdict,
and a key that was announced twice with different tags is compared like any other. Repeated announcements with a foreign
tag hide a key from no round: a key that a round has compared is a suspect in it, set apart again or not. A key whose
outbox row has a tag that the group does not take leaves without a look-up and without a row in the ledger; the outbox
row is the evidence. Every other key goes on as without the hint. A key whose outbox does not answer stays pending and
set apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import is_unique_key
from reconciler.policy.events import EventSink, KeysNotTaken
from reconciler.policy.evidence import Lookup, OutboxRow
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.inquiry.delivery import contradiction
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import OutboxEvidence
from reconciler.policy.ports.rounds import ShardMemory

#: Keys of a subscription compared in one round, but at least a page of each shard.
COMPARED_KEYS_MAX = 100_000


def is_filtered_out(lookup: Lookup[OutboxRow], plan: SubscriptionPlan) -> bool | None:
    """True if the message was committed with a tag that the group does not take; None: the outbox did not answer.

    A row with an unreadable value is an answer: waiting does not mend it.
    """
    if lookup.is_unknown and lookup.damage is None:
        return None
    if not lookup.is_found or contradiction(lookup) is not None:
        return False
    return all(row.commit is not None and not plan.accepts(row.commit.tag) for row in lookup.records)


class TagFilter:
    """Compares keys that are set apart. Confined to the thread of the rounds.

    The cursors are an economy: a restart begins anywhere.
    """

    def __init__(self, *, memory: ShardMemory, outbox: OutboxEvidence, events: EventSink) -> None:
        self._memory = memory
        self._outbox = outbox
        self._events = events
        self._cursors: dict[Shard, int] = {}
        self._unanswered: dict[Subscription, int] = {}

    def leave(self, topic: TopicPlan, plan: SubscriptionPlan, shards: Sequence[Shard]) -> tuple[int, set[str]]:
        """Returns how many keys left pending, and those that go on as candidates of this round.

        A crash in the middle leaves the rest set apart.
        """
        share = COMPARED_KEYS_MAX // max(1, len(shards))
        found = [(shard, key) for shard in shards for key in self._apart(shard, share)]
        # Behind a page of which nothing was answered there may be keys of an outbox that is not away.
        first = self._unanswered.pop(plan.subscription, 0) % max(1, len(found))
        found = found[first:] + found[:first]
        left, going_on = 0, set[str]()
        for start in range(0, len(found), PAGE_KEYS):
            page = found[start : start + PAGE_KEYS]
            answers = self._compare(topic, plan, [key for _, key in page])
            for shard in dict.fromkeys(shard for shard, _ in page):
                left += self._sort(shard, {key: answers[key] for of, key in page if of == shard})
            going_on.update(key for key, answer in answers.items() if answer is False)
            if all(answer is None for answer in answers.values()):
                self._unanswered[plan.subscription] = first + start + PAGE_KEYS
                break  # it is away: the next round asks again
        return left, going_on

    def _apart(self, shard: Shard, share: int) -> Sequence[str]:
        found: dict[str, None] = {}
        cursor = self._cursors.pop(shard, 0)
        while True:
            cursor, keys = self._memory.apart(shard, cursor=cursor)
            found.update(dict.fromkeys(keys))
            if cursor == 0:
                break
            if len(found) >= share:
                self._cursors[shard] = cursor
                break
        return list(found)

    def _compare(self, topic: TopicPlan, plan: SubscriptionPlan, keys: Sequence[str]) -> dict[str, bool | None]:
        """Members that are no keys go on, and all do where no outbox is configured any more."""
        asked = [key for key in keys if is_unique_key(key)] if topic.evidence.has_outbox else []
        # No absence is believed here, so none has to be proved: what has no row goes on, to be judged.
        lookups = self._outbox.look_up(topic.topic, dict.fromkeys(asked, 0)) if asked else {}
        return {key: is_filtered_out(lookups[key], plan) if key in lookups else False for key in keys}

    def _sort(self, shard: Shard, answers: dict[str, bool | None]) -> int:
        not_taken = [key for key, answer in answers.items() if answer]
        going_on = [key for key, answer in answers.items() if answer is False]
        if not not_taken and not going_on:
            return 0
        left = self._memory.compared(shard, not_taken=not_taken, going_on=going_on)
        if not_taken:
            self._events.emit(KeysNotTaken(shard=shard, unique_keys=not_taken))
        return left
