"""`reconciler replay`: runs a replay worker of one group."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

from reconciler.clock import Clock, SystemClock
from reconciler.commands.metrics import measuring
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.wiring.connections import Connections
from reconciler.wiring.metrics import Metering
from reconciler.wiring.replay_worker import build_replay_worker, load_handler
from reconciler.wiring.scheduler import notify_systemd, serve_when_possible
from reconciler.wiring.subscriptions import find_subscription


def run_replay(settings: Settings, stop: threading.Event, *, handler: str, topic: str, group: str) -> None:
    """Runs a replay worker of one group until the stop. Waits for dependencies that are away.

    `handler`: package.module:function. The function may be decorated. Raises ConfigurationError. Raises InvalidValue
    for a handler of another group.
    """
    configured = find_subscription(settings, topic, group)
    function = load_handler(handler, topic=topic, group=group)
    clock = SystemClock()
    with measuring(settings, "replay", clock=clock) as metering:
        serve_when_possible(
            lambda: _replay(settings, configured, function, stop, clock, metering), stop=stop, clock=clock
        )


def _replay(
    settings: Settings,
    configured: SubscriptionSettings,
    handler: Any,
    stop: threading.Event,
    clock: Clock,
    metering: Metering | None,
) -> None:
    with Connections(settings, clock=clock) as connections:
        worker = build_replay_worker(connections, configured, handler)
        notify_systemd("READY=1")
        with nullcontext() if metering is None else metering.reading_worker(worker, configured):
            worker.run(stop)
        notify_systemd("STOPPING=1")
