"""A broker's check service that stands still is a note of `doctor` and a line of `status`, and changes no exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands.diagnosis import DiagnosisRow
from reconciler.commands.doctor.brokers import check_check_services
from reconciler.commands.metrics import status_reading
from reconciler.commands.status.reading import read_status
from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.halves.classify import LONGEST_ROUND_SECONDS
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.message import Message
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.polling import eventually
from tests.services.clock_behind import ClockBehind
from tests.settings_file import settings_file

FAMILIES = ("4.4", "4.9", "5.x")
TIMEOUT_SECONDS, INTERVAL_SECONDS = 0.1, 0.2
#: What a half may take until a round has passed it.
LONGEST_SECONDS = TIMEOUT_SECONDS + 2 * INTERVAL_SECONDS + LONGEST_ROUND_SECONDS


@pytest.fixture(params=FAMILIES)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """With one half that is never ended, which its check service has met."""
    settings = BrokerSettings(
        check_interval_seconds=INTERVAL_SECONDS, transaction_timeout_seconds=TIMEOUT_SECONDS, check_max=100_000
    )
    with EmbeddedBroker(family=request.param, settings=settings) as opened, RemotingClient() as client:
        Admin(client).create_topic(opened.address, "ORDERS", queues=1)
        yield opened


def send_half(broker: EmbeddedBroker) -> None:
    with ClientInstance(broker.name_servers) as instance:
        instance.sender("shop").send(Message(topic="ORDERS", body=b"1"), is_half=True)


def settings_of(name_servers: str, folder: Path, *more: str) -> Settings:
    lines = ("rocketmq.request_timeout_seconds = 20", "rounds.skew_margin_seconds = 0", *more)
    return load_settings(settings_file(folder, *lines, name_servers=name_servers, has_ledger=True), {})


def notes(settings: Settings, *, later_seconds: float) -> list[DiagnosisRow]:
    """What doctor finds so much later."""
    with Connections(settings, clock=ClockBehind(-later_seconds)) as connections:
        return [one.as_row() for one in check_check_services(connections)]


def test_a_service_that_meets_the_same_half_each_round_is_told_once_it_must_have_passed_it(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.faults.fail_check_rounds()
    settings = settings_of(broker.name_servers, tmp_path)
    assert not notes(settings, later_seconds=600), "no half waits"
    send_half(broker)
    eventually(lambda: broker.faults.counts["fail_check_round"] > 1, within_seconds=30)
    assert not notes(settings, later_seconds=0)
    (note,) = notes(settings, later_seconds=600)
    assert (note.check, note.level) == ("check service of embedded", "note")
    assert "has stood still for 10 minutes before one half" in note.found
    assert "#9500" in note.remedy
    with Connections(settings, clock=ClockBehind(-600)) as connections:
        status = read_status(connections)
    (line,) = status.standing
    assert said(line).startswith(f"check service of embedded {note.found}: see to the exception in its log")
    assert line not in status.late_lines
    assert not status.needs_a_person
    reading = status_reading(settings, clock=ClockBehind(-600))
    report = eventually(reading.get, within_seconds=30)
    assert report is not None
    assert not report.standing, "neither metrics nor notices show it: no broker is asked at each reading"
    (tmp_path / "console").mkdir()
    with_console = settings_of(broker.name_servers, tmp_path / "console", 'web.listen = "127.0.0.1:1"')
    report = eventually(status_reading(with_console, clock=ClockBehind(-600)).get, within_seconds=30)
    assert report is not None
    assert [said(told) for told in report.standing] == [said(line)], "a console shows it"


def test_a_service_that_passes_its_halves_is_not_told(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The half that it has just put back is young, however old the message is."""
    send_half(broker)
    settings = settings_of(broker.name_servers, tmp_path)
    with ClientInstance(broker.name_servers) as instance:
        started_ms = instance.clock.now_ms()
        eventually(lambda: instance.clock.now_ms() - started_ms > 3_000, within_seconds=30)
    assert not notes(settings, later_seconds=LONGEST_SECONDS - 1)


def test_without_the_right_it_is_not_known_whether_it_stands_and_status_is_as_before(tmp_path: Path) -> None:
    user = BrokerUser(access_key="run", secret_key="secret-of-run", rights=("SUB topic *", "SUB group RECONCILER_SCAN"))
    with EmbeddedBroker(family="5.x", users=[user]) as broker:
        acl = 'rocketmq.acl = { access_key = "run", secret_key = "secret-of-run" }'
        settings = settings_of(broker.name_servers, tmp_path, acl)
        (note,) = notes(settings, later_seconds=600)
        assert (note.check, note.level) == ("check service of embedded", "note")
        assert "not known whether it stands" in note.found
        assert "on group CID_RMQ_SYS_TRANS" in note.remedy
        with Connections(settings) as connections:
            status = read_status(connections)
        assert not status.standing
        assert not [line for line in status.away if "CID_RMQ_SYS_TRANS" in said(line)]
