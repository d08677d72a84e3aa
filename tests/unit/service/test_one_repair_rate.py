"""What one process sends to the brokers is bounded once, whoever in it repairs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import typer

from reconciler.cli import daemon_commands
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.brakes import RateLimit
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.web import server
from reconciler.web.services import build_services
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import broker_repairs
from tests.services.ports import free_port

ROOT = Path(__file__).parents[3]


class Stop:
    """StopSignals."""

    exit_code = 0

    def __init__(self) -> None:
        self.requested = threading.Event()


def test_the_console_in_the_process_of_run_shares_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    variables = {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db", "RECONCILER_WEB__LISTEN": address}
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    rates: dict[str, RateLimit] = {}

    def serve(connections: Connections, _stop: threading.Event, **_: object) -> None:
        rates["rounds"] = connections.repair_rate

    def build(settings: Settings, connections: Connections, **arguments: Any) -> object:
        rates["console"] = connections.repair_rate
        return services(settings, connections, **arguments)

    services = build_services
    monkeypatch.setattr(server, "build_services", build)
    monkeypatch.setattr("reconciler.commands.run._serve", serve)
    monkeypatch.setattr(daemon_commands, "start_service", lambda _config: (settings, Stop()))
    with pytest.raises(typer.Exit):
        daemon_commands.run()
    assert rates["console"] is rates["rounds"]


def test_what_is_sent_about_messages_has_connections_that_no_look_up_uses() -> None:
    """One answer that is too large ends a connection with all that is on it: an END there would be in doubt."""
    with Connections(load_settings(ROOT / "config" / "reconciler.toml", {})) as connections:
        sends, again = broker_repairs(connections), broker_repairs(connections)
        assert isinstance(sends, RemotingBrokerRepairs)
        assert isinstance(again, RemotingBrokerRepairs)
        assert sends._client is not connections.rocketmq.client
        assert sends._client is again._client
