"""`make model`: the whole search, about seven minutes on one core; the last line is one JSON object."""

from __future__ import annotations

import json
import sys
import time

from tests.model import stories
from tests.model.halves import search as halves
from tests.model.halves.state import Bounds as HalvesBounds
from tests.model.halves.state import Rules as HalvesRules
from tests.model.search import search
from tests.model.state import Bounds, Rules

SEARCHES = {
    "2 messages, 1 group, Redis loses everything or falls back": Bounds(
        groups=1, crashes=1, lost_ends=1, falls_back=True
    ),
    "2 messages, 1 group, 2 losses of Redis, which also comes back with what it had undone": Bounds(
        groups=1, crashes=1, redis_losses=2, lost_ends=1, falls_back=True, comes_back=True
    ),
    "1 message, 2 groups, Redis loses everything or falls back": Bounds(messages=1, falls_back=True),
    "2 messages, 2 groups, 2 crashes, 1 loss of Redis, 2 lost ENDs": Bounds(),
}
_CALM = HalvesBounds(tries=2, leaves=0, comes=0, lost=0, crashes=0, questions=1)
#: Of the world in which halves announce.
SEARCHES_OF_HALVES = {
    "halves announce, 1 try, everything twice": (
        HalvesBounds(tries=1, leaves=2, comes=2, lost=2, crashes=2, questions=3),
        HalvesRules(),
    ),
    "halves announce, 2 tries": (HalvesBounds(tries=2, questions=1), HalvesRules()),
    "effect query, 1 try": (HalvesBounds(tries=1, questions=3), HalvesRules(has_effect_query=True)),
    "effect query, 2 tries": (_CALM, HalvesRules(has_effect_query=True)),
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 1 if a promise breaks."""
    violations = total = 0
    began = time.process_time()
    for title, bounds in SEARCHES.items():
        started = time.process_time()
        found = search(bounds, Rules())
        seconds = time.process_time() - started
        total += found.states
        violations += found.violation is not None
        _say(f"{title}: {found.states} states, {found.steps} steps, depth {found.depth}, {seconds:.0f} s of processor")
        if found.violation is not None:
            _say(f"  {found.violation.kind}: {found.violation.detail}")
    for title, (of, rules) in SEARCHES_OF_HALVES.items():
        started = time.process_time()
        seen = halves.search(of, rules)
        seconds = time.process_time() - started
        total += seen.states
        violations += bool(seen.kind)
        _say(f"{title}: {seen.states} states, {seen.steps} steps, depth {seen.depth}, {seconds:.0f} s of processor")
        if seen.kind:
            _say(f"  {seen.kind}: {seen.detail}")
    counterexamples = 0
    for weakened in stories.WEAKENED:
        _say(f"\n{stories.told(weakened)}")
        counterexamples += 1
    seconds = round(time.process_time() - began, 1)
    _say(
        json.dumps({"states": total, "violations": violations, "counterexamples": counterexamples, "seconds": seconds})
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
