"""Commands that change nothing: status, list, explain, docs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.options import ConfigOption, GroupOption, OutputOption, TopicOption, read_settings
from reconciler.cli.output import Output, print_json, print_table, time_text, with_business_ids
from reconciler.commands.docs import INDEX, find, ways_to
from reconciler.commands.listings import LISTINGS, ListingFilter
from reconciler.contract.late_names import without_collector
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import remark, say

if TYPE_CHECKING:
    from reconciler.telling.life_story import LifeStory


class ListingName(StrEnum):
    """The names of the listings."""

    CANDIDATES = "candidates"
    REPAIRS = "repairs"
    ROUNDS = "rounds"
    QUARANTINE = "quarantine"
    OUTAGES = "outages"
    FLOORS = "floors"
    ACTIONS = "actions"


#: Table of `status` -> the columns that a person needs first. In all other tables, these columns are topic and group.
_FIRST = {
    "verdicts": ("topic", "group", "state", "verdict"),
    "repairs": ("topic", "scope", "state", "rung"),
    "holds": ("topic", "kind"),
    "outages": ("started_at_ms", "reason"),
}


def status(
    rounds_within: Annotated[
        float | None,
        typer.Option(
            "--rounds-within",
            min=1,
            help="Every commit older than this many seconds must be accounted for. Default: 300, or 60 intervals of "
            "rounds if these are longer.",
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show until when every commit is accounted for, or what needs a person; then the tables with all numbers.

    Exit code 1: a quarantined key, a failed repair, an open breaker, keys that stay undecided, or damaged values need a
    person. Exit code 3: a dependency is away, or old commits are not accounted for.
    """
    with without_collector():
        from reconciler.commands.status.reading import read_status
        from reconciler.wiring.connections import Connections
        from reconciler.words import said

    with Connections.for_one_answer(read_settings(config)) as connections:
        report = read_status(connections, rounds_within_seconds=rounds_within)
    lines = [f"{name}: {said(line)}" for name, of_name in report.remarks.items() for line in of_name]
    if output is Output.JSON:
        print_json(report.as_dict())
        remark(*lines)
    else:
        summary = said(report.summary)
        say(summary if summary.endswith((".", "?")) else f"{summary}.", *lines)
        for title, columns, rows in report.tables():
            say("")
            _print_rows(title, columns, rows, first=_FIRST.get(title.lower(), ("topic", "group")))
        remark(*ways_to(lines))
    raise typer.Exit(report.exit_code)


