"""Requests made from the API's description by a program that knows nothing else of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from reconciler.clock import SystemClock
from reconciler.web.roles import WebRole
from tests.console.served import served
from tests.services.requirements import require
from tests.unit.web.console_world import settings_of
from tests.unit.web.ledger_of_cases import make_ledger
from tests.unit.web.web_world import with_token

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
DAY_MS = 86_400_000
#: Of each operation.
REQUESTS = 60


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and token of an operator, over a ledger with a row of every kind; every other dependency is away."""
    require(None if find_spec("schemathesis") else "schemathesis is missing: `make test-nightly` installs it")
    folder = tmp_path_factory.mktemp("generated")
    make_ledger(folder)
    users = folder / "users.json"
    token = with_token(users, "generator", WebRole.OPERATOR, expires_at_ms=SystemClock().now_ms() + DAY_MS)
    with served(settings_of(folder, RECONCILER_WEB__USERS_FILE=str(users))) as url:
        yield url, token


def test_each_request_that_the_description_allows_is_answered_as_it_is_described(api: tuple[str, str]) -> None:
    import schemathesis

    url, token = api
    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers=headers)
    schema.config.update(base_url=url)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        require_answers(operation, headers)


def require_answers(operation: Any, headers: dict[str, str]) -> None:
    """To some requests of its description. What is away is described as 503, and is no fault."""
    from schemathesis.checks import CHECKS

    names = ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
    if operation.method.upper() == "GET":  # what an act may name, the settings say
        names.append("positive_data_acceptance")
    checks = CHECKS.get_by_names(names)

    @settings(max_examples=REQUESTS, deadline=timedelta(seconds=60), suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def answered(case: Any) -> None:
        query = case.query or {}
        # Rules that no schema says: a window has a length, a name is no blank, a cursor is what the answer before gave.
        assume(int(query.get("since_ms", -1)) < int(query.get("before_ms", 1 << 62)))
        assume(all(str(value).strip() for value in (case.path_parameters or {}).values()))
        query.pop("cursor", None)
        answer = case.call(headers=headers)
        assert answer.status_code != 500
        case.validate_response(answer, checks=checks)

    answered()
