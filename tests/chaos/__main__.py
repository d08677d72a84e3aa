"""`make chaos MINUTES=10 SEED=1`: the last line is one JSON object; exit 1 if anything came out wrong."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import chaos


def main() -> int:
    """0 if no accident happened, everything came to rest, and quiet losses were repaired in time if there were any."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=400.0, help="messages a second over all producers")
    parser.add_argument("--keep", type=Path, help="a folder for logs and data; else a temporary one")
    parser.add_argument(
        "--secured", action="store_true", help="brokers 5.3.3 and Redis with users and TLS; nothing between them and us"
    )
    given = parser.parse_args()
    started = time.monotonic()

    def tell(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - started:7.1f} s  {what}\n")

    with tempfile.TemporaryDirectory(prefix="reconciler-chaos-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = chaos(
            folder,
            seconds=given.minutes * 60,
            seed=given.seed,
            rate_per_second=given.rate,
            tell=tell,
            is_secured=given.secured,
        )
    sys.stdout.write(json.dumps(result) + "\n")
    is_good = result["accidents"] == 0 and not result["rest"] and result["l1_holds"] is not False
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
