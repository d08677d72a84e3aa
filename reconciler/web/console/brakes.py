"""The page of what stops or slows repairs: holds, the circuit breaker with the figures that opened it, the rate."""

from __future__ import annotations

from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import WebServices


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Every brake of every topic, as it is now: who has just pressed a button sees what came of it."""
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
