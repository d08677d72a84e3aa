"""What the console's overview costs the server: processor time of one answer, of few and of many subscriptions.

    python -m benchmarks.overview [--subscriptions 500] [--troubled 300] [--repeat 10]

The status is given, as `run` and `web` read it in the background; what is measured is what a browser waits for: which
subscriptions stand first, and the page. The cheapest of the repetitions counts. Fails above 150 ms of processor time
where many of them need somebody, and above a tenth of that where none does.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.load.figures import at_most, report
from reconciler.clock import SystemClock
from reconciler.commands.status.report import StatusReport
from reconciler.contract.subscription import Subscription
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.web.services import WebServices
from tests.unit.web.console_world import page_of, services_of, settings_of
from tests.unit.web.reports import LOST, QUARANTINED, REPAIRED, report_of, status_of

LIMIT_MS = 150.0
CALM_LIMIT_MS = LIMIT_MS / 10
FEW = 10


def status_with(number: int, *, troubled: int) -> StatusReport:
    """The last ones are those that need somebody."""
    of = [Subscription(environment="production", topic=f"T{n:04}", group="billing") for n in range(number)]
    verdicts = [replace(REPAIRED, subscription=one) for one in of]
    for one in of[number - troubled :]:
        verdicts += (replace(LOST, subscription=one), replace(QUARANTINED, subscription=one))
    return report_of(*map(status_of, of), verdicts=tuple(verdicts))


def cheapest_ms(services: WebServices, told: StatusReport, *, repeat: int) -> float:
    """Of one answer."""
    reading = LatestReading(lambda: told, clock=SystemClock(), interval_seconds=3_600)
    reading.get()
    seen = replace(services, status=reading)
    found = []
    for _ in range(repeat):
        began = time.process_time()
        page_of(seen, "/overview/now", "en")
        found.append(time.process_time() - began)
    return round(min(found) * 1_000, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=500)
    parser.add_argument("--troubled", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        services = services_of(settings_of(Path(folder)))
        asked = {
            "few calm": status_with(FEW, troubled=0),
            "many calm": status_with(options.subscriptions, troubled=0),
            "many, some troubled": status_with(options.subscriptions, troubled=options.troubled),
        }
        took = {name: cheapest_ms(services, told, repeat=options.repeat) for name, told in asked.items()}
    goals = [
        at_most("many, some troubled: ms of processor", took["many, some troubled"], LIMIT_MS),
        at_most("many calm: ms of processor", took["many calm"], CALM_LIMIT_MS),
    ]
    figures = {"subscriptions": options.subscriptions, "troubled": options.troubled, "processor_ms": took}
    return report("overview", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
