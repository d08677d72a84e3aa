"""The code of 0.2.0 on the ledger and the Redis of this release: what one of them dismisses the other neither opens nor
deletes, and a shard has the rounds of one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.kept_facts import REPAIR_DISMISSED
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState, Rung
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import RepairChange
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.policy.sharing import Sharing
from reconciler.shards.access import open_client
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sharers import RedisSharers
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said
from tests.chaos import earlier_release
from tests.chaos.hosts import environment_of
from tests.services.redis_server import RedisServer
from tests.services.requirements import require
from tests.unit.policy.world import Events

OURS, THEIRS = f"{1:032X}", f"{2:032X}"
#: Their part: they dismiss one, look at both, and delete what is old.
PART = """
import json, sys
from reconciler.contract.row_rules import DISMISSED_BY
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql.engines import open_engine

url, ours, theirs = sys.argv[1:]
engine = open_engine(url)
repairs = SqlLedger(engine).repairs
(row,) = repairs.of_keys("prod", "ORDERS", [theirs])[theirs]
assert repairs.dismiss(row, answer=f"{DISMISSED_BY}operator anna: paid by hand")
found = [repairs.of_keys("prod", "ORDERS", [key])[key][0] for key in (ours, theirs)]
unsent = [row.closed_unsent for row in found]
SqlRetention(SqlLedger(engine).database, keep_days=-1).delete_old("prod")
kept = [bool(repairs.of_keys("prod", "ORDERS", [key])) for key in (ours, theirs)]
print(json.dumps([unsent, kept]))
engine.dispose()
"""


#: Their part: they take the leases of shards, and say which they got; with "release" they give up what they have.
LEASES = """
import json, sys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.shards.access import open_client
from reconciler.shards.round_leases import RedisRoundLeases

url, numbers, gives_up = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
client = open_client(url)
leases = RedisRoundLeases(client)
of = Subscription(environment="prod", topic="BESIDE", group="billing")
print(json.dumps([leases.take(Shard(subscription=of, number=n), token="old", lease_seconds=60) for n in numbers]))
for n in numbers if gives_up else ():
    leases.release(Shard(subscription=of, number=n), token="old")
client.close()
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of 0.2.0."""
    require(earlier_release.missing())
    return earlier_release.check_out(tmp_path_factory.mktemp("earlier") / "0.2.0")


@pytest.mark.redis
def test_a_shard_has_rounds_of_0_2_0_or_of_this_release_and_moves_when_its_lease_is_given_up(
    old: Path, redis_server: RedisServer
) -> None:
    """Rounds of both would turn the commit sets over twice as fast."""

    def theirs(*numbers: int, gives_up: bool = False) -> list[bool]:
        command = [sys.executable, "-c", LEASES, redis_server.url, json.dumps(numbers), *["release"] * gives_up]
        told = subprocess.run(command, cwd="/", env=environment_of(old), check=True, capture_output=True, text=True)
        return [bool(got) for got in json.loads(told.stdout)]

    client, clock = open_client(redis_server.url, timeout_seconds=60), ManualClock()
    of = Subscription(environment="prod", topic="BESIDE", group="billing")
    shards = [Shard(subscription=of, number=number) for number in range(4)]
    memory, leases = RedisShardMemory(RoundRedis(client=client)), RedisRoundLeases(client, clock=clock)
    sharing = Sharing(RedisSharers(client), environment="prod", owner="new", lease_seconds=60, clock=clock)
    rounds = ShardRounds(
        memory=memory, leases=leases, rounds=MemoryLedger(clock).rounds, owner="new", lease_seconds=60, clock=clock,
        events=Events(), sharing=sharing,
    )  # fmt: skip

    def ours() -> list[bool]:
        """Of a turn, and of the next one, which renews what this process has."""
        rounds.look(shards)
        found = [rounds.run(shard).is_ours for shard in shards]
        clock.advance(20)
        rounds.look(shards)
        assert [rounds.run(shard).is_ours for shard in shards] == found
        return found

    assert theirs(0, 1) == [True, True]
    assert ours() == [False, False, True, True]
    assert theirs(0, 1, 2, 3, gives_up=True) == [True, True, False, False]
    assert ours() == [True] * 4
    assert theirs(0, 1, 2, 3) == [False] * 4
    client.close()


def test_what_0_2_0_dismisses_and_what_it_finds_dismissed_is_neither_opened_nor_deleted(
    old: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    engine = open_engine(url)
    ledger = SqlLedger(engine, english=said)
    for key in (OURS, THEIRS):
        ledger.repairs.open("prod", "ORDERS", key, rung=Rung.END)
        (row,) = ledger.repairs.of_keys("prod", "ORDERS", [key])[key]
        assert ledger.repairs.claim(row, token="t", lease_seconds=60) is not None
        failed = RepairChange(state=RepairState.FAILED, rung=Rung.END, answer="no rung is left")
        changed = ledger.repairs.change(row, failed, token="t")
        assert changed is not None
        if key == OURS:
            assert ledger.repairs.dismiss(changed, answer=REPAIR_DISMISSED(by="operator ben", reason="refunded"))
    command = [sys.executable, "-c", PART, url, OURS, THEIRS]
    told = subprocess.run(command, cwd="/", env=environment_of(old), check=True, capture_output=True, text=True)
    assert json.loads(told.stdout) == [[False, False], [True, True]]
    SqlRetention(ledger.database, keep_days=-1).delete_old("prod")
    rows = {key: ledger.repairs.of_keys("prod", "ORDERS", [key])[key][0] for key in (OURS, THEIRS)}
    assert {key: (row.is_dismissed, row.closed_unsent) for key, row in rows.items()} == {
        OURS: (True, False),
        THEIRS: (True, False),
    }
    assert rows[THEIRS].answer_fact == REPAIR_DISMISSED(by="operator anna", reason="paid by hand")
    engine.dispose()
