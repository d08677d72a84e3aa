"""Groups that got another name by `reconciler group rename`. The records of acts show these groups.

Brokers keep the old name's offsets, and an old deployment may start members under the old name again. These members
find inbox rows only up to the rename. So a message that they consume takes effect a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from reconciler.commands.asking.brokers import masters
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.kept_facts import ACT_GROUP_RENAME_UNDONE
from reconciler.contract.row_rules import GROUP_RENAME
from reconciler.errors import ChangedMeanwhile, DatabaseAway, ReconcilerError
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.idempotency import KeyedRequest, KeyUse
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.wiring.connections import Connections

RENAME_WITHOUT_END = Code("status.rename-without-end", group=Field.NAME)
RENAMED_GROUP_HAS_MEMBERS = Code("status.renamed-group-has-members", group=Field.NAME, number=Field.NUMBER)

#: Maximum number of renames of an environment that are looked at. The newest renames count.
RENAMES_MAX = 1_000
#: A rename that did nothing for this time counts as dead. Only one rename of an environment runs at a time.
LEASE_SECONDS = 60.0
_EVERY_RENAME = KeyedRequest(by=GROUP_RENAME, key=GROUP_RENAME, digest=bytes(32))


@dataclass(slots=True)
class OnlyRename:
    """The proof that no other rename of the environment is running."""

    connections: Connections
    token: str
    _renewed_at: float = field(default=0.0, init=False)

    def keep(self, *, at_least_seconds: float = 0.0) -> None:
        """Renews the lease, unless the last renewal was a short time ago.

        Raises ChangedMeanwhile if another process has taken the lease.
        """
        now, ledger = self.connections.clock.monotonic_seconds(), self.connections.ledger
        if now - self._renewed_at < at_least_seconds:
            return
        environment, self._renewed_at = self.connections.settings.environment, now
        renew = ledger.idempotency_keys.renew
        if not renew(environment, _EVERY_RENAME, token=self.token, lease_seconds=LEASE_SECONDS):
            raise ChangedMeanwhile(GROUP_RENAME, now={"another one": "at work"})


@contextmanager
def only_rename(connections: Connections) -> Iterator[OnlyRename | None]:
    """Yields the lease of the only rename. Yields None if another rename is running, or died a short time ago."""
    environment, keys = connections.settings.environment, connections.ledger.idempotency_keys
    begun = keys.begin(environment, _EVERY_RENAME, lease_seconds=LEASE_SECONDS)
    if begun.use is not KeyUse.FIRST:
        yield None
        return
    try:
        yield OnlyRename(connections, begun.token)
    finally:
        with suppress(DatabaseAway):  # the lease ends by itself
            keys.forget(environment, _EVERY_RENAME, token=begun.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """Names of groups that were given up by renames."""

    #: Names that no [[subscriptions]] section has any more.
    retired: frozenset[str]
    #: Old names that are still configured although a rename has begun. The rename is running, or its process died.
    unfinished: frozenset[str]
    #: Old or new name -> the newest rename of this name that may have changed the ledger.
    newest: Mapping[str, OperatorAction]

    def in_the_way_of(self, old: str, new: str) -> Iterator[str]:
        """Yields a line for each other rename of either name that prevents a rename from `old` to `new`."""
        acts = (self.newest[name] for name in (old, new) if name in self.newest)
        for act in {act.action_id: act for act in acts}.values():
            other, its_new = _names(act)
            if (other, its_new) == (old, new):
                continue
            if act.ended_at_ms is None:
                yield f"the rename of {other} to {its_new} has no end: run that again first"
            elif other == old:
                yield f"{old} is {its_new} by a rename: give that one another name, or rename it back first"


def _names(act: OperatorAction) -> tuple[str, str]:
    """Returns the old and the new name."""
    known = {} if act.fact is None else act.fact.fields
    return str(known.get("old", act.intent.group or "")), str(known.get("new", ""))


def renames(connections: Connections) -> Renames:
    """Reads the renames from the ledger. Raises DatabaseAway."""
    settings = connections.settings
    listing = partial(connections.ledger.reports.actions, settings.environment, only=LedgerFilter(command=GROUP_RENAME))
    every = sorted(all_rows(listing, limit=RENAMES_MAX), key=lambda act: act.started_at_ms)
    newest = {act.intent.group: act for act in every if act.intent.group is not None}
    # A rename that ended with an error has undone its changes.
    took = [act for act in every if act.fact is None or act.fact.code is not ACT_GROUP_RENAME_UNDONE]
    configured = {one.group for one in settings.subscriptions}
    return Renames(
        retired=frozenset(newest.keys() - configured),
        unfinished=frozenset(group for group in newest.keys() & configured if newest[group].ended_at_ms is None),
        newest={name: act for act in took for name in _names(act)},
    )


def told_of_renames(connections: Connections) -> Iterator[Fact]:
    """Yields one line for each name under which effects may happen twice.

    Brokers are asked only if a rename has retired a name.
    """
    found = renames(connections)
    for group in sorted(found.unfinished):
        yield RENAME_WITHOUT_END(group=group)
    for group in sorted(found.retired):
        members: set[str] = set()
        with suppress(ReconcilerError):  # brokers that are away are reported elsewhere
            for address in masters(connections).values():
                members.update(one.client_id for one in connections.admin.consumer_connections(address, group))
        if members:
            yield RENAMED_GROUP_HAS_MEMBERS(group=group, number=len(members))
