"""Names that operators, migrations and other languages rely on, written out: a change of one breaks a deployment."""

from __future__ import annotations

from reconciler.contract import tables
from reconciler.contract.keyspace import (
    COMMIT_GENERATIONS_DEFAULT,
    SHARDS_DEFAULT,
    SHARDS_MAX,
    ShardKeys,
    meta_key,
)
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.verdicts import Verdict

SUBSCRIPTION = Subscription(environment="prod", topic="ORDERS", group="billing")


def test_tables_have_their_names() -> None:
    every = (*tables.OUTBOX_TABLES, *tables.INBOX_TABLES, *tables.LEDGER_TABLES)
    names = (
        "outbox",
        "outbox_identity",
        "outbox_filter",
        "inbox",
        "candidate",
        "repair",
        "round",
        "subscription",
        "half",
        "floor",
        "outage",
        "hold",
        "broker",
        "environment",
        "quarantine",
        "operator_action",
        "job",
        "idempotency_key",
        "notice",
    )
    assert [table.name for table in every] == [f"reconciler_{name}" for name in names]


def test_keys_of_tables_decide_who_is_unique() -> None:
    found = {table.name.removeprefix("reconciler_"): table.primary_key for table in (
        tables.OUTBOX, tables.INBOX, tables.CANDIDATE, tables.REPAIR, tables.HOLD)}  # fmt: skip
    assert found == {
        "outbox": ("unique_key",),
        "inbox": ("consumer_group", "unique_key"),
        "candidate": ("environment", "topic", "consumer_group", "unique_key"),
        "repair": ("environment", "topic", "scope", "unique_key"),
        "hold": ("environment", "topic", "kind"),
    }
    assert ("consumer_group", "applied_at_ms") in tables.INBOX.indexes


def test_states_and_rungs_are_written_so() -> None:
    assert [state.value for state in tables.OutboxState] == ["NEW", "ANNOUNCED", "SETTLED", "ROLLED_BACK"]
    assert [state.value for state in tables.RepairState] == ["OPEN", "SENDING", "SENT", "DONE", "FAILED"]
    assert [rung.value for rung in tables.Rung] == ["end", "republish", "hand-over"]
    assert [kind.value for kind in tables.HoldKind] == ["HOLD", "BREAKER"]
    assert [kind.value for kind in tables.NoticeKind] == [
        "LOSS_PROVED",
        "QUARANTINED",
        "REPAIR_FAILED",
        "BREAKER_OPEN",
        "OUTAGE",
        "AUDIT_VIOLATION",
        "ROUNDS_STALE",
        "ACCOUNTED_UNTIL_STALE",
        "LEDGER_AWAY",
        "BROKER_AWAY",
        "DATABASE_AWAY",
    ]
    assert tables.EVERY_GROUP == "*"


def test_verdicts_are_the_closed_list() -> None:
    assert {verdict.value for verdict in Verdict} == {
        "CONSUMED",
        "DELIVERED",
        "DELIVERED_NOT_APPLIED",
        "LAGGING",
        "RETRYING",
        "DEAD_LETTERED",
        "FILTERED",
        "BEFORE_SINCE",
        "COLLISION",
        "INCOMPLETE",
        "LOST_CONFIRM",
        "PARKED",
        "ROLLED_BACK_WRONGLY",
        "EXPIRED",
        "REJECTED",
        "QUARANTINED",
        "UNKNOWN",
    }


def test_redis_keys_have_their_names() -> None:
    keys = ShardKeys(Shard(subscription=SUBSCRIPTION, number=3))
    root = "reconciler:v1:{prod:ORDERS:billing:3}"
    built = [
        keys.half, keys.commit, keys.commit_generation(1), keys.commit_generation(2), keys.new, keys.pending,
        keys.generation, keys.offsets, keys.epoch, keys.round_lease, keys.announcement_lease("broker-a"),
    ]  # fmt: skip
    names = "half commit commit:1 commit:2 new pending generation offsets epoch round_lease announcement_lease:broker-a"
    assert built == [f"{root}:{name}" for name in names.split()]
    assert meta_key(SUBSCRIPTION) == "reconciler:v1:{prod:ORDERS:billing}:meta"
    assert (COMMIT_GENERATIONS_DEFAULT, SHARDS_DEFAULT, SHARDS_MAX) == (2, 16, 1_024)
