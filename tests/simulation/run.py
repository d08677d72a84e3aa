"""make simulate HISTORIES=N SEED=S [MUTANTS=1]: many histories on all cores, mutants, the classic round; one JSON line.

A failing seed is printed with the command that replays it, the first ones with a smaller history that still fails. A
long run shows how far it is on a terminal; ^C ends it with the figures of what was judged so far, and exit code 130.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import track

from tests.simulation.ablation import try_all
from tests.simulation.checkers import Judgement
from tests.simulation.classic import run_classic
from tests.simulation.conditions import all_probed, is_explained, table
from tests.simulation.economies import in_turn, undisturbed
from tests.simulation.faults import fired, too_rare
from tests.simulation.history import run_history
from tests.simulation.mutants import mutants
from tests.simulation.shrinking import Variant, shrink, troubles_of
from tests.simulation.swarm import draw
from tests.simulation.watching import watched

CHUNK = 20
#: Histories of the original algorithm: enough to know its rate.
CLASSIC_MAX = 1_000
#: Failing seeds that are shown.
SHOWN_MAX = 20
#: Failing seeds that are made smaller.
SHRUNK_MAX = 3
#: One repair in vain in so many histories is tolerated, each with its reason told.
HISTORIES_A_REPAIR_IN_VAIN = 10_000
#: Exit code after ^C, as shells have it.
INTERRUPTED = 130


def judge_seeds(
    seeds: range, *, troubles: tuple[str, ...] | None = None, messages: int | None = None
) -> list[Judgement]:
    """Histories of some seeds, in one process; with other troubles or messages than they draw, if such are given."""
    with undisturbed():
        return [
            run_history(Variant(seed=seed, troubles=troubles, messages=messages).swarm()) for seed in in_turn(seeds)
        ]


def judge_classic(seeds: range) -> list[Judgement]:
    """The same for the original algorithm."""
    with undisturbed():
        return [run_classic(draw(seed)) for seed in in_turn(seeds)]


def judged(
    first: int, count: int, *, jobs: int, judge: Callable[[range], list[Judgement]] = judge_seeds
) -> Iterator[Judgement]:
    """All histories, in no particular order."""
    chunks = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield from judge(chunk)
        return
    # ^C is for the parent, which then ends its workers.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with multiprocessing.get_context("fork").Pool(jobs, initializer=signal.signal, initargs=ignore) as pool:
        for part in pool.imap_unordered(judge, chunks):
            yield from part


def add_up(
    found: Iterator[Judgement], *, write: Callable[[str], None], failing: list[int] | None = None
) -> tuple[dict[str, Any], Counter[str]]:
    """Sums, with the failing seeds told as they come, and noted in `failing`; ^C ends it, noted as `interrupted`."""
    sums: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    shown = 0
    try:
        for judgement in found:
            _add(judgement, sums)
            seen += judgement.seen
            if (judgement.has_failed or judgement.unnecessary) and shown < SHOWN_MAX:
                shown += 1
                vain = [f"unnecessary repair: {text}" for text in judgement.unnecessary]
                for line in [*judgement.accidents, *vain][:3]:
                    write(f"seed {judgement.seed}: {line}")
                if failing is not None:
                    failing.append(judgement.seed)
                    write(f"seed {judgement.seed}: replay with  {Variant(seed=judgement.seed).command}")
    except KeyboardInterrupt:
        sums["interrupted"] = 1
    return dict(sums), seen


def _add(judgement: Judgement, sums: Counter[str]) -> None:
    sums["histories"] += 1
    sums["messages"] += judgement.messages
    sums["repairs"] += judgement.repairs
    sums["failing_histories"] += judgement.has_failed
    for name in ("lost", "double", "phantom", "body_differs", "unaccounted", "other"):
        sums[name] += len(getattr(judgement, name))
    sums["unnecessary_repairs"] += len(judgement.unnecessary)
    sums["raced_repairs"] += len(judgement.raced)


def _shown(found: Iterator[Judgement], total: int) -> Iterator[Judgement]:
    """The histories, with a bar on a terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        return iter(track(found, "histories", total=total, console=console))
    return found


def _run_histories(options: argparse.Namespace, write: Callable[[str], None]) -> tuple[dict[str, Any], Counter[str]]:
    """One history told, or many; what fails is made smaller."""
    troubles, messages = troubles_of(options.troubles), options.messages
    if options.histories == 1:
        story: list[str] = []
        swarm = Variant(seed=options.seed, troubles=troubles, messages=messages).swarm()
        write(str(swarm))
        judgement = run_history(swarm, story=story)
        for line in story:
            write(line)
        return add_up(iter([judgement]), write=write)
    judge = partial(judge_seeds, troubles=troubles, messages=messages)
    failing: list[int] = []
    all_of_them = judged(options.seed, options.histories, jobs=options.jobs, judge=judge)
    found = add_up(_shown(all_of_them, options.histories), write=write, failing=failing)
    for seed in sorted(failing)[:SHRUNK_MAX]:
        with undisturbed():
            smallest = shrink(Variant(seed=seed, troubles=troubles, messages=messages))
        if smallest is not None:
            write(f"seed {seed}: the smallest found  {smallest.command}")
    return found


