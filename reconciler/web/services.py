"""Shared parts of handlers: the settings, and readings that many browsers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from reconciler.clock import Clock
from reconciler.commands.activity import WIDTHS_MINUTES, read_activity
from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.doctor.checks import examine
from reconciler.commands.metrics import STATUS_SECONDS, StatusReading, dependencies_of
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.errors import DependencyAway
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.settings.schema import Settings
from reconciler.telling.ports.activity import Activity
from reconciler.web.access.web_access import WebAccess, build_access
from reconciler.web.audits.shelf import AuditShelf, build_shelf
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.wiring.connections import Connections

T = TypeVar("T")

#: Address for a server that only this machine reaches.
THIS_MACHINE = "127.0.0.1"
#: Shortest pause between two readings that many browsers share.
ACTIVITY_SECONDS = 30.0
HEALTH_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """Shared parts of handlers. The threads of all requests share this object."""

    settings: Settings
    #: Connections for the commands.
    connections: Connections
    clock: Clock
    #: Rights of visitors.
    access: WebAccess
    status: StatusReading
    #: Dependency of `reconciler run` -> what is wrong with it.
    dependencies: LatestReading[dict[str, str | None]]
    #: Hours -> activity within them.
    activities: Mapping[int, LatestReading[Activity]]
    #: Findings of `reconciler doctor`.
    health: LatestReading[Sequence[Diagnosis]]
    #: The audits of the folder. None: no folder is set.
    audits: AuditShelf | None = None
    #: Function that takes what a scraper accepts, and returns exposition and content type. None: prometheus-client is
    #: not installed.
    metrics: Callable[[str], tuple[bytes, str]] | None = None

    @property
    def prefix(self) -> str:
        """The beginning of every path. It is empty, or it begins with a slash and ends without one."""
        return self.settings.web.url_prefix

    def newest_status(self) -> StatusReport:
        """Returns the newest reading. Raises DependencyAway if there is none."""
        return _read(self.status, "nothing can be said about any message", interval_seconds=STATUS_SECONDS)

    def newest_activity(self, hours: int) -> Activity:
        """Returns the newest reading of a known number of hours. Raises DependencyAway if there is none."""
        return _read(self.activities[hours], "nothing can be drawn")


#: A handler runs on a thread. It may raise WebRefusal and any ReconcilerError.
Handler = Callable[[WebServices, WebRequest], WebResponse]


def _read(reading: LatestReading[T | None], without_it: str, *, interval_seconds: float | None = None) -> T:
    found = reading.get(interval_seconds)
    if found is not None:
        return found
    if reading.took_seconds is None:
        raise DependencyAway(f"the first reading is under way, since somebody answers slowly: until then {without_it}")
    raise DependencyAway(f"the ledger did not answer in time, so {without_it}")


def build_services(
    settings: Settings,
    connections: Connections,
    *,
    clock: Clock,
    listen: str = THIS_MACHINE,
    status: StatusReading | None = None,
) -> WebServices:
    """Builds the services. The file of users is opened at once, and everything else at the first request that needs it.

    `listen`: host:port of the server. `status`: the reading of the process, if it has one. Raises
    ConfigurationError if serving there would be unsafe.
    """
    return WebServices(
        settings=settings,
        connections=connections,
        clock=clock,
        access=build_access(settings, listen, clock=clock),
        status=status
        or LatestReading(
            lambda: read_status(connections, is_beside_run=False), clock=clock, interval_seconds=STATUS_SECONDS
        ),
        dependencies=LatestReading(
            lambda: dependencies_of(connections, "web"), clock=clock, interval_seconds=STATUS_SECONDS
        ),
        activities={
            hours: LatestReading(
                partial(read_activity, connections, hours), clock=clock, interval_seconds=ACTIVITY_SECONDS
            )
            for hours in WIDTHS_MINUTES
        },
        health=LatestReading(lambda: examine(connections), clock=clock, interval_seconds=HEALTH_SECONDS),
        audits=build_shelf(settings.web, clock=clock),
    )
