"""Between steps 7 and 8: removes keys from pending whose tag the group does not take, on the evidence of the outbox.

An announcement contains the tag of each key, so the announcement consumer knows which keys the group will not take. The
consumer may not drop these keys, because announcements can be forged, and only the outbox has the tag of the committed
message. The consumer may not ask the outbox either, because an outbox that is away would stop it. So the consumer
admits such a key like any other key and *sets the key apart*: in the same atomic step, the key is added to a set beside
the half set. That set is only a hint. For the round and the floor the key is an ordinary pending key.

A hint may be lost or forged, and another release beside this release may not know hints. In each of these cases the
cost is one verdict. A key that was announced twice with different tags is compared like any other. Repeated
announcements with a foreign tag cannot hide a key. Once a round has compared the key, it is a suspect in that round,
even if it is set apart again.

If the outbox row has a tag that the group does not take, the key leaves without a look-up and without a row in the
ledger, because the outbox row is the evidence. Every other key is treated as if it had not been set apart. A key whose
outbox does not answer stays pending and set apart.
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

#: Maximum number of keys of a subscription that are compared in one round. At least one page per shard is compared.
COMPARED_KEYS_MAX = 100_000


def is_filtered_out(lookup: Lookup[OutboxRow], plan: SubscriptionPlan) -> bool | None:
    """Returns True if the message was committed with a tag that the group does not take. None: the outbox did not
    answer.

    A row with an unreadable value counts as an answer, because waiting does not cure it.
    """
    if lookup.is_unknown and lookup.damage is None:
        return None
    if not lookup.is_found or contradiction(lookup) is not None:
        return False
    return all(row.commit is not None and not plan.accepts(row.commit.tag) for row in lookup.records)


class TagFilter:
    """Compares keys that are set apart with the outbox. Only the thread of the rounds uses this filter.

    The cursors only save time. After a restart the comparison may begin anywhere.
    """

    def __init__(self, *, memory: ShardMemory, outbox: OutboxEvidence, events: EventSink) -> None:
        self._memory = memory
        self._outbox = outbox
        self._events = events
        self._cursors: dict[Shard, int] = {}
        self._unanswered: dict[Subscription, int] = {}

    def leave(self, topic: TopicPlan, plan: SubscriptionPlan, shards: Sequence[Shard]) -> tuple[int, set[str]]:
        """Returns how many keys left pending, and which keys are suspects of this round.

        A crash in the middle leaves the remaining keys set apart.
        """
        share = COMPARED_KEYS_MAX // max(1, len(shards))
        found = [(shard, key) for shard in shards for key in self._apart(shard, share)]
        # If a whole page had no answer, there may be keys of another outbox that is not away.
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
                break  # the outbox is away: the next round asks again
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
        """Compares keys with the outbox. Members that are no keys are suspects. If no outbox is configured any more,
        all keys are suspects."""
        asked = [key for key in keys if is_unique_key(key)] if topic.evidence.has_outbox else []
        # No absence is trusted here, so no absence has to be proved: a key without a row is judged.
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
