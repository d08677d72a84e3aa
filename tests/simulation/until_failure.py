"""python -m tests.simulation.until_failure SEED HISTORIES ON,ON OFF,OFF: stops at the first failing history."""

from __future__ import annotations

import gc
import json
import logging
import sys

from tests.simulation.swarm import draw
from tests.simulation.world import run_history


def main(seed: int, histories: int, always: frozenset[str], never: frozenset[str]) -> None:
    """Prints {"caught_at": number of histories or null, "how": text}."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # modules are no garbage
    gc.set_threshold(200_000)
    caught_at, how = None, ""
    for number in range(histories):
        judgement = run_history(draw(seed + number, always=always, never=never))
        found = judgement.accidents + [f"unnecessary repair: {text}" for text in judgement.unnecessary]
        if found:
            caught_at, how = number + 1, f"seed {judgement.seed}: {found[0]}"
            break
    sys.stdout.write(json.dumps({"caught_at": caught_at, "how": how}) + "\n")


if __name__ == "__main__":
    on, off = (frozenset(filter(None, words.split(","))) for words in sys.argv[3:5])
    main(int(sys.argv[1]), int(sys.argv[2]), on, off)
