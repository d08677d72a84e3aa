"""Every act by hand is recorded before it is done, and its result afterwards."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.contract.facts import Fact
from reconciler.contract.tables import LOGIN_PREFIX
from reconciler.errors import DatabaseAway
from reconciler.telling.ports.actions import Intent
from reconciler.wiring.connections import Connections

log = logging.getLogger(__name__)


def operator() -> str:
    """Returns the name for the ledger: the login's, and the person's behind sudo."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        return "operator"
    person = os.environ.get("SUDO_USER", login)
    return f"{LOGIN_PREFIX}{person}" if person == login else f"{LOGIN_PREFIX}{person} as {login}"


class ActionResult:
    """The result of an act; set inside the block."""

    def __init__(self) -> None:
        self.result = ""


@contextmanager
def recorded(
    connections: Connections,
    command: str,
    *,
    by: str,
    topic: str | None = None,
    group: str | None = None,
    unique_key: str | None = None,
    detail: str = "",
    fact: Fact | None = None,
    undone: Fact | None = None,
) -> Iterator[ActionResult]:
    """Surrounds the act, which `by` does. Raises DatabaseAway before it, because an act that cannot be recorded is not
    done.

    A block that ends with an exception, ^C included, has it as its result. `fact`: what later commands need; `undone`:
    the same for an act that ended with an exception.
    """
    actions = connections.ledger.actions
    intent = Intent(by=by, command=command, topic=topic, group=group, unique_key=unique_key, detail=detail)
    action_id = actions.begin(connections.settings.environment, intent, fact=fact)
    outcome, end = ActionResult(), None
    try:
        yield outcome
    except BaseException as error:
        outcome.result, end = f"ended by {type(error).__name__}: {error}".removesuffix(": "), undone
        raise
    finally:
        try:
            actions.end(action_id, outcome.result, fact=end)
        except DatabaseAway as error:
            # The act is done, so its caller gets the result; the record has no end.
            log.warning("action_result_lost: what came of %s could not be written down: %s", command, error)
