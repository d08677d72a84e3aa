"""A replay worker of one group: reconciler replay."""

from __future__ import annotations

import threading
from typing import Any

from reconciler.clock import Clock, SystemClock
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.wiring.connections import Connections
from reconciler.wiring.replay_worker import build_replay_worker, load_handler
from reconciler.wiring.scheduler import notify_systemd, serve_when_possible
from reconciler.wiring.subscriptions import find_subscription


def run_replay(settings: Settings, stop: threading.Event, *, handler: str, topic: str, group: str) -> None:
    """A replay worker of one group until the stop. `handler` is package.module:function, plain or decorated.

    Waits for dependencies that are away. Raises ConfigurationError, InvalidValue for a handler of another group.
    """
    configured = find_subscription(settings, topic, group)
    function = load_handler(handler, topic=topic, group=group)
    clock = SystemClock()
    serve_when_possible(lambda: _replay(settings, configured, function, stop, clock), stop=stop, clock=clock)


def _replay(
    settings: Settings, configured: SubscriptionSettings, handler: Any, stop: threading.Event, clock: Clock
) -> None:
    with Connections(settings, clock=clock) as connections:
        worker = build_replay_worker(connections, configured, handler)
        notify_systemd("READY=1")
        worker.run(stop)
        notify_systemd("STOPPING=1")
