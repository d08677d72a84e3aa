"""kill -9 between commit and END: only the row is left, and it is enough."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkback_producers import AnnouncementRoute, Outcome
from checkback_producers.announcer import Announcer
from checkback_producers.check_answer import CheckAnswerer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.clock import ManualClock
from reconciler.policy.sweeping import SweepRules
from tests.unit.producers.test_sweeping import MemoryInboxes
from tests.unit.producers.world import GROUP, MemoryAnnouncements, World

PROGRAM = """
import os, signal, sys
from tests.unit.producers.world import World, message
world = World(sys.argv[1])
with world.producer().transaction(message()) as tx:
    with world.engine.begin() as connection:
        tx.record(connection)
        world.do_business(connection, "order")
        if sys.argv[2] == "before":
            print(tx.unique_key, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    print(tx.unique_key, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_producer_leaves_all_or_nothing(tmp_path: Path, moment: str) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, moment],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    key = killed.stdout.strip()
    world = World(url)
    announcements = MemoryAnnouncements()
    outbox = SqlOutbox(url)
    report = Sweeper(
        [OutboxSource(producer_group=GROUP, outbox=outbox)],
        announcer=Announcer(announcements, AnnouncementRoute(environment="test")),
        subscriptions=[],
        inboxes=MemoryInboxes(),
        rules=SweepRules(sweep_after_seconds=0),
    ).sweep_once()
    answer = CheckAnswerer(outbox, clock=ManualClock()).answer(world.checked(key, check_times=15))
    committed = moment == "after"
    assert world.did_business("order") is committed
    assert report.announced == int(committed)
    assert announcements.keys == ([key] if committed else [])
    assert answer is (Outcome.COMMIT if committed else Outcome.ROLLBACK)
    outbox.close()
    world.close()