def list_rows(
    what: Annotated[ListingName, typer.Argument(help="The listing.")] = ListingName.CANDIDATES,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help=f"Only rows with this state. Candidates: {', '.join(CandidateState)}. "
            f"Repairs: {', '.join(RepairState)}.",
        ),
    ] = None,
    verdict: Annotated[
        Verdict | None, typer.Option("--verdict", help="Only candidates with this verdict.", metavar="VERDICT")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Only this unique key, business id or query key.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")] = 100,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List candidates, repairs, rounds, refused announcements (quarantine), outages, floors, or acts of people
    (actions).

    The newest rows come first.

    Exit code 3: no process ever ran with the environment of the settings.
    """
    with without_collector():
        from reconciler.commands.asking.business_ids import business_ids_of
        from reconciler.commands.list import list_rows
        from reconciler.telling.ports.paging import LedgerFilter  # slow to load
        from reconciler.wiring.connections import Connections
        from reconciler.words import said

    given = {"--state": state, "--verdict": verdict, "--topic": topic, "--group": group, "--key": key}
    listing = LISTINGS[what.value]
    filters = {one.option: one for one in listing.filters}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        # A filter that the listing lacks is refused, because ignoring it would show rows that do not match.
        if name not in filters:
            raise InvalidValue(name, str(value), f"does not apply to {what.value}")
        values |= _meaning(filters[name], value)
    only = LedgerFilter(**values)
    with Connections.for_one_answer(read_settings(config)) as connections:
        found = list_rows(connections, what.value, only=only, limit=limit + 1, name=key)
        (columns, rows), has_more = found.texts, len(found.rows) > limit
        if "unique_key" in columns and output is not Output.JSON:
            place = columns.index("unique_key")
            keys = dict.fromkeys(str(row[place]) for row in rows[:limit] if row[place])
            columns, rows = with_business_ids(columns, rows, business_ids_of(connections, list(keys)), key="unique_key")
    lines = [f"note: {said(note)}" for note in found.notes]
    lines += [f"only the first {limit}: there are more, see --limit"] if has_more else []
    if output is Output.JSON:
        print_json({what.value: found.named()[:limit], "has_more": has_more, **found.told()})
        remark(*lines)
    else:
        say(*lines)
        _print_rows(what.value.capitalize(), columns, rows[:limit], first=listing.looked_for)
    raise typer.Exit(found.exit_code)


def explain(
    key: Annotated[str, typer.Argument(help="Unique key, business id or query key.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the life of one message in time order, with the evidence.

    For a business id or a query key, show the life of each of its messages.

    Exit code 2: the message is unknown. Exit code 3: a dependency that might know more is away, or no process ever ran
    with the environment of the settings.
    """
    with without_collector():
        from reconciler.commands.explain import life_stories
        from reconciler.wiring.connections import Connections
        from reconciler.words import said

    with Connections.for_one_answer(read_settings(config)) as connections:
        explanation = life_stories(connections, key)
    heard = [] if explanation.is_known else [said(explanation.unheard)]
    heard += [f"note: {said(note)}" for note in explanation.notes]
    gaps = [f"away: {said(line)}" for line in explanation.away]
    gaps += [f"no answer: {said(line)}" for line in explanation.silent]
    # A missing answer is printed before the conclusions that need it.
    stories = [story for story in explanation.stories if story.is_known]
    first = heard if stories else [*gaps, *heard]
    if output is Output.JSON:
        print_json(explanation.as_dict())
        remark(*first, *(gaps if stories else []))
    else:
        say(*first)
        for number, story in enumerate(stories):
            say(*([""] if number else []), *map(said, story.outlook), *([] if number else gaps), "")
            _print_life(story)
    raise typer.Exit(explanation.exit_code)


def _print_life(story: LifeStory) -> None:
    from reconciler.words import said

    rows = [(time_text(e.at_ms), e.witness, said(e.what), _evidence(e.evidence)) for e in story.events]
    columns = ("time", "witness", "what", "evidence")
    print_table(f"Life of {story.unique_key}", columns, rows, first=columns[:3])


def _meaning(of: ListingFilter, text: str) -> Mapping[str, Any]:
    try:
        return of.meaning(text.upper() if of.words else text)
    except ValueError as error:
        raise InvalidValue(of.option, text, f"expected one of {', '.join(of.words)}") from error


def _evidence(evidence: Mapping[str, object]) -> str:
    from reconciler.words import told

    shown = ((name, value) for name, value in _with_times(told(evidence)).items() if value is not None)
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, default=str)}" for name, value in shown
    )


def _with_times(values: Mapping[str, object]) -> dict[str, object]:
    """Returns the values with times for people instead of milliseconds, at any depth."""
    shown: dict[str, object] = {}
    for name, value in values.items():
        if name.endswith("_ms") and type(value) is int:
            shown[name.removesuffix("_ms")] = time_text(value)
        else:
            shown[name] = _with_times(value) if isinstance(value, Mapping) else value
    return shown


def _print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, first: Sequence[str]) -> None:
    """Prints rows. Milliseconds are printed as times for people."""
    shown = [[_cell(c, v) for c, v in zip(columns, row, strict=True)] for row in rows]
    print_table(title, [_heading(column) for column in columns], shown, first=[_heading(column) for column in first])


#: Column -> its heading, if its name does not say what people read there.
_HEADINGS = {"last_round_ms": "last look"}


def _heading(column: str) -> str:
    return _HEADINGS.get(column) or column.removesuffix("_ms").replace("_", " ")


def _cell(column: str, value: object) -> object:
    if column.endswith("_ms") and isinstance(value, int):
        return time_text(value)
    if isinstance(value, dict):
        return json.dumps(_with_times(value), default=str)
    return value


def docs(
    page: Annotated[
        str,
        typer.Argument(
            help="Page or section as messages name it: docs/how-to/install.md#extras or BreakerOpen. With zh/ before "
            "it, the page is in Chinese."
        ),
    ] = INDEX,
) -> None:
    """Print a page of the documentation, or one of its sections, as Markdown. Without PAGE, print the list of pages."""
    say(*find(page).splitlines())


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("status")(status)
    app.command("list")(list_rows)
    app.command("explain")(explain)
    app.command("docs")(docs)
