"""The server: uvicorn on a thread of its own. The server binds its address before anything else begins."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from reconciler.clock import Clock
from reconciler.commands.acts.job_worker import working_on_jobs
from reconciler.commands.metrics import StatusReading
from reconciler.commands.notices import telling, telling_audits
from reconciler.contract.urls import address_of
from reconciler.instrumentation.listening import address_refused, host_and_port
from reconciler.policy.brakes import RateLimit
from reconciler.settings.schema import Settings
from reconciler.web.access.server_tls import ServerCertificate, server_certificate
from reconciler.web.application import build_application
from reconciler.web.audits.notices import audits_watch
from reconciler.web.bounded_listener import BoundedListener
from reconciler.web.measured import measured
from reconciler.web.services import WebServices, build_services
from reconciler.web.slow_clients import ImpatientProtocol
from reconciler.wiring.connections import Connections
from reconciler.wiring.metrics import Metering

logger = logging.getLogger(__name__)

#: Longest time for which an idle connection is kept.
KEEP_ALIVE_SECONDS = 30
#: Longest time for which the stop waits for running answers.
STOP_SECONDS_MAX = 5


@contextmanager
def serving_web(
    settings: Settings,
    listen: str,
    *,
    clock: Clock,
    does_jobs: bool = False,
    metering: Metering | None = None,
    repair_rate: RateLimit | None = None,
    status: StatusReading | None = None,
) -> Iterator[tuple[str, int]]:
    """Serves API and console within the block, and yields host and port.

    `does_jobs`: the server also works on jobs. `metering`, `repair_rate`, `status`: those of the process, if it has
    them. Raises ConfigurationError if the address cannot be bound, or if serving there would be unsafe.
    """
    with (
        Connections.for_people(settings, clock=clock, repair_rate=repair_rate) as connections,
        measured(
            build_services(settings, connections, clock=clock, listen=listen, status=status), metering
        ) as services,
        serving(services, listen) as bound,
        _telling(services, is_alone=does_jobs),
        working_on_jobs(connections) if does_jobs and not settings.web.read_only else nullcontext(),
    ):
        yield bound


def _telling(services: WebServices, *, is_alone: bool) -> AbstractContextManager[object]:
    """Sends notices within the block. Beside `reconciler run` it sends only notices about audits, because `run` sends
    the others."""
    settings, clock = services.settings, services.clock
    watches = [] if services.audits is None else [audits_watch(services.audits, settings)]
    if is_alone:
        return telling(settings, clock=clock, status=services.status.get, watches=watches)
    return telling_audits(settings, watches, clock=clock)


@contextmanager
def serving(services: WebServices, listen: str) -> Iterator[tuple[str, int]]:
    """Serves the services within the block, and yields host and port. Raises what `serving_web` raises."""
    web = services.settings.web
    application, certificate = build_application(services), server_certificate(web)
    with BoundedListener(_bound(listen), web, clock=services.clock) as bound:
        server = uvicorn.Server(_configuration(application, certificate, bound))
        host, port = bound.getsockname()[:2]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="web", daemon=True)
        thread.start()
        logger.info("web_listening", extra={"address": address_of(host, port), "prefix": web.url_prefix})
        try:
            yield host, port
        finally:
            server.should_exit = True
            if services.audits is not None:
                services.audits.close()
            thread.join(2 * STOP_SECONDS_MAX)


def _configuration(
    application: ASGIApp, certificate: ServerCertificate | None, listener: BoundedListener
) -> uvicorn.Config:
    found = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=True,
        proxy_headers=False,
        lifespan="off",
        loop="asyncio",
        http=partial(ImpatientProtocol, listener=listener),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
    )
    found.load()
    found.ssl = None if certificate is None else certificate.context
    return found


def _bound(listen: str) -> socket.socket:
    host, port = host_and_port(listen)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, reuse_port=False
        )
    except (OSError, OverflowError) as error:
        raise address_refused("web.listen", listen, error) from error
