"""The page of all brakes: the holds, the rate, and the circuit breaker with the figures that opened it."""

from __future__ import annotations

from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import WebServices


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows every brake of every topic. The brakes are read for each request, so a visitor sees at once what a button
    has done."""
    settings = services.settings
    topics = sorted({subscription.topic for subscription in settings.subscriptions})
    return page(
        services,
        request,
        "brakes.html",
        holds=services.connections.ledger.reports.holds(settings.environment),
        repairs=settings.repairs,
        shadow=[topic for topic in topics if not settings.repairs.is_enabled_for(topic)],
        topics=topics,
    )
