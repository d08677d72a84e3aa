"""Records every act by hand: the act before it is done, and its result afterwards."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.contract.facts import Fact
from reconciler.contract.tables import LOGIN_PREFIX
from reconciler.errors import DatabaseAway, told_to_operators
from reconciler.telling.ports.actions import Intent
from reconciler.wiring.connections import Connections

log = logging.getLogger(__name__)


def operator() -> str:
    """Returns the operator's name for the ledger: the login. With sudo the name includes the person who used sudo."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        return "operator"
    person = os.environ.get("SUDO_USER", login)
    return f"{LOGIN_PREFIX}{person}" if person == login else f"{LOGIN_PREFIX}{person} as {login}"


class ActionResult:
    """The result of an act. The block of `recorded` sets this result."""

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
    """Records the act that the block does. Raises DatabaseAway before the block: an unrecorded act must not happen.

    `by`: the person who does the act. If the block ends with an exception, ^C included, this exception is the recorded
    result. `fact`: what later commands need to know of the act. `undone`: replaces `fact` after an exception.
    """
    actions = connections.ledger.actions
    intent = Intent(by=by, command=command, topic=topic, group=group, unique_key=unique_key, detail=detail)
    action_id = actions.begin(connections.settings.environment, intent, fact=fact)
    outcome, end = ActionResult(), None
    try:
        yield outcome
    except BaseException as error:
        outcome.result, end = f"ended by {told_to_operators(error)}".removesuffix(": "), undone
        raise
    finally:
        try:
            actions.end(action_id, outcome.result, fact=end)
        except DatabaseAway as error:
            # The act is done, so the caller gets its result. The record of the act stays without an end.
            log.warning("action_result_lost: what came of %s could not be written down: %s", command, error)
