"""A process stands still while the ledger's answer to a claim on repairs, or to the note of a send, is on its way.

Some answers come when half of the claim's time has passed, some when it has run out and another process has the repair.
Whoever sends then sends what is not its own any more. That is no SIGSTOP between a look at the clock and a send, which
no client can prevent: here the clock is looked at after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent

from reconciler.contract.defaults import CLAIM_LEASE_SECONDS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How many of the answers are late.
SHARE = 0.25
#: How long after the last other trouble: many losses are proved then.
GOES_ON_SECONDS = 60.0
LATE_SECONDS_MAX = 1.5 * CLAIM_LEASE_SECONDS


def answer_late(world: World) -> None:
    """Until a while after all other troubles."""
    repairs, kernel = world.ledger.repairs, world.kernel

    def is_over() -> bool:
        return world.is_healed and kernel.now > world.healed_at + GOES_ON_SECONDS

    def watched(act: Callable[..., Any]) -> Callable[..., Any]:
        def late(items: Sequence[tuple[Any, ...]], **named: Any) -> Any:
            answer = act(items, **named)
            if not items:  # the owner of none is not told
                return answer
            owner = str(items[0][-1]).partition("/")[0]
            asking = next((one for one in world.processes if one.name == owner and not one.is_dead), None)
            is_heard = asking is not None and getcurrent() is not kernel._hub  # a server that went on answers nobody
            if asking is not None and is_heard and not is_over() and kernel.dice.random() < SHARE:
                seconds = LATE_SECONDS_MAX * kernel.dice.random()
                kernel.saw("ledger answered a claim late", f"{owner}: {seconds:.0f} s")
                asking.sleep(seconds)
            return answer

        return late

    for name in ("claim_all", "change_all"):
        setattr(repairs, name, watched(getattr(repairs, name)))
