"""The sweeper: reconciler sweep."""

from __future__ import annotations

import logging
import threading

from reconciler.clock import Clock, SystemClock
from reconciler.errors import ConfigurationError
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import require_own_identities
from reconciler.wiring.scheduler import Daemon, Tick, serve_when_possible
from reconciler.wiring.sweep import NOTHING_SWEPT, build_sweeper

logger = logging.getLogger(__name__)


def run_sweeper(settings: Settings, stop: threading.Event) -> None:
    """Sweeps until the stop; waits for dependencies that are away. Raises ConfigurationError."""
    if not any(producer.outbox_urls for producer in settings.producers):
        raise ConfigurationError("no [[producers]] section has an outbox_url: there is nothing to sweep")
    clock = SystemClock()
    serve_when_possible(lambda: _sweep(settings, stop, clock), stop=stop, clock=clock)


def _sweep(settings: Settings, stop: threading.Event, clock: Clock) -> None:
    with Connections(settings, clock=clock) as connections:
        require_own_identities(connections)
        sweeper = build_sweeper(connections, stop=stop)

        def turn() -> None:
            report = sweeper.sweep_once()
            if report != NOTHING_SWEPT:
                level = logging.WARNING if report.problems else logging.INFO
                logger.log(
                    level,
                    "sweep_finished",
                    extra={
                        "announced": report.announced,
                        "settled": report.settled,
                        "announced_again": report.announced_again,
                        "unsettled": report.unsettled,
                        "differing": report.differing,
                        "unprovable": report.unprovable,
                        "deleted": report.deleted,
                        "doubled": report.doubled,
                        "damaged": report.damaged,
                        "reopened": report.reopened,
                        "reviewing": list(report.reviewing),
                        "problems": list(report.problems),
                    },
                )

        Daemon(
            [Tick(name="sweep", interval_seconds=settings.sweep.interval_seconds, run=turn)], stop=stop, clock=clock
        ).run()
