"""The description of each listing of the ledger: the columns of its rows, and the filters.

The command line, the API, the console and the reference pages read this description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from reconciler.contract import tables
from reconciler.contract.schema import Table
from reconciler.contract.tables import CandidateState, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ListingFilter:
    """A filter for rows with one value."""

    #: The name of the parameter in the API.
    name: str
    doc: str
    #: The field of LedgerFilter. Empty: the field has the name of this filter. KEY sets no field, because a name stands
    #: for unique keys.
    sets: str = ""
    #: The kind of the values: texts, words of a closed list, or yes and no.
    kind: type[str] | type[bool] = str
    #: The option of the command line. Empty: there is no option.
    option: str = ""
    #: The search field on the console's page. Empty: there is no search field.
    field: str = ""

    @property
    def words(self) -> Sequence[str]:
        """The words of the closed list. Empty: the value is a text, or yes and no."""
        return tuple(map(str, self.kind)) if issubclass(self.kind, StrEnum) else ()

    def meaning(self, value: Any) -> Mapping[str, Any]:
        """Returns field of LedgerFilter -> value. Returns nothing for KEY.

        Raises ValueError for a word that the closed list lacks.
        """
        return {} if self is KEY else {self.sets or self.name: self.kind(value)}


@dataclass(frozen=True, slots=True)
class ListingColumn:
    """One value of each row."""

    name: str
    #: The attribute of the ledger's value, or a function that makes the cell of that value.
    value: str | Callable[[Any], object]
    #: The name of the column in the ledger's table. Empty: the same name.
    in_table: str = ""
    #: The description of a value that no column of the table holds.
    doc: str = ""
    #: The kind of a value that no column of the table holds: "text", "flag", or "fact".
    kind: str = "text"
    #: False: the console's page leaves this column out.
    is_on_page: bool = True

    def cell(self, row: Any) -> object:
        """Returns the value for one row. A word of a closed list becomes a text."""
        found = self.value(row) if callable(self.value) else attrgetter(self.value)(row)
        return text_of(found) if isinstance(found, StrEnum) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A listing of rows of one kind. The newest row comes first."""

    name: str
    #: One line for the description of the API.
    summary: str
    table: Table
    columns: Sequence[ListingColumn]
    filters: Sequence[ListingFilter] = ()
    #: The column with the time by which rows are ordered and searched. Empty: one page has all rows.
    time: str = ""
    #: Columns that a person searches for. These are the first columns of a table.
    looked_for: Sequence[str]
    #: The first columns of the console's page. All other columns follow in the order of `columns`.
    leading: Sequence[str] = ()

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def on_page(self) -> Sequence[str]:
        """The names of the columns on the console's page, in its order."""
        return [*self.leading, *(c.name for c in self.columns if c.is_on_page and c.name not in self.leading)]

    def row(self, found: Any) -> Row:
        """Returns the cells of one value of the ledger."""
        return tuple(column.cell(found) for column in self.columns)


def text_of(value: object) -> str | None:
    """Returns the text of an enumeration's value, or None."""
    return None if value is None else str(value)


def _listed(reasons: Mapping[str, object]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(reasons.items()))


TOPIC = ListingFilter("topic", "Only rows of this topic.", option="--topic", field="topic")
GROUP = ListingFilter("group", "Only rows of this consumer group.", option="--group", field="group")
VERDICT = ListingFilter("verdict", "Only rows with this verdict.", kind=Verdict, option="--verdict", field="verdict")
HAS_LOSS = ListingFilter(
    "has_loss",
    "true: only rows with a loss_verdict; false: only others.",
    sets="is_loss",
    kind=bool,
    field="loss",
)
SCOPE = ListingFilter("scope", "`*`, or the group of a hand-over.")
RUNG = ListingFilter("rung", "Only rows that are repaired in this way.", kind=Rung)
KEY = ListingFilter(
    "key",
    "Only rows of this unique key, or of this business id's newest messages.",
    option="--key",
    field="name",
)
BY = ListingFilter("by", "Only what this person did: `ann` finds `web:ann` and `operator ann`, too.", field="by")


def _state(kind: type[StrEnum], sets: str, *, of: str = "rows") -> ListingFilter:
    return ListingFilter("state", f"Only {of} in this state.", sets=sets, kind=kind, option="--state", field="state")


#: Filters of jobs, which `reconciler job list` shows.
JOB_FILTERS = (_state(JobState, "job_state", of="jobs"), BY)


def _columns(names: str, of: str = "") -> Sequence[ListingColumn]:
    """Returns columns with these names.

    A value is the attribute of the same name. `of`: the object that has these attributes.
    """
    return [ListingColumn(name, f"{of}.{name}".lstrip(".")) for name in names.split()]


