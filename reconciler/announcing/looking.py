"""Asks, once for a whole process, what each idle subscription has to know every second.

One statement asks whether an outage is open. Pipelines ask whether Redis still has the stored offsets, and renew the
leases of the queues. A look decides nothing. A look calls each subscription whose state has changed, and the
subscription then asks for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.queue_view import JoinedQueue
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.announcing import HalfSets

LOOK_SECONDS = 1.0
#: Seconds between two comparisons of a stored offset. Redis may lose its last writes while no announcement comes.
COMPARE_SECONDS = 2.0


class AnnouncementLook:
    """Looks at the subscriptions that take what common readers hand out. One thread at a time may use it."""

    def __init__(
        self, steps: Sequence[AnnouncementStep], half_sets: HalfSets, outages: OutageWatch, *, clock: Clock
    ) -> None:
        self._steps = steps
        self._half_sets = half_sets
        self._outages = outages
        self._clock = clock

    def run_once(self) -> None:
        """Calls the subscriptions that have something to do. Raises no ReconcilerError. If a server does not answer,
        the subscriptions find this out by themselves."""
        for queue in self._called():
            queue.wake()

    def _called(self) -> Iterator[JoinedQueue]:
        now = self._clock.monotonic_seconds()
        seen = [(step, queue) for step in self._steps for queue in step.joined(now)]
        try:
            has_outage = self._outages.seen()[1] is not None
        except ReconcilerError:
            has_outage = True
        if has_outage:
            yield from (queue for _, queue in seen)
            return
        renewing = [one for one in seen if one[1].is_lease_due]
        tokens = {step.token: step.lease_seconds for step, _ in renewing}
        for token, lease_seconds in tokens.items():
            places = [(queue.shard, queue.queue) for step, queue in renewing if step.token == token]
            held = self._half_sets.renew_leases(places, token=token, lease_seconds=lease_seconds)
            for step, queue in renewing:
                if (queue.shard, queue.queue) in held:
                    step.lease_renewed(queue.queue, at=now)
                else:
                    yield queue
        comparing = [one for one in seen if now - one[1].compared_at >= COMPARE_SECONDS]
        stored = self._half_sets.positions([(queue.shard, queue.queue) for _, queue in comparing])
        for step, queue in comparing:
            is_same = stored.get((queue.shard, queue.queue)) == queue.position
            step.compared(queue.queue, is_same=is_same, at=now)
            if not is_same:
                yield queue
        yield from (queue for _, queue in seen if queue.is_due)
