"""Services that opt in see what the plug-ins count in a registry of their own; the others load nothing for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.metrics import register_metrics as register_consumers
from checkback_consumers.recorder import CommitRecorder
from checkback_producers.counts import Counts
from checkback_producers.errors import NotRecorded
from checkback_producers.metrics import MEANINGS
from checkback_producers.metrics import register_metrics as register_producers
from reconciler.errors import MissingDependency
from tests.unit.consumers.messages import inbox_engine, message, new_key, sqlite_url
from tests.unit.consumers.test_recorder import Sink
from tests.unit.producers.world import GROUP
from tests.unit.producers.world import World as ProducerWorld
from tests.unit.producers.world import message as order


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def handler_of(engine: sa.Engine) -> TransactionalHandler:
    def pay(received: ConsumedMessage, _connection: sa.Connection) -> None:
        if received.body == b"bad":
            raise ValueError("the business says no")

    return transactional_handler(engine, group="billing")(pay)


def test_messages_that_fail_or_come_twice_are_seen_by_the_service_that_asked(engine: sa.Engine) -> None:
    registry, first, second = CollectorRegistry(), handler_of(engine), handler_of(engine)
    register_consumers(registry, handlers=[first, second])
    once = message()
    for handler, received in ((first, once), (second, once), (second, message(body=b"bad")), (first, message())):
        handler(received)
    found = {
        outcome: registry.get_sample_value(
            "reconciler_handled_messages_total", {"consumer_group": "billing", "outcome": outcome}
        )
        for outcome in ("applied", "duplicate", "failed")
    }
    assert found == {"applied": 2, "duplicate": 1, "failed": 1}


def test_a_recorder_without_redis_is_seen_and_what_waits_is_no_success() -> None:
    sink, registry, place = Sink(), CollectorRegistry(), {"consumer_group": "billing"}
    with CommitRecorder(sink, environment="test", group="billing", shards=16, wait_seconds=0.1) as recorder:
        register_consumers(registry, recorders=[recorder])
        recorder.record("ORDERS", new_key())
        recorder.flush(timeout_seconds=30)
        assert registry.get_sample_value("reconciler_consumptions_recorded_total", place) == 1
        assert registry.get_sample_value("reconciler_recorder_redis_up", place) == 1
        sink.is_away = True
        recorder.record("ORDERS", new_key())
        assert sink.refused.wait(30)
        waiting = registry.get_sample_value("reconciler_consumptions_waiting_keys", place) or 0
        missed = registry.get_sample_value("reconciler_consumptions_missed_total", place) or 0
        assert waiting + missed == 1
        assert registry.get_sample_value("reconciler_consumptions_recorded_total", place) == 1


def test_a_block_without_its_row_is_seen_by_the_service_that_asked(tmp_path: Path) -> None:
    world, registry = ProducerWorld(sqlite_url(tmp_path)), CollectorRegistry()
    producer = world.producer()
    register_producers(registry, producers=[producer])
    with pytest.raises(NotRecorded), producer.transaction(order()):
        pass
    place = {"producer_group": GROUP}
    assert registry.get_sample_value("reconciler_producer_not_recorded_total", place) == 1
    assert registry.get_sample_value("reconciler_producer_halves_total", place) == 1
    assert registry.get_sample_value("reconciler_producer_committed_total", place) == 0
    world.close()


def test_a_new_count_is_not_forgotten() -> None:
    assert set(MEANINGS) == set(Counts().as_dict())


def test_two_registries_share_nothing(engine: sa.Engine) -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    register_consumers(first, handlers=[handler_of(engine)])
    with pytest.raises(ValueError, match="Duplicated"):
        register_consumers(first, handlers=[])
    assert list(second.collect()) == []


def test_a_service_that_does_not_ask_loads_no_client_and_one_without_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = "checkback_producers.metrics, checkback_consumers.metrics"
    code = f"import sys, {modules}; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    for register in (register_consumers, register_producers):
        with pytest.raises(MissingDependency, match="pip install prometheus-client"):
            register(CollectorRegistry(), **{"producers" if register is register_producers else "handlers": []})
