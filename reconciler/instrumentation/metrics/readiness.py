"""Makes the answer of /readyz. Every server of the page uses it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

#: Seconds after which a process that is not ready is asked again.
RETRY_AFTER_SECONDS = 10


def readiness_answer(
    found: Mapping[str, str | None] | None, *, is_told: bool = True
) -> tuple[HTTPStatus, dict[str, object], dict[str, str]]:
    """Makes status, document and headers.

    `found`: dependency -> its error. Error None: the dependency answered. `found` None: the errors were not found out
    in time. `is_told`: the asker may read errors. False: the answer says only that a dependency is away.
    """
    checks = {"dependencies": "no answer in time"}
    if found is not None:
        checks = {name: "ok" if wrong is None else wrong if is_told else "away" for name, wrong in found.items()}
    if all(result == "ok" for result in checks.values()):
        return HTTPStatus.OK, {"status": "ready", "checks": checks}, {}
    answer: dict[str, object] = {"status": "not ready", "checks": checks}
    return HTTPStatus.SERVICE_UNAVAILABLE, answer, {"Retry-After": str(RETRY_AFTER_SECONDS)}