def _run_mutants(options: argparse.Namespace, write: Callable[[str], None]) -> tuple[dict[str, Any], bool]:
    """Every planted bug until its first catch, and without each fault that it needs."""
    known = mutants() if options.mutants else []
    outcomes = []
    for outcome in try_all(known, seed=options.seed, jobs=options.jobs):
        outcomes.append(outcome)
        write(f"mutant {outcome.mutant.name}: {outcome.caught_at or 'SURVIVED'}  {outcome.how[:120]}")
        for problem in outcome.problems:
            write(f"DOES NOT HOLD: {problem}")
    shown = [outcome for outcome in outcomes if not outcome.problems]
    answer = {
        "mutants_caught": sum(outcome.caught_at is not None for outcome in outcomes),
        "mutants": len(known),
        "faults_shown": len({fault for outcome in shown for fault in outcome.without}),
        "pairs": sum(len(outcome.without) for outcome in outcomes),
        "pairs_wrong": sum(len(outcome.without) for outcome in outcomes if outcome.problems),
    }
    return answer, len(shown) < len(known)


def _run_conditions(options: argparse.Namespace, write: Callable[[str], None]) -> int:
    """What histories see of the product's conditions, in place of everything else."""
    seen: Counter[int] = Counter()
    found = all_probed()  # as the histories have them: the files may change while these run

    def judgements() -> Iterator[Judgement]:
        for part, counted in watched(options.seed, options.histories, jobs=options.jobs):
            seen.update(counted)
            yield from part

    sums, _ = add_up(judgements(), write=write)
    for line in table(found, seen):
        write(line)
    unseen = [bool(place.unseen(seen)) for module in found.values() for place in module.places]
    explained = sum(
        bool(outcomes) and is_explained(path, place, outcomes)
        for path, module in found.items() for place in module.places for outcomes in [place.unseen(seen)]
    )  # fmt: skip
    answer = {"histories": sums["histories"], "places": len(unseen), "unseen": sum(unseen), "for_a_reason": explained}
    write(json.dumps(answer | {"seen_share": round(1 - sum(unseen) / len(unseen), 3)}))
    return int(bool(sums["failing_histories"]))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--classic", type=int, default=None, help="histories of the original algorithm")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--troubles", default=None, help="only these: names with commas between, or none")
    parser.add_argument("--conditions", action="store_true", help="which outcomes of conditions are seen, no more")
    parser.add_argument("--messages", type=int, default=None, help="messages a history")
    options = parser.parse_args(arguments)
    try:
        troubles_of(options.troubles)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: list[str]) -> int:
    """Prints the JSON object as its last line; 1 if a promise was broken."""
    options = _options(arguments)
    logging.disable(logging.CRITICAL)

    def write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    if options.conditions:
        return _run_conditions(options, write)
    started = time.monotonic()
    sums, seen = _run_histories(options, write)
    seconds = time.monotonic() - started
    is_interrupted = bool(sums.get("interrupted"))
    classic, failures = 0, 0
    if options.histories > 1 and not is_interrupted:
        wanted = min(options.histories, CLASSIC_MAX) if options.classic is None else options.classic
        for judgement in judged(options.seed, wanted, jobs=options.jobs, judge=judge_classic):
            classic += 1
            failures += judgement.has_failed or bool(judgement.unnecessary)
    if is_interrupted:
        options.mutants = 0
    of_mutants, is_uncaught = _run_mutants(options, write)
    write("accidents that happened, by kind:")
    for kind, number in sorted(seen.items()):
        write(f"{number:9d}  {kind}")
    is_drawn = options.troubles is None and options.messages is None and not is_interrupted
    rare = too_rare(seen, histories=sums.get("histories", 0)) if is_drawn else {}
    for name, number in rare.items():
        write(f"fault {name!r} fired {number} times: too rare to show anything")
    answer: dict[str, Any] = {
        name: sums.get(name, 0)
        for name in ("histories", "lost", "double", "phantom", "body_differs", "unaccounted", "unnecessary_repairs")
    }
    answer |= of_mutants | {"classic_failures": failures, "classic_histories": classic}
    answer |= {
        name: sums.get(name, 0) for name in ("other", "messages", "repairs", "raced_repairs", "failing_histories")
    }
    answer |= {
        "accident_kinds": len(seen),
        "faults": fired(seen),
        "histories_per_second": round(sums.get("histories", 0) / seconds, 1),
        "seconds": round(time.monotonic() - started, 1),
    }
    write(json.dumps(answer))
    is_canary_dead = classic >= 100 and failures < 0.95 * classic
    in_vain_max = max(1, answer["histories"] // HISTORIES_A_REPAIR_IN_VAIN)
    is_vain = answer["unnecessary_repairs"] > in_vain_max
    if is_interrupted:
        return INTERRUPTED
    return int(bool(sums["failing_histories"]) or is_vain or bool(rare) or is_uncaught or is_canary_dead)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
