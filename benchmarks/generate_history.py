"""Makes a history and its evidence with known accidents, for tests and benchmarks of the audit.

    python benchmarks/generate_history.py --rows 100000 --seed 7 --lost 20 --double 5 --late 30 --out DIR

DIR gets outbox, inbox, effects, candidates, repairs and history as contract/evidence_layout.py says, what was planted
in planted.json ({"LOST": [upper-case hex keys], ...}), and in expected.json the class counts and keys by subscription.
--rows counts the keys of the window, accidents included; around it lie as many others as --outside says. Accidents
come in variants, some of which show only in one input. The same arguments make the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan

#: Options by class.
OPTIONS = {
    "EFFECT_INCOMPLETE": "halfway",
    "EFFECT_WITHOUT_COMMIT": "phantom",
    "DOUBLE_EFFECT": "double",
    "REPAIR_DIFFERS": "differs",
    "UNNECESSARY_REPAIR": "unnecessary",
    "NOT_ANNOUNCED_NOT_FOUND": "unannounced",
    "UNACCOUNTED": "unaccounted",
    "LOST": "lost",
    "QUARANTINED": "quarantined",
    "REPAIRED": "repaired",
    "EFFECT_LATE": "late",
    "FILTERED": "filtered",
    "REJECTED": "rejected",
    "ROLLED_BACK": "rolled-back",
    "PENDING": "pending",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    for name, option in OPTIONS.items():
        parser.add_argument(f"--{option}", type=int, default=0, metavar="N", help=f"keys of class {name}")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is empty or not there")
    parser.add_argument("--topics", type=int, default=2)
    parser.add_argument("--groups", type=int, default=1, help="consumer groups of each topic")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--key-lengths", default="16", help="bytes, with commas: 16,17,28,32")
    parser.add_argument("--outside", type=int, default=-1, help="keys around the window; without it 1 %% of --rows")
    parser.add_argument("--window-seconds", type=int, default=0, help="length; 0: an hour, or 500 keys a second")
    parser.add_argument("--middle-offset-seconds", type=int, default=0, help="of the window's middle from midnight UTC")
    parser.add_argument("--files-twice", action="store_true", help="every row lies in two files")
    parser.add_argument("--shuffled", action="store_true", help="rows lie in files in random order")
    parser.add_argument("--not-compacted", action="store_true", help="history has a file for each half an hour")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    return parser


def main() -> None:
    options = _parser().parse_args()
    accidents = {name: getattr(options, option.replace("-", "_")) for name, option in OPTIONS.items()}
    plan = Plan(
        rows=options.rows,
        seed=options.seed,
        accidents={name: count for name, count in accidents.items() if count},
        topics=options.topics,
        groups=options.groups,
        shards=options.shards,
        key_lengths=tuple(int(length) for length in options.key_lengths.split(",")),
        compacted=not options.not_compacted,
        files_twice=options.files_twice,
        shuffled=options.shuffled,
        outside=options.outside,
        window_seconds=options.window_seconds,
        middle_offset_seconds=options.middle_offset_seconds,
    )
    started = time.perf_counter()
    try:
        generate(plan, options.out, workers=options.workers)
    except (ValueError, OSError) as error:
        raise SystemExit(f"generate_history: {error}") from error
    seconds = round(time.perf_counter() - started, 1)
    print(json.dumps({"out": str(options.out), "rows": plan.rows, "seed": plan.seed, "seconds": seconds}))


if __name__ == "__main__":
    main()
