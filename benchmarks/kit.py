"""What the test kit costs the tests of a service: its first fixture, and each further test.

    python -m benchmarks.kit [--repeat 5] [--tests 20]

Each repetition is a process of its own that imports SQLAlchemy first. First fixture: processor time of the import and
of a world with one topic, a sender and a receiver. Further test: of one more world, in which an order is sent,
received, recorded and settled, the service's own work among it. What decides are both in multiples of SQLAlchemy's own
import in the same process, since a machine is not as fast on each day. Prints one JSON line with the medians; ends with
1 if one is above its bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

#: 0.4 s and 50 ms of a machine that imports SQLAlchemy in 0.174 s.
FIRST_IMPORTS_MAX = 2.3
FURTHER_IMPORTS_MAX = 0.29

_CHILD = """
import sys, tempfile, time
from pathlib import Path
began = time.process_time()
import sqlalchemy as sa
print(time.process_time() - began)

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
    found: dict[str, list[float]] = {}
    for _ in range(arguments.repeat):
        child = [sys.executable, "-c", _CHILD, str(arguments.tests)]
        printed = subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()
        imported, first, *further = map(float, printed)
        each = {"sqlalchemy": imported, "first_fixture": first, "further_test": statistics.median(further)}
        for name, seconds in each.items():
            found.setdefault(f"{name}_seconds", []).append(seconds)
            found.setdefault(f"{name}_imports", []).append(seconds / imported)
    medians = {name: round(statistics.median(values), 4) for name, values in found.items()}
    print(json.dumps(medians))
    bounds = {"first_fixture_imports": FIRST_IMPORTS_MAX, "further_test_imports": FURTHER_IMPORTS_MAX}
    return int(any(medians[name] > bound for name, bound in bounds.items()))


if __name__ == "__main__":
    sys.exit(main())
