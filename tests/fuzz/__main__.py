"""`make fuzz EXECUTIONS=1000000 SEED=1`: the last line is one JSON object; exit code 1 if there are findings.

python -m tests.fuzz --executions 1000000 --seed 1 [--save FOLDER]
python -m tests.fuzz --again frame:1:4711          one input, by target, seed and number, after those
                                                       whose traces it met
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.fuzz import runner
from tests.fuzz.targets import TARGETS

BATCH = 50_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=None, help="folder for inputs that do what none may do")
    parser.add_argument("--again", default=None, help="target:seed:number")
    chosen = parser.parse_args()
    if chosen.again:
        return _again(chosen.again)
    return _run(chosen.executions, chosen.seed, chosen.save)


def _again(text: str) -> int:
    name, seed, number = text.split(":")
    (target,) = [target for target in TARGETS if target.name == name]
    with runner.watched():
        if target.refresh is not None:
            target.refresh()
        for earlier in range(int(number) - int(number) % target.fresh_every, int(number)):
            runner.execute(target, runner.input_of(target, int(seed), earlier))
        data = runner.input_of(target, int(seed), int(number))
        what = runner.execute(target, data)
    _say(f"{data!r}\n{what or 'nothing wrong'}")
    return 0 if what is None else 1


def _run(executions: int, seed: int, save: Path | None) -> int:
    started, done, findings = time.perf_counter(), 0, 0
    executed: dict[str, int] = {}
    slowest: dict[str, float] = {}
    grown: dict[str, int] = {}
    batch = 0
    while done < executions:
        outcome = runner.run(min(BATCH, executions - done), seed + batch, dies_hanging=True)
        batch += 1
        done += sum(outcome.executions.values())
        for name, count in outcome.executions.items():
            executed[name] = executed.get(name, 0) + count
            slowest[name] = max(slowest.get(name, 0.0), outcome.slowest_seconds[name])
            grown[name] = max(grown.get(name, 0), outcome.growth_bytes[name])
        for finding in outcome.findings:
            findings += 1
            _say(f"{finding.target}:{finding.seed}:{finding.number} {finding.what.strip()}")
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                (save / f"{finding.target}-{finding.seed}-{finding.number}").write_bytes(finding.data)
        if findings > 50:
            break
    result = {
        "executions": done,
        "seed": seed,
        "findings": findings,
        "by_target": executed,
        "slowest_milliseconds": {name: round(seconds * 1000, 1) for name, seconds in slowest.items()},
        "growth_mebibytes": {name: round(size / 2**20, 1) for name, size in grown.items()},
        "seconds": round(time.perf_counter() - started, 1),
    }
    _say(json.dumps(result))
    return 1 if findings else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
