"""Commands that change something. Before an act on many messages, the command shows the keys and asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import (
    ConfigOption,
    GroupOption,
    OutputOption,
    TopicOption,
    YesOption,
    read_settings,
    require_key,
    seconds_of,
)
from reconciler.cli.output import Output, print_json, print_table, time_text, with_business_ids
from reconciler.contract.tables import HoldKind, RepairAct
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import ask, people, remark, say

if TYPE_CHECKING:
    from reconciler.commands.acts.dismiss import DismissalReport
    from reconciler.commands.acts.repair import ManualRepairReport
    from reconciler.policy.ports.ledger import HeldTopic
    from reconciler.wiring.connections import Connections

Table = tuple[Sequence[str], Sequence[tuple[object, ...]]]

#: Exit code if the person declined and nothing was changed.
DECLINED = 4
#: The columns of a table of repairs that a person needs first.
_FIRST = ("unique key", "verdict", "outcome")
#: The line that is printed after a dismissal.
WAY_BACK = "a dismissal that was wrong: `reconciler dismiss KEY --take-back --reason ...` tells what comes then"
#: The year that datetime gives to a time of day without a date.
_YEAR_OF_NO_DATE = 1900
#: Maximum number of messages that one `dismiss --all` shows before it asks.
PREVIEWED_MAX = 100
#: Maximum number of explanations that are printed for the keys of one dismissal.
_SENTENCES_MAX = 20


class _Way(StrEnum):
    """The way in which named messages are repaired."""

    LADDER = RepairAct.LADDER
    HAND_OVER = RepairAct.HAND_OVER


def repair(
    keys: Annotated[
        list[str] | None, typer.Argument(help="Unique keys, or business ids of one message.", show_default=False)
    ] = None,
    all_open: Annotated[bool, typer.Option("--all", help="Repair every open loss.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Try every failed repair again.")] = False,
    topic: TopicOption = None,
    group: GroupOption = None,
    way: Annotated[
        _Way,
        typer.Option(
            "--by",
            help="ladder: repair as the settings say. hand-over: give the named messages to the group's replay worker, "
            "even if repairs are off.",
        ),
    ] = _Way.LADDER,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Take named messages back that wait for the group's replay worker.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Judge the keys and show the result. Change nothing.")
    ] = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge and repair keys now, within the brakes of the reconciler.

    If a message is not sent, the output has the reason, and the way to send it. --all and --failed first show the
    repairs and ask, unless --yes is given; --topic and --group limit them. A business id that several messages share is
    refused, and their unique keys are shown. With --dry-run, all these messages are judged.

    Exit code 5: a key has changed since it was shown, and was not repaired. Exit code 4: some repairs failed, wait, are
    held or were refused. Exit code 2: a key is unknown or cannot be judged.
    """
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.commands.acts.repair import repair_now
    from reconciler.wiring.connections import Connections
    from reconciler.words import said

    settings = read_settings(config)
    if [bool(keys), all_open, failed].count(True) != 1:
        raise InvalidValue("KEYS", keys or [], "name messages, or give --all or --failed: one of these")
    every = "--failed" if failed else "--all"
    act = RepairAct.CANCEL if cancel else RepairAct(way)
    if not keys and act is not RepairAct.LADDER:
        raise InvalidValue(every, True, "name the messages: what is handed over by hand is decided one by one")
    with Connections.for_people(settings) as connections:
        repair_wanted = partial(repair_now, connections, keys or [], topic=topic, group=group, by=operator(), act=act)
        repair_wanted = partial(repair_wanted, is_failed=failed)
        named = partial(_named_rows, connections)
        seen = None if keys or dry_run or yes else _ask_first(repair_wanted(dry_run=True), every, named)
        report = repair_wanted(dry_run=dry_run, seen=seen)
        table = None if output is Output.JSON else named(report)
    notes = [f"note: {said(note)}" for note in report.notes]
    if table is None:
        print_json(report.as_dict())
        remark(*notes)
    else:
        say(*notes)
        print_table("Dry run" if dry_run else "Repairs", *table, first=_FIRST)
    raise typer.Exit(report.exit_code)


def _named_rows(connections: Connections, report: ManualRepairReport | DismissalReport) -> Table:
    """Returns columns and rows of a report, with the business ids from the outboxes."""
    from reconciler.commands.asking.business_ids import business_ids_of

    names = business_ids_of(connections, list(dict.fromkeys(line.unique_key for line in report.keys)))
    return with_business_ids(report.columns, report.rows(), names)


def _ask_first(
    preview: ManualRepairReport, every: str, named: Callable[[ManualRepairReport], Table]
) -> Mapping[str, str]:
    """Shows a preview, and asks the person. Returns key -> the word of the state that the preview showed."""
    if not preview.keys:
        return preview.seen
    print_table("Would be repaired", *named(preview), first=_FIRST, to_people=True)
    _require_yes(f"Repair {_counted(preview)}?", every)
    return preview.seen


