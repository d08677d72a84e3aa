"""`reconciler announcements`: runs announcement consumers, and nothing else."""

from __future__ import annotations

import threading
from contextlib import suppress

from reconciler.clock import Clock, SystemClock
from reconciler.commands.asking.availability import ask_brokers, ask_ledger, ask_redis, require
from reconciler.errors import TransientError
from reconciler.policy.environment import RENEW_SECONDS
from reconciler.settings.schema import Settings
from reconciler.wiring.announcements import build_announcement_consumer, require_stored_shards
from reconciler.wiring.connections import Connections
from reconciler.wiring.environment import enter_environment, environment_guard
from reconciler.wiring.scheduler import notify_systemd, serve_when_possible


def run_announcements(settings: Settings, stop: threading.Event) -> None:
    """Runs announcement consumers until the stop. Waits for dependencies that are away. Raises ConfigurationError."""
    clock = SystemClock()
    serve_when_possible(lambda: _announce(settings, stop, clock), stop=stop, clock=clock)


def _announce(settings: Settings, stop: threading.Event, clock: Clock) -> None:
    with Connections(settings, clock=clock) as connections:
        require(ask_redis(connections) | ask_ledger(connections) | ask_brokers(connections))
        require_stored_shards(connections)
        guard = environment_guard(connections)
        if not enter_environment(connections, guard, stop=stop):
            return
        consumer = build_announcement_consumer(connections)
        consumer.start()
        notify_systemd("READY=1")
        try:
            while not clock.wait(stop, RENEW_SECONDS):
                with suppress(TransientError):  # the consumers log this error, and wait
                    guard.look()
        finally:
            notify_systemd("STOPPING=1")
            consumer.stop()
