"""`reconciler sweep`: the sweeper."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from dataclasses import asdict

from reconciler.clock import Clock, SystemClock
from reconciler.commands.metrics import measuring
from reconciler.commands.notices import telling
from reconciler.commands.safety import require_own_identities
from reconciler.errors import ConfigurationError
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence
from reconciler.wiring.metrics import Metering
from reconciler.wiring.scheduler import Tick, TickRunner, serve_when_possible
from reconciler.wiring.sweep import NOTHING_SWEPT, build_sweeper

logger = logging.getLogger(__name__)


def run_sweeper(settings: Settings, stop: threading.Event) -> None:
    """Sweeps until the stop. Waits for dependencies that are away. Raises ConfigurationError."""
    if not commit_evidence(settings).has_outbox:
        raise ConfigurationError("no [[producers]] section has an outbox_url: there is nothing to sweep")
    clock = SystemClock()
    with (
        measuring(settings, "sweep", clock=clock) as metering,
        telling(settings, clock=clock, metering=metering),
    ):
        serve_when_possible(lambda: _sweep(settings, stop, clock, metering), stop=stop, clock=clock)


def _sweep(settings: Settings, stop: threading.Event, clock: Clock, metering: Metering | None) -> None:
    with Connections(settings, clock=clock) as connections:
        require_own_identities(connections)
        sweeper = build_sweeper(connections, stop=stop)

        def turn() -> None:
            began_seconds = clock.monotonic_seconds()
            report = sweeper.sweep_once()
            if metering is not None:
                metering.swept(report, took_seconds=clock.monotonic_seconds() - began_seconds)
            if report != NOTHING_SWEPT:
                level = logging.WARNING if report.problems else logging.INFO
                told = asdict(report) | {"reviewing": list(report.reviewing), "problems": list(report.problems)}
                del told["failed_sources"]
                logger.log(level, "sweep_finished", extra=told)

        def announce_due() -> None:
            report = sweeper.announce_due()
            if metering is not None:
                metering.announced_due(report)
            if report != NOTHING_SWEPT:
                logger.info("due_rows_announced", extra={"announced": report.announced})

        sweep = settings.sweep
        ticks = [Tick(name="sweep", interval_seconds=sweep.interval_seconds, run=turn)]
        if sweep.due_interval_seconds < sweep.interval_seconds:
            ticks.append(Tick(name="due rows", interval_seconds=sweep.due_interval_seconds, run=announce_due))
        runner = TickRunner(ticks, stop=stop, clock=clock)
        with nullcontext() if metering is None else metering.reading_schedule(runner):
            runner.run()