def _counted(preview: ManualRepairReport) -> str:
    """Returns a text with the number of messages. If a message is lost for several groups, also with the number of lost
    subscriptions."""
    messages = len({(key.topic, key.unique_key) for key in preview.keys})
    lines = len(preview.keys)
    text = _messages(messages)
    return text if lines == messages else f"{text}, lost for {lines} subscriptions together"


def dismiss(
    keys: Annotated[list[str] | None, typer.Argument(help="Unique keys.", show_default=False)] = None,
    all_waiting: Annotated[
        bool, typer.Option("--all", help="Close every key that waits for a person, 500 messages at most.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="What a person did instead. Kept with the verdict.", show_default=False)
    ] = "",
    topic: TopicOption = None,
    group: GroupOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show each outcome, and which halves are open. Change nothing.")
    ] = False,
    roll_back_half: Annotated[
        bool,
        typer.Option(
            "--roll-back-half",
            help="Close an open half by END ROLLBACK. Each group of the topic must have the effect, or a dismissal.",
        ),
    ] = False,
    take_back: Annotated[
        bool,
        typer.Option(
            "--take-back", help="Take the dismissal of named keys back: they wait for a person again. Nothing is sent."
        ),
    ] = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Close quarantined keys that a person has dealt with. Nothing is sent, now or later, and the verdict stays.

    A key that has its effect in a group is not closed for that group. A broker may still deliver an open half: the
    output shows until when, and --dry-run shows this before the act. --all first shows the keys and asks, unless --yes
    is given; --topic and --group limit it. Keys that come meanwhile are not closed. --take-back undoes a dismissal.
    After that, `repair` sends the lost messages.

    Exit code 5: a key has changed since it was shown or has its effect, and was not closed; or a half to be closed was
    committed. Exit code 4: the reconciler still works on a key, which was not closed; or a half to be closed may still
    be open. Exit code 2: a key is unknown.
    """
    from reconciler.commands.acts.dismiss import dismiss_keys, take_back_dismissals
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.wiring.connections import Connections

    _require_one_errand(
        keys, all_waiting=all_waiting, is_with_half=roll_back_half, take_back=take_back, dry_run=dry_run
    )
    if not (reason.strip() or dry_run):
        raise InvalidValue("--reason", reason, "say why" if take_back else "say what was done instead")
    wanted = [require_key(key) for key in keys or []]
    with Connections.for_one_answer(read_settings(config)) as connections:
        act = (
            take_back_dismissals if take_back else partial(dismiss_keys, dry_run=dry_run, roll_back_half=roll_back_half)
        )
        act = partial(act, topic=topic, group=group, reason=reason, by=operator())
        if all_waiting:
            report = _all_dismissed(connections, act, topic=topic, group=group, dry_run=dry_run, yes=yes)
        else:
            report = act(connections, wanted)
        table = None if output is Output.JSON else _named_rows(connections, report)
    if table is None:
        print_json(report.as_dict())
    else:
        _tell_dismissal(report, take_back=take_back)
        title = "Would be dismissed" if dry_run else "Taken back" if take_back else "Dismissals"
        print_table(title, *table, first=("unique key", "outcome"))
    raise typer.Exit(report.exit_code)


def _require_one_errand(
    keys: Sequence[str] | None, *, all_waiting: bool, is_with_half: bool, take_back: bool, dry_run: bool
) -> None:
    """Raises InvalidValue for options that exclude each other."""
    if bool(keys) is all_waiting:
        raise InvalidValue("KEYS", keys or [], "name keys, or give --all, not both")
    if take_back and (dry_run or is_with_half):
        raise InvalidValue("--take-back", True, "give it without --dry-run and --roll-back-half: nothing is sent")
    if all_waiting and (take_back or is_with_half):
        raise InvalidValue("--all", True, "give it without --take-back and --roll-back-half, which are of named keys")


def _tell_dismissal(report: DismissalReport, *, take_back: bool) -> None:
    say(*(half.sentence for half in report.halves))
    if report.halves_left_out and not take_back:
        say(f"halves not looked at: {report.halves_left_out}; `reconciler dismiss KEY --dry-run` tells of each")
    if report.dismissed:
        say(WAY_BACK)
    told = [line.sentence for line in report.keys if line.told]
    say(*told[:_SENTENCES_MAX])
    if len(told) > _SENTENCES_MAX:
        say(f"{len(told) - _SENTENCES_MAX} more are told with --output json")


def _all_dismissed(
    connections: Connections,
    act: Callable[..., DismissalReport],
    *,
    topic: str | None,
    group: str | None,
    dry_run: bool,
    yes: bool,
) -> DismissalReport:
    """Shows the keys that wait for a person, asks, and dismisses these keys. Raises Exit if the person declines."""
    from reconciler.commands.acts.dismiss import preview_of_all

    shown_max = 0 if yes and not dry_run else PREVIEWED_MAX
    preview = preview_of_all(connections, topic=topic, group=group, looked_at_max=shown_max)
    if preview.seen and not (dry_run or yes):
        table = _named_rows(connections, preview)
        print_table("Would be dismissed", *table, first=("unique key", "outcome"), to_people=True)
        _require_yes(f"Dismiss {_messages(len(preview.seen))}?", "--all")
    if left := len(preview.waiting) - len(preview.seen):
        remark(f"{left} more wait for a person: {len(preview.seen)} at once are closed")
    return preview if dry_run else act(connections, list(preview.seen), seen=preview.seen)


def _require_yes(question: str, every: str) -> None:
    """Returns if the person says yes. Raises Exit if the person says no, and InvalidValue if nobody answers."""
    answer = ask(f"{question} [y/N]: ")
    if answer is None:
        raise InvalidValue(every, True, "the question got no answer: give --yes, or name keys")
    if not answer:
        remark("nothing was changed")
        raise typer.Exit(DECLINED)


def _messages(number: int) -> str:
    return "this message" if number == 1 else f"these {number} messages"


def hold(
    topic: Annotated[str, typer.Argument(help="Business topic.")],
    reason: Annotated[str, typer.Option("--reason", help="Why repairs stop. `status` shows it.")] = "by hand",
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until",
            formats=["%H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
            help="Time in UTC at which `run` lifts the hold. 06:00 means the next 06:00. Default: until `resume`.",
        ),
    ] = None,
    for_time: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Time after which `run` lifts the hold: 30m, 2h or 1d.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the repairs of a topic. Verdicts are still given.

    If the topic is on hold already, the later end counts. A hold without an end counts as the later one.
    """
    from reconciler.commands.acts.hold import end_of_hold, place_hold
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.wiring.connections import Connections

    if until is not None and for_time is not None:
        raise InvalidValue("--for", for_time, "give it without --until")
    for_seconds = None if for_time is None else seconds_of("--for", for_time)
    with Connections.for_one_answer(read_settings(config)) as connections:
        until_ms = None if until is None else _next_ms(until, now_ms=connections.ledger_now_ms())
        by = operator()
        placed = place_hold(connections, topic, reason=reason, by=by, until_ms=until_ms, for_seconds=for_seconds)
        ends_ms = end_of_hold(connections, topic)
    if output is Output.JSON:
        print_json({"topic": topic, "held": True, "changed": placed, "until_ms": ends_ms})
    else:
        end = "" if ends_ms is None else f" until {time_text(ends_ms)}"
        say(f"repairs of {topic} are on hold" + ("" if placed else " already") + end)


def _next_ms(until: datetime, *, now_ms: int) -> int:
    """Returns a time in milliseconds. A time of day without a date means the next such time."""
    if until.year == _YEAR_OF_NO_DATE:
        now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
        until = datetime.combine(now.date(), until.time())
        until += timedelta(days=until <= now.replace(tzinfo=None))
    return int(until.replace(tzinfo=UTC).timestamp() * 1000)


def resume(
    topic: Annotated[str, typer.Argument(help="Business topic.")],
    breaker: Annotated[
        bool, typer.Option("--breaker", help="Close only the circuit breaker. A person's hold stays.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let the repairs of a topic continue.

    Exit code 5: another hold has replaced the hold that was read, and nothing was lifted.
    """
    from reconciler.commands.acts.hold import lift_hold
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.wiring.connections import Connections

    with Connections.for_one_answer(read_settings(config)) as connections:
        done = lift_hold(connections, topic, breaker=breaker, by=operator())
    if output is Output.JSON:
        lifted, left = [str(kind) for kind in done.lifted], [str(held.kind) for held in done.left]
        print_json({"topic": topic, "held": bool(left), "lifted": lifted, "left": left})
    elif done.left:
        say(*(f"repairs of {topic} are still stopped: {_brake_of(held)}" for held in done.left))
    else:
        say(f"repairs of {topic} go on" if done.lifted else f"repairs of {topic} were not on hold")


def _brake_of(held: HeldTopic) -> str:
    if held.kind is HoldKind.BREAKER:
        return "the circuit breaker is open, close it with --breaker"
    return f"a hold of {held.by} since {time_text(held.since_ms)} ({held.reason}), lift it without --breaker"


def rebuild(
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"],
            help="Time in UTC from which inbox rows are read. Default: the start of the open outage.",
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put the keys of inbox rows back into Redis after an outage. The reconciler does this by itself, too."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # slow to load

    from reconciler.commands.acts.operator_actions import operator
    from reconciler.commands.acts.rebuild import put_back
    from reconciler.wiring.connections import Connections

    settings = read_settings(config)
    since_ms = int(since.replace(tzinfo=UTC).timestamp() * 1000) if since else None
    console = people()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Connections.for_people(settings) as connections,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("inbox rows", total=None)
        scanned = put_back(
            connections, since_ms=since_ms, by=operator(), progress=lambda n: progress.update(task, completed=n)
        )
    if output is Output.JSON:
        print_json({"scanned": scanned})
    else:
        say(f"{scanned} inbox rows put back")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (repair, dismiss, hold, resume, rebuild):
        app.command(command.__name__)(command)
