"""What the test kit costs the tests of a service: its first fixture, and each further test.

    python -m benchmarks.kit [--repeat 5] [--tests 20]

Each repetition is a process of its own that has imported SQLAlchemy. `first_fixture_seconds`: processor time of the
import and of a world with one topic, a sender and a receiver. `further_test_seconds`: of one more world, in which an
order is sent, received, recorded and settled, the service's own work among it. Prints one JSON line with the medians;
ends with 1 if one is above its bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

FIRST_SECONDS_MAX = 0.4
FURTHER_SECONDS_MAX = 0.05

_CHILD = """
import sys, tempfile, time
from pathlib import Path
import sqlalchemy as sa

def world(number):
    kit = Checkback(f"sqlite:///{folder / str(number)}.db", folder=folder)
    kit.sends("order-service", "ORDERS")
    kit.receives("billing", "ORDERS")
    return kit

def run(kit):
    from checkback_consumers import TransactionalConsumer, transactional_handler
    from checkback_producers import Message
    producer, recorder = kit.producer("order-service"), kit.recorder("billing")
    behind_inbox = transactional_handler(kit.database, group="billing", topics="ORDERS", recorder=recorder)
    handler = behind_inbox(lambda message, connection: None)
    kit.run("billing", lambda: TransactionalConsumer(handler, name_servers=kit.name_servers))
    with producer.transaction(Message(topic="ORDERS", body=b"{}")) as tx, kit.database.begin() as connection:
        tx.record(connection)
    assert kit.settle().is_at_rest
    kit.assert_every_commit_took_effect()

with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    began = time.process_time()
    from reconciler.testing import Checkback
    kit = world(0)
    print(time.process_time() - began)
    run(kit)
    kit.close()
    for number in range(1, int(sys.argv[1]) + 1):
        began = time.process_time()
        kit = world(number)
        run(kit)
        kit.close()
        print(time.process_time() - began)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tests", type=int, default=20)
    arguments = parser.parse_args()
    first, further = [], []
    for _ in range(arguments.repeat):
        child = [sys.executable, "-c", _CHILD, str(arguments.tests)]
        printed = subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()
        first.append(float(printed[0]))
        further += map(float, printed[1:])
    found = {"first_fixture_seconds": statistics.median(first), "further_test_seconds": statistics.median(further)}
    print(json.dumps({name: round(seconds, 4) for name, seconds in found.items()}))
    bounds = {"first_fixture_seconds": FIRST_SECONDS_MAX, "further_test_seconds": FURTHER_SECONDS_MAX}
    return int(any(found[name] > bound for name, bound in bounds.items()))


if __name__ == "__main__":
    sys.exit(main())
