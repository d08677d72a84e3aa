"""/livez and /readyz for probes, and /metrics for Prometheus. metrics.listen serves the same pages."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.contract.extras import install
from reconciler.instrumentation.metrics.readiness import readiness_answer
from reconciler.web.description import (
    BAD_PARAMETER,
    TEXT,
    ApiEndpoint,
    Description,
    one_of,
    record,
    values_of,
)
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse, json_response
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices


def _live(_services: WebServices, _request: WebRequest) -> WebResponse:
    """Answers without asking a dependency. A process must not be killed because another process is away."""
    return json_response({"status": "alive"})


def _ready(services: WebServices, request: WebRequest) -> WebResponse:
    # Errors name hosts and databases. But a probe is answered under any name, and so is a page of another site.
    is_told = bool(request.visitor.name) and request.visitor.role >= WebRole.VIEWER
    status, document, headers = readiness_answer(services.dependencies.get(), is_told=is_told)
    return json_response(document, status=status, headers=headers)


def _metrics(services: WebServices, request: WebRequest) -> WebResponse:
    values_of((), request)
    if services.metrics is None:
        raise WebRefusal(
            HTTPStatus.NOT_FOUND,
            f"prometheus-client, which writes metrics, is not installed: {install('metrics')}",
        )
    body, content_type = services.metrics(request.headers.get("accept", ""))
    return WebResponse(content_type=content_type, body=body)


LIVE = ApiEndpoint(
    handler=_live,
    about=Description(
        summary="The process answers",
        answer=record({"status": one_of(["alive"])}),
        statuses={200: "it does"},
        more="Asks no dependency.",
    ),
)
READY = ApiEndpoint(
    handler=_ready,
    about=Description(
        summary="Whether every dependency answers",
        answer=record(
            {
                "status": one_of(["ready", "not ready"]),
                "checks": {
                    "type": "object",
                    "additionalProperties": TEXT,
                    "description": "Dependency: ok, or what is wrong with it; without a login only `away`.",
                },
            }
        ),
        statuses={200: "all do", 503: "one does not"},
        answers_with=(200, 503),
    ),
)
METRICS = ApiEndpoint(
    handler=_metrics,
    about=Description(
        summary="Metrics for Prometheus",
        answer=TEXT,
        statuses={200: "the exposition", 404: "prometheus-client is not installed", **BAD_PARAMETER},
        more="Those of the process where metrics.listen is set, else what `reconciler status` says, as numbers.",
        content_type="text/plain",
    ),
)
