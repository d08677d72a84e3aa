"""What settings let one round, one sweep or one second do: by default more than a history ever needs.

Where there is little room, rounds and sweeps go on where the last one stopped, repairs wait for their turn, and a few
losses at once open the breaker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.swarm import Swarm

_SMALL: Mapping[str, Mapping[str, Any]] = {
    "selection": {"candidates_max": 4, "scan_max": 12},
    "breaker": {"candidates_min": 2, "share": 0.05},
    "repair": {"rate_per_second": 0.2, "burst": 2.0},
    "sweep": {"page_rows": 4, "pages_maximum": 6},
}


def bounds_of(swarm: Swarm, rules: str) -> Mapping[str, Any]:
    """Fields of the product's rules of that name that are not the default."""
    return _SMALL[rules] if swarm.of("small bounds") else {}
