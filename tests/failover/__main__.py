"""`make failover FAILOVERS=50 SEED=1 KIND=cluster|sentinel|both`: the last line is one JSON object; exit 1 if wrong."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.failover.accidents import ACCIDENTS
from tests.failover.run import failover, is_right

KINDS = ("cluster", "sentinel")


def main() -> int:
    """0 if nothing was lost, vanished or stalled."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover")
    parser.add_argument("--failovers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=(*KINDS, "both"), default="both")
    parser.add_argument("--accidents", default=",".join(ACCIDENTS), help="which, with commas between them")
    parser.add_argument("--per-second", type=float, default=60.0, help="messages")
    parser.add_argument("--keep", type=Path, help="a folder for logs and data; else a temporary one")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # what is lost on purpose is not worth a line each
    started = time.monotonic()

    def tell(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - started:7.1f} s  {what}\n")

    results = []
    for kind in KINDS if given.kind == "both" else (given.kind,):
        with tempfile.TemporaryDirectory(prefix="reconciler-failover-") as temporary:
            folder = (given.keep or Path(temporary)) / kind
            folder.mkdir(parents=True, exist_ok=True)
            result = failover(
                folder,
                kind=kind,
                failovers=given.failovers,
                seed=given.seed,
                tell=tell,
                per_second=given.per_second,
                kinds=tuple(given.accidents.split(",")),
            )
        results.append(result | {"seconds": round(time.monotonic() - started)})
    sys.stdout.write(json.dumps(results[0] if len(results) == 1 else {"runs": results}) + "\n")
    return 0 if all(map(is_right, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
