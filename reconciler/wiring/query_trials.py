"""Tries a query on keys of the brokers before it is trusted, whatever it proves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Protocol

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.secret import Secret
from reconciler.policy.commit_query import KEYS_MAX, BusinessAnswer, BusinessQuery, KeyValue, unknown
from reconciler.policy.commit_query_dry_run import Fitness, QueryAspect, QueryFinding

UNFIT = Code("query.unfit", why=Field.FACT)


class DeclaredQuery(Protocol):
    """A query, and the URL of its database."""

    @property
    def query(self) -> BusinessQuery:
        """The query."""

    @property
    def url(self) -> Secret:
        """The URL."""


def examine_query(one: DeclaredQuery, *, clock: Clock) -> tuple[QueryFinding, ...]:
    """Returns findings about query, login and database that need no message.

    Raises MissingDependency for a driver that is not installed.
    """
    from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

    with closing(SqlBusinessQuery(one.query, one.url, clock=clock)) as adapter:
        # A plan is asked for with keys, and without a message there is no key.
        return tuple(told for told in adapter.examine(()) if told.aspect is not QueryAspect.PLAN)


def tried_query(
    one: DeclaredQuery,
    keys: Iterable[KeyValue | None],
    *,
    proves: Callable[[BusinessAnswer | None], bool],
    clock: Clock,
) -> tuple[list[QueryFinding], dict[KeyValue, BusinessAnswer | None]]:
    """Returns findings about query, login and database, and the answers for the keys.

    A query is not asked if its database, login or plan has a problem. `proves`: True for an answer that proves
    something, with whose keys the collation is tried. Raises MissingDependency for a driver that is not installed.
    """
    from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

    asked = list(dict.fromkeys(key for key in keys if key is not None))
    with closing(SqlBusinessQuery(one.query, one.url, clock=clock)) as adapter:
        found = [*adapter.examine(asked[:KEYS_MAX])]
        unfit = [told.found for told in found if told.fitness is Fitness.UNFIT]
        ask = refusing(unfit[0]) if unfit else adapter.ask
        answers: dict[KeyValue, BusinessAnswer | None] = {}
        for start in range(0, len(asked), KEYS_MAX):
            answers |= ask(asked[start : start + KEYS_MAX])
        if not unfit:
            found.append(adapter.collation([key for key in asked if proves(answers[key])]))
    return found, answers


def refusing(why: Fact) -> Callable[[Sequence[KeyValue]], dict[KeyValue, BusinessAnswer | None]]:
    """Returns answers that a query which is not asked gives to all keys."""
    answer = unknown(UNFIT(why=why))
    return lambda keys: dict.fromkeys(keys, answer)
