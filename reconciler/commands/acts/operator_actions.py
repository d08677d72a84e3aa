"""Everything that is done by hand is written down before it is done, and what came of it after."""

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
    """The name that goes into the ledger: the login's, and the person's behind sudo."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        return "operator"
    person = os.environ.get("SUDO_USER", login)
    return f"{LOGIN_PREFIX}{person}" if person == login else f"{LOGIN_PREFIX}{person} as {login}"


class ActionResult:
    """The result of an action; set inside the block."""

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
    """The act is the block, `by` who does it. Raises DatabaseAway before it: what cannot be written down is not done.

    A block that ends with an exception, ^C included, has that for its result. `fact`: what later commands decide by;
    `undone`: that of an act that ended so.
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
            # The action is done, so its caller gets the result; the row stays without an end.
            log.warning("action_result_lost: what came of %s could not be written down: %s", command, error)
