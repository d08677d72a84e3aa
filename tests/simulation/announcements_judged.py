"""Judges announcements: what lies in a queue before the offset that a group has stored was read by the group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reconciler.contract.unique_key import member_of
from tests.simulation.kernel import BASE_MS

if TYPE_CHECKING:
    from tests.simulation.checkers import Judgement
    from tests.simulation.world import World

UNIQUE_KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
#: Arguments of the script that admits, before the members.
BEFORE_MEMBERS = 8
#: From the store of an announcement to the last look at its queue: whoever reads has had some turns there.
SOME_TURNS_SECONDS = 20.0
#: An announcement that waits for longer must have been read, whoever was stopped.
WAITS_SECONDS_MAX = 120.0


class AnnouncementsJudged:
    """Sees every admission; a queue that begins anew gives the same offsets to other announcements."""

    def __init__(self, world: World, judgement: Judgement) -> None:
        self._world = world
        self._other = judgement.other
        #: Root of a shard's keys in Redis and member -> when it was admitted last.
        self._admitted: dict[tuple[str, bytes], float] = {}
        #: Group, broker and queue -> when it was asked last for announcements, in a step that has ended.
        self._asked: dict[tuple[str, str, int], float] = {}

    def stepped(self, group: str, broker: str, queue_id: int, *, asked_at: float) -> None:
        """A process has done what the announcements of a queue made due: one that stopped in between has not."""
        self._asked[group, broker, queue_id] = asked_at

    def scripted(self, keys: list[str], arguments: list[Any], answer: Any) -> None:
        """A script has run."""
        if len(keys) > 1 and str(keys[1]).endswith(":offsets") and answer and answer[0] == 1:
            root = str(keys[1]).removesuffix(":offsets")
            now = self._world.kernel.now
            self._admitted.update(((root, member), now) for member in arguments[BEFORE_MEMBERS:])

    def judge(self) -> None:
        """At the end."""
        for name, offsets in self._world.redis.data.values.items():
            group = name.split(":")[4] if name.endswith(":offsets") else ""
            if group in self._world.inboxes:
                for field, stored in offsets.items():
                    broker, _, queue = (field.decode() if isinstance(field, bytes) else str(field)).partition("/")
                    if broker in self._world.cluster.brokers and queue.isdecimal():
                        asked = self._asked.get((group, broker, int(queue)), 0.0)
                        self._passed(name.removesuffix(":offsets"), broker, int(queue), int(stored), asked)

    def _passed(self, root: str, name: str, queue_id: int, stored: int, asked: float) -> None:
        broker = self._world.cluster.brokers[name]
        first, _ = broker.bounds(UNIQUE_KEY_TOPIC, queue_id)
        due = max(asked - SOME_TURNS_SECONDS, self._world.kernel.now - WAITS_SECONDS_MAX)
        for record in broker.read(UNIQUE_KEY_TOPIC, queue_id, first, stored - first) if stored > first else ():
            if (record.store_timestamp_ms - BASE_MS - broker.clock.skew_ms) / 1000 > due:
                return  # whoever reads was stopped, and has not been there since
            stored_at = (record.store_timestamp_ms - BASE_MS - 2 * abs(broker.clock.skew_ms)) / 1000 - 10
            for key in keys_of_announcement(record.body):
                if self._admitted.get((root, member_of(key)), stored_at - 1) < stored_at and key in self._world.orders:
                    self._other.append(f"{key} lies before offset {stored} of {name}/{queue_id}, and was not read")
                    return


def keys_of_announcement(body: bytes) -> list[str]:
    """Keys of a body; none where it is no announcement."""
    try:
        return [str(entry["key"]) for entry in json.loads(body)["keys"]]
    except (ValueError, KeyError, TypeError):
        return []