def _group(of: str) -> ListingColumn:
    return ListingColumn("group", f"{of}.group", "consumer_group")


_ALL = (
    Listing(
        name="candidates",
        summary="Messages that were due and verified, with their verdicts",
        table=tables.CANDIDATE,
        columns=(
            *_columns("topic", "subscription"),
            _group("subscription"),
            *_columns("unique_key state verdict loss_verdict attempts first_seen_ms updated_at_ms"),
        ),
        filters=(TOPIC, GROUP, _state(CandidateState, "candidate_state"), VERDICT, HAS_LOSS, KEY),
        time="first_seen_ms",
        looked_for=("unique_key", "state", "verdict"),
        leading=("unique_key", "first_seen_ms"),
    ),
    Listing(
        name="repairs",
        summary="Repairs",
        table=tables.REPAIR,
        columns=(
            *_columns("topic scope unique_key state rung attempts answer created_at_ms done_at_ms"),
            ListingColumn(
                "fact",
                "answer_fact",
                doc="What the answer says; null: somebody else's words.",
                kind="fact",
                is_on_page=False,
            ),
        ),
        filters=(TOPIC, SCOPE, _state(RepairState, "repair_state"), RUNG, KEY),
        time="created_at_ms",
        looked_for=("unique_key", "state", "rung"),
        leading=("unique_key", "topic", "scope", "state", "rung", "attempts", "created_at_ms", "done_at_ms"),
    ),
    Listing(
        name="rounds",
        summary="Rounds that ran",
        table=tables.ROUND,
        columns=(
            *_columns("topic", "done.shard.subscription"),
            _group("done.shard.subscription"),
            ListingColumn("shard", "done.shard.number"),
            ListingColumn("epoch", "done.epoch", is_on_page=False),
            *_columns("generation", "done"),
            ListingColumn("at_ms", "done.at_ms", is_on_page=False),
            *_columns("announced matched pending_before pending_added pending_matched pending_after", "done.counts"),
            ListingColumn(
                "void", "is_void", doc="Redis fell back to a memory before it: it counts as never run.", kind="flag"
            ),
            *_columns("stored_at_ms"),
        ),
        filters=(TOPIC, GROUP),
        time="stored_at_ms",
        looked_for=("stored_at_ms", "topic", "group"),
        leading=("stored_at_ms",),
    ),
    Listing(
        name="outages",
        summary="Times without Redis, or without its memory",
        table=tables.OUTAGE,
        columns=(
            *_columns("started_at_ms reason scanned closed_at_ms"),
            ListingColumn("left_out", lambda outage: _listed(outage.left_out), doc="What the scan left out, and why."),
        ),
        time="started_at_ms",
        looked_for=("started_at_ms", "reason"),
        leading=("started_at_ms", "closed_at_ms"),
    ),
    Listing(
        name="quarantine",
        summary="Announcements that were refused",
        table=tables.QUARANTINE,
        columns=(
            *_columns("unique_key_topic broker", "refused.queue"),
            ListingColumn("queue", "refused.queue.queue_id", "queue_id"),
            ListingColumn("offset", "refused.queue_offset", "queue_offset"),
            *_columns("reason detail", "refused"),
            *_columns("seen_at_ms"),
        ),
        time="seen_at_ms",
        looked_for=("seen_at_ms", "reason"),
        leading=("seen_at_ms", "reason", "detail"),
    ),
    Listing(
        name="actions",
        summary="What people did by hand",
        table=tables.OPERATOR_ACTION,
        columns=(
            *_columns("started_at_ms"),
            *_columns("by command topic", "intent"),
            _group("intent"),
            *_columns("unique_key detail", "intent"),
            *_columns("result ended_at_ms"),
        ),
        filters=(TOPIC, GROUP, BY, KEY),
        time="started_at_ms",
        looked_for=("started_at_ms", "command"),
    ),
    Listing(
        name="floors",
        summary="Where announcements would start again if Redis lost everything",
        table=tables.FLOOR,
        columns=(
            *_columns("topic", "subscription"),
            _group("subscription"),
            *_columns("broker"),
            ListingColumn("queue", "queue_id", "queue_id"),
            ListingColumn("offset", "queue_offset", "queue_offset"),
            *_columns("updated_at_ms"),
        ),
        filters=(TOPIC, GROUP),
        looked_for=("topic", "group"),
    ),
)
LISTINGS: Mapping[str, Listing] = {listing.name: listing for listing in _ALL}
