"""Doctor tells floors that would not count: a login of an older release keeps no proof beside its offset."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from reconciler.commands.doctor.floors import check_floors
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import subscription_of

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"


def test_floors_without_a_proof_are_told_and_those_of_queues_without_an_announcement_are_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    settings = load_settings(EXAMPLE, {"RECONCILER_LEDGER__URL": url})
    record = QueueRecord(queue_offset=8, stored_at_ms=1, commit_log_offset=2, unique_key="A0" * 16)
    with closing(Connections(settings)) as connections:
        first = subscription_of(settings, settings.subscriptions[0])
        rounds = connections.ledger.rounds
        rounds.raise_floor(first, {"broker-a/0": 0})
        assert check_floors(connections) == []
        rounds.raise_floor(first, {"broker-a/1": 9, "broker-b/0": 9})
        (told,) = (one.as_row() for one in check_floors(connections))
        assert (told.level, told.check) == ("note", f"floors of {first}")
        assert told.found.startswith("2 of 2 have no proof")
        proof = QueueProof(following=10, record=record)
        rounds.raise_floor(first, {"broker-a/1": 10, "broker-b/0": 10}, {"broker-a/1": proof, "broker-b/0": proof})
        assert check_floors(connections) == []
