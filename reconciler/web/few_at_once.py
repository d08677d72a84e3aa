"""Limits requests that ask brokers and databases for seconds, so that such requests never take all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus

from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import Handler, WebServices

RETRY_AFTER_SECONDS = 2


def few_at_once(most: int) -> Callable[[Handler], Handler]:
    """Wraps handlers that share a number of places. A request that gets no place is refused with 503."""
    places = threading.BoundedSemaphore(most)

    def wrap(handler: Handler) -> Handler:
        @wraps(handler)
        def handle(services: WebServices, request: WebRequest) -> WebResponse:
            if not places.acquire(blocking=False):
                raise WebRefusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{most} requests like this one are under way: ask again",
                    kind="busy",
                    headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
                )
            try:
                return handler(services, request)
            finally:
                places.release()

        return handle

    return wrap


#: For handlers that ask every broker, database and Redis.
asks_everything = few_at_once(4)
