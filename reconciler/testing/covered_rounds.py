"""Which announcement offsets the last rounds of a shard covered, and the floor that follows: pure.

The script of the round (reconciler/shards/round.lua) does this inside Redis, and says why it is right; the memory for
policy tests and the simulator does it here. A contract test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.contract.keyspace import COVERED_ROUNDS_MAX

#: at_ms of a round -> "<broker>/<queue>" -> next offset of the unique-key topic.
Covered = Mapping[int, Mapping[str, int]]


def with_round(
    covered: Covered, *, at_ms: int, offsets: Mapping[str, int], oldest_pending_ms: int | None
) -> tuple[dict[int, Mapping[str, int]], Mapping[str, int]]:
    """What is kept after the round, and the floor: offsets of the newest round before the oldest pending key."""
    times = sorted({*covered, at_ms})
    before = [time for time in times if oldest_pending_ms is None or time < oldest_pending_ms]
    kept = [time for time in times if not before or time >= before[-1]]
    if len(kept) > COVERED_ROUNDS_MAX:
        holes = {kept[i]: (kept[i + 1] - kept[i - 1]) / (at_ms - kept[i - 1]) for i in range(1, len(kept) - 1)}
        kept.remove(min(holes, key=lambda time: holes[time]))
    after = {time: offsets if time == at_ms else covered[time] for time in kept}
    return after, after[before[-1]] if before else {}
