"""A judge of claims on repairs: none is taken before its length is over, unless the ledger's clock was set forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.policy.ports.ledger import Repair

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Milliseconds are cut off.
ROUNDED_SECONDS = 0.1

Place = tuple[str, str, str, str]


class LeasesJudged:
    """Watches claims as they are taken."""

    def __init__(self, world: World, other: list[str]) -> None:
        self._world = world
        self._other = other
        #: Row -> token, when it was claimed, for how long, and by how much the ledger's clock was wrong.
        self._claims: dict[Place, tuple[str, float, float, int]] = {}
        repairs = world.ledger.repairs
        self._claim = repairs.claim
        setattr(repairs, "claim", self._claimed)  # noqa: B010 - a method

    def _claimed(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        place = (repair.environment, repair.topic, repair.scope, repair.unique_key)
        held = self._world.ledger.rows.repairs.get(place)
        taken = self._claim(repair, token=token, lease_seconds=lease_seconds)
        if taken is None:
            return None
        now, skew_ms = self._world.kernel.now, self._world.ledger_clock.skew_ms
        old = self._claims.get(place)
        if held is not None and old is not None and held.token == old[0]:
            _, since, seconds, skew_before_ms = old
            if now - since < seconds - ROUNDED_SECONDS and skew_ms <= skew_before_ms:
                self._other.append(
                    f"{repair.unique_key}: {token} takes the claim of {held.token} after {now - since:.1f} s"
                )
        self._claims[place] = (token, now, lease_seconds, skew_ms)
        return taken
