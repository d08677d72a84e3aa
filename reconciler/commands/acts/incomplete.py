"""`reconciler incomplete`: a person accepts or deletes inbox rows whose handler committed before it had finished."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from reconciler.clock import utc_text
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.availability import ask_ledger, require
from reconciler.commands.asking.business_ids import HINTS_MAX, other_case_note
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, Ending
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway, DatabaseSilent, InvalidValue, without_remedy
from reconciler.sql.incomplete_rows import ROWS_AT_ONCE, IncompleteRow, IncompleteRows
from reconciler.sql.rights import lacks_right
from reconciler.telling.ports.paging import LedgerFilter, Position
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.subscriptions import find_subscription, subscription_of
from reconciler.words import said

#: Maximum number of rows of one act. Further rows are reported, and are left to the next act.
ROWS_MAX = 100_000
_DONE = {Ending.ACCEPT: "accepted", Ending.DELETE: "deleted"}
_WOULD_BE = {ending: f"would be {done}" for ending, done in _DONE.items()}
_ENDED = frozenset((*_DONE.values(), *_WOULD_BE.values()))
_YOUNG = "younger than 15 minutes, its handler may run: left (--also-young)"
_DISMISSED = "a person dismissed it, and its message would take effect: left (reconciler dismiss {key} --take-back)"
_NEEDS = (
    "name a login with SELECT, UPDATE (incomplete) and DELETE on reconciler_inbox by --url: the owner's, or one that "
    "docs/reference/rights.md lists for `incomplete`"
)
_AGAIN = "run it again when the database answers: what is done stays done"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteReport:
    """What was found and done. Each row has unique key, time of writing, inbox and outcome."""

    keys: tuple[tuple[str, str, str, str], ...] = ()
    #: True if there may be rows that were not looked at.
    has_more: bool = False

    columns = ("unique key", "written at", "inbox", "outcome")

    @property
    def exit_code(self) -> int:
        """The exit code. For a dry run: the exit code that the act would have.

        Exit code 4: a requested row was left as it is.
        Exit code 0: no requested row was left as it is.
        """
        is_left = any(outcome not in _ENDED for *_, outcome in self.keys)
        return 4 if is_left or self.has_more else 0

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        names = ("unique_key", "written_at", "inbox", "outcome")
        return {"keys": [dict(zip(names, row, strict=True)) for row in self.keys], "has_more": self.has_more}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEnding:
    """The ending that a person asks for."""

    topic: str
    group: str
    ending: Ending
    reason: str
    by: str
    #: Empty: every row of the group.
    unique_keys: Sequence[str] = ()
    #: True: rows younger than 15 minutes count, too. The person says that no handler works on these rows any more.
    also_young: bool = False
    #: The URL of an inbox with a login that may write. None: the URLs of the settings.
    url: Secret | None = None
    #: Called with the rows that the act would change. If `confirm` returns False, nothing is done. Not called for named
    #: keys.
    confirm: Callable[[IncompleteReport], bool] = lambda _: True


def end_incomplete(connections: Connections, wanted: WantedEnding, *, dry_run: bool) -> IncompleteReport | None:
    """Accepts or deletes rows, and opens their keys again, so that the next round judges the keys.

    Returns None if the person declined. Raises InvalidValue for a subscription that is not configured. Raises
    DatabaseAway if a database does not answer, or the login may not write.
    """
    require(ask_ledger(connections))
    of, inboxes = _inboxes(connections, wanted)
    found = [(inbox, _found(inbox, wanted)) for inbox in inboxes]
    hints = _hints(connections, found, wanted)
    dismissed = _dismissed(connections, of, [row for _, rows in found for row in rows], wanted)
    preview = _report(found, wanted, lambda *_: _WOULD_BE[wanted.ending], hints, dismissed)
    if dry_run:
        return preview
    if not wanted.unique_keys and preview.keys and not wanted.confirm(preview):
        return None
    return _end(connections, of, found, wanted, hints)


def _inboxes(connections: Connections, wanted: WantedEnding) -> tuple[Subscription, Sequence[IncompleteRows]]:
    """Returns the subscription, and its inbox databases or the inbox that the person names.

    Raises InvalidValue for a subscription that is not configured or has no inbox.
    """
    configured = find_subscription(connections.settings, wanted.topic, wanted.group)
    subscription = subscription_of(connections.settings, configured)
    urls = (wanted.url,) if wanted.url is not None else effect_evidence(connections.settings).inboxes_of(subscription)
    if not urls:
        raise InvalidValue("inbox_url", f"{wanted.topic}/{wanted.group}", "it has none: name the inbox by --url")
    return subscription, [IncompleteRows(connections.engine(one), subscription) for one in urls]


def _dismissed(
    connections: Connections, of: Subscription, rows: Sequence[IncompleteRow], wanted: WantedEnding
) -> set[str]:
    """Returns the keys that a person has dismissed. Returns none if the rows are to be accepted.

    Once a row is deleted, the next delivery takes effect, in addition to what the person did by hand. Nothing happens
    after a row is accepted.
    """
    if wanted.ending is not Ending.DELETE:
        return set()
    known = connections.ledger.candidates.of_keys(of, [row.unique_key for row in rows])
    return {key for key, candidate in known.items() if candidate.is_dismissed}


def _hints(
    connections: Connections, found: Sequence[tuple[IncompleteRows, Sequence[IncompleteRow]]], wanted: WantedEnding
) -> Mapping[str, str]:
    """Returns key without a row -> known keys that differ from it in case alone."""
    seen = {row.unique_key for _, rows in found for row in rows}
    missing = [key for key in wanted.unique_keys if key not in seen][:HINTS_MAX]
    return {key: said(note) for key in missing if (note := other_case_note(connections, key))}


def _found(inbox: IncompleteRows, wanted: WantedEnding) -> list[IncompleteRow]:
    try:
        return inbox.of_keys(wanted.unique_keys) if wanted.unique_keys else inbox.all(limit=ROWS_MAX)
    except DatabaseAway as error:
        raise _named(error) from error


def _end(
    connections: Connections,
    subscription: Subscription,
    found: Sequence[tuple[IncompleteRows, Sequence[IncompleteRow]]],
    wanted: WantedEnding,
    hints: Mapping[str, str],
) -> IncompleteReport:
    ended: dict[IncompleteRows, set[str]] = {inbox: set() for inbox, _ in found}
    to_end = [(inbox, [row for row in rows if _is_ended(row, wanted)]) for inbox, rows in found]
    dismissed: set[str] = set()
    one_key = wanted.unique_keys[0] if len(wanted.unique_keys) == 1 else None
    command = f"incomplete {wanted.ending}"
    with recorded(
        connections, command, by=wanted.by, topic=wanted.topic, group=wanted.group, unique_key=one_key,
        detail=wanted.reason,
    ) as outcome:  # fmt: skip
        try:
            try:
                for inbox, rows in to_end:
                    for first in range(0, len(rows), ROWS_AT_ONCE):
                        page = rows[first : first + ROWS_AT_ONCE]
                        # The ledger is another database, so it is asked again as late as possible. A dismissal that
                        # still comes in between is noticed by its effect (absence_review.py).
                        dismissed |= _dismissed(connections, subscription, page, wanted)
                        kept = [row for row in page if row.unique_key not in dismissed]
                        ended[inbox] |= inbox.end(kept, wanted.ending)
            finally:
                outcome.result = f"{sum(map(len, ended.values()))} rows {_DONE[wanted.ending]}"
                _judge_again(connections, subscription, wanted, found)
        except DatabaseAway as error:
            in_all = sum(len(rows) for _, rows in to_end)
            raise _named(error, f"for certain {outcome.result} of {in_all}: ") from error

    def outcome_of(inbox: IncompleteRows, row: IncompleteRow) -> str:
        return _DONE[wanted.ending] if row.unique_key in ended[inbox] else "has changed meanwhile: left"

    return _report(found, wanted, outcome_of, hints, dismissed)


def _is_ended(row: IncompleteRow, wanted: WantedEnding) -> bool:
    """Returns True if the act may change the row. Deleting a row on which a handler still works causes two effects."""
    return wanted.also_young or not row.is_young


def _judge_again(
    connections: Connections,
    subscription: Subscription,
    wanted: WantedEnding,
    found: Sequence[tuple[IncompleteRows, Sequence[IncompleteRow]]],
) -> None:
    """Opens the keys that wait for this act.

    An earlier act may have changed the row of a key without opening the key. Such a key is opened, too. A key whose row
    is still incomplete gets the same verdict again.
    """
    ledger = connections.ledger
    left = {row.unique_key for _, rows in found for row in rows if not _is_ended(row, wanted)}
    waiting = LedgerFilter(
        topic=subscription.topic,
        group=subscription.group,
        unique_keys=tuple(wanted.unique_keys) or None,
        candidate_state=CandidateState.QUARANTINED,
        verdict=Verdict.INCOMPLETE,
    )
    after: Position | None = None
    while True:
        page = ledger.reports.candidates(subscription.environment, limit=ROWS_AT_ONCE, only=waiting, after=after)
        for row in page.rows:
            if row.unique_key not in left:
                ledger.candidates.reopen(row)
        after = page.end
        if after is None:
            return


def _report(
    found: Sequence[tuple[IncompleteRows, Sequence[IncompleteRow]]],
    wanted: WantedEnding,
    outcome_of: Callable[[IncompleteRows, IncompleteRow], str],
    hints: Mapping[str, str],
    dismissed: Collection[str],
) -> IncompleteReport:
    def told(inbox: IncompleteRows, row: IncompleteRow) -> str:
        if row.unique_key in dismissed:
            return _DISMISSED.format(key=row.unique_key)
        return outcome_of(inbox, row) if _is_ended(row, wanted) else _YOUNG

    lines = [
        (row.unique_key, utc_text(row.written_at_ms), inbox.database, told(inbox, row))
        for inbox, rows in found
        for row in rows
    ]
    seen = {key for key, *_ in lines}
    lines += [
        (key, "", "", "; ".join(filter(None, ["no incomplete row", hints.get(key)])))
        for key in wanted.unique_keys
        if key not in seen
    ]
    has_more = not wanted.unique_keys and any(len(rows) == ROWS_MAX for _, rows in found)
    return IncompleteReport(keys=tuple(lines), has_more=has_more)


def _named(error: DatabaseAway, how_far: str = "") -> Exception:
    """Returns the error with the login that lacks a right. For a silent server the error says what was done before."""
    if lacks_right(error):
        return InvalidValue("--url", "the login of this inbox", f"{_NEEDS} ({error})")
    if isinstance(error, DatabaseSilent):
        return DatabaseSilent(f"{how_far}{without_remedy(error, error.remedy)}", remedy=_AGAIN)
    return error
