"""P1: consumed keys recorded by the batching recorder, against redis-benchmark's 1000-member SADD.

Starts a redis-server of its own; prints one JSON line. The ratio is the figure, the absolutes belong to the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checkback_consumers.recorder import CommitRecorder
from tests.services.redis_server import RedisServer

GOAL = 0.75
FEED = 10_000
#: The feeder waits above it: the recorder drops what goes beyond its own bound of 50,000.
WAITING_MAX = 30_000


def limit(port: int, members: int) -> float:
    """Members a second of redis-benchmark, 1000 new ones a command, 16 bytes each."""
    commands = members // 1_000
    # Twelve digits are put into each __rand_int__ (below -r, which is a C int), four more make 16 bytes.
    words = [f"__rand_int__{number:04d}" for number in range(1_000)]
    command = ["redis-benchmark", "-p", str(port), "-n", str(commands), "-r", "2000000000", "--csv", "-q"]
    done = subprocess.run([*command, "SADD", "bench:limit", *words], capture_output=True, text=True, check=True)
    rates = re.findall(r'"([0-9.]+)"', done.stdout.splitlines()[-1])
    return float(rates[0]) * 1_000


def recorded(url: str, keys: list[str], shards: int) -> float:
    """Members a second of the recorder, fed in bulk, all of them in Redis at the end."""
    with CommitRecorder.open(url, environment="bench", group="billing", shards=shards, timeout_seconds=5.0) as recorder:
        recorder.record_many("ORDERS", keys[:100], wait=True)
        started = time.perf_counter()
        for first in range(100, len(keys), FEED):
            while recorder.state().waiting > WAITING_MAX:
                time.sleep(0.0005)
            recorder.record_many("ORDERS", keys[first : first + FEED])
        recorder.flush(timeout_seconds=60)
        seconds = time.perf_counter() - started
        state = recorder.state()
        if state.missed or state.recorded != len(keys):
            raise SystemExit(f"not everything was recorded: {state}")
        return (len(keys) - 100) / seconds


def main() -> None:
    """Medians of several turns, the two in turn, so that a noisy machine hurts both alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    limits, rates = [], []
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder), options={"appendonly": "no"}) as server:
        for _ in range(arguments.turns):
            subprocess.run(["redis-cli", "-p", str(server.port), "FLUSHALL"], check=True, capture_output=True)
            limits.append(limit(server.port, arguments.keys))
            subprocess.run(["redis-cli", "-p", str(server.port), "FLUSHALL"], check=True, capture_output=True)
            text = os.urandom(16 * arguments.keys).hex().upper()
            keys = [text[at : at + 32] for at in range(0, len(text), 32)]
            rates.append(recorded(server.url, keys, arguments.shards))
    ratio = statistics.median(rate / bound for rate, bound in zip(rates, limits, strict=True))
    print(
        json.dumps(
            {
                "benchmark": "P1 recorder",
                "ratio": round(ratio, 3),
                "goal": GOAL,
                "recorder_keys_per_second": round(statistics.median(rates)),
                "redis_benchmark_members_per_second": round(statistics.median(limits)),
                "keys": arguments.keys,
                "shards": arguments.shards,
                "turns": arguments.turns,
            }
        )
    )


if __name__ == "__main__":
    main()
