"""The command `scan`, which finds the halves of a cluster and needs no settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import TopicOption, seconds_of
from reconciler.cli.output import print_json, print_table, time_text
from reconciler.contract.named_files import require_file
from reconciler.contract.visible_text import visible_line
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import people, remark, say

if TYPE_CHECKING:
    from reconciler.commands.scan import ScanReport
    from reconciler.wiring.commit_queries import Business
    from reconciler.wiring.half_scan import AclCredentials, Progress, TlsSettings

#: Maximum number of rows of halves in a table. All other forms of output have every half.
_SHOWN_MAX = 50


class ScanOutput(StrEnum):
    """The form of a scan's output."""

    TABLE = "table"
    #: One object for each look.
    JSON = "json"
    #: One object in each line: first the look, then the look's brokers, groups, halves and notes.
    JSONL = "jsonl"
    #: One HTML page in two languages, which opens offline.
    HTML = "html"


RateOption = Annotated[
    float, typer.Option("--rate", min=1, help="Maximum number of records that are read per second from one broker.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="30m, 2h or 1d. Only newer halves count as given up, and only these are counted by --classify.",
    ),
]
WalkOption = Annotated[
    bool,
    typer.Option(
        "--walk",
        help="Read the whole log of brokers up to 4.2, with one request per record of any topic. Takes up to hours.",
    ),
]
CommitQueryOption = Annotated[
    Path | None,
    typer.Option(
        "--commit-query",
        metavar="FILE",
        help="TOML file with one query per topic. Each query asks your tables what was committed.",
    ),
]
AccessKeyOption = Annotated[
    str | None, typer.Option("--access-key", help="AccessKey of ACL 1.0; from RocketMQ 5.3 on, the name of the user.")
]
SecretKeyOption = Annotated[
    Path | None,
    typer.Option("--secret-key-file", help="File with the SecretKey of ACL 1.0, or with the user's password."),
]
CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", help="PEM file of trusted authorities. Default: those of the system.")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--certificate-file", help="PEM file with our certificate and key, for brokers that demand them."),
]
HostNameOption = Annotated[
    bool, typer.Option("--verify-host-name/--any-host-name", help="Whether a certificate must name its host.")
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Use TLS on every connection.")]


def scan(
    name_servers: Annotated[
        str,
        typer.Option(
            "--name-servers",
            "-n",
            envvar="NAMESRV_ADDR",
            help="host:port of the name servers, separated by semicolons.",
        ),
    ],
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=0, help="Age in seconds from which an undelivered half counts as too old."),
    ] = 600.0,
    topic: TopicOption = None,
    rate: RateOption = 20_000.0,
    classify: Annotated[
        bool, typer.Option("--classify", help="Also count how all halves ended. Reads all halves and their topics.")
    ] = False,
    since: SinceOption = None,
    walk: WalkOption = False,
    commit_query: CommitQueryOption = None,
    access_key: AccessKeyOption = None,
    secret_key_file: SecretKeyOption = None,
    tls: TlsOption = False,
    ca_file: CaFileOption = None,
    certificate_file: CertificateOption = None,
    verify_host_name: HostNameOption = True,
    watch: Annotated[
        float | None,
        typer.Option("--watch", min=1, help="Scan again after this many seconds, until SIGINT.", show_default=False),
    ] = None,
    output: Annotated[
        ScanOutput, typer.Option("--output", "-o", help="Form of the result on standard output.")
    ] = ScanOutput.TABLE,
) -> None:
    """Find stuck transactional messages, and show why they are stuck and until when brokers ask for them. Only reads.

    The scan needs the address of a name server, and no settings, Redis or database. No group, topic or offset is left
    at the brokers. With --commit-query, the output shows for each stuck half whether your own tables call it committed.

    Exit code 1: an undelivered half that may be committed is older than --older-than. Exit code 3: halves of a broker
    could not be read, or a commit query was not asked. Exit code 130: SIGINT ended the scan; its findings are shown.
    """
    from reconciler.commands.scan import run_scan
    from reconciler.wiring.half_scan import ScanRequest

    if watch is not None and output is ScanOutput.HTML:
        raise InvalidValue("--watch", watch, "does not apply to --output html, which is one page")
    request = ScanRequest(
        name_servers=name_servers,
        acl=credentials(access_key, secret_key_file),
        tls=tls_of(tls=tls, ca_file=ca_file, certificate_file=certificate_file, verify_host_name=verify_host_name),
        records_per_second=rate,
        since_seconds=None if since is None else seconds_of("--since", since),
        is_counting=classify,
        walks=walk,
        business=None if commit_query is None else _business(commit_query),
    )
    while True:
        with progress_bars() as progress:
            report = run_scan(request, older_than_seconds=older_than, topic=topic, progress=progress)
        _show(report, output)
        if watch is None or not report.is_finished:
            break
        try:
            request.clock.sleep(watch)
        except KeyboardInterrupt:
            break
    raise typer.Exit(report.exit_code)


def _business(file: Path) -> Business:
    from reconciler.clock import SystemClock
    from reconciler.wiring.commit_queries import Business, read_commit_queries

    return Business(read_commit_queries(file), clock=SystemClock())


def credentials(access_key: str | None, secret_key_file: Path | None) -> AclCredentials | None:
    """Returns the credentials that the options give. None: they give no user. Raises InvalidValue."""
    from reconciler.wiring.half_scan import AclCredentials

    if access_key is None and secret_key_file is None:
        return None
    if access_key is None or secret_key_file is None:
        raise InvalidValue("--access-key", access_key or "", "give --access-key and --secret-key-file, or neither")
    try:
        require_file(secret_key_file)
        secret = secret_key_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise InvalidValue("--secret-key-file", str(secret_key_file), str(why)) from None
    return AclCredentials(access_key=access_key, secret_key=secret)


def tls_of(
    *, tls: bool, ca_file: Path | None, certificate_file: Path | None, verify_host_name: bool
) -> TlsSettings | None:
    """Returns the TLS settings that the options give; None without TLS. An option with a file implies TLS."""
    from reconciler.wiring.half_scan import TlsSettings

    if not tls and ca_file is None and certificate_file is None:
        return None
    return TlsSettings(
        ca_file=None if ca_file is None else str(ca_file),
        certificate_file=None if certificate_file is None else str(certificate_file),
        verify_host_name=verify_host_name,
    )


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Shows one progress bar for each broker, if a person is at a terminal."""
    from rich.progress import (  # slow to load
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = people()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {}

        def show(broker: str, read: int, of: int) -> None:
            if broker not in tasks:
                tasks[broker] = bars.add_task(visible_line(broker), total=of)
            bars.update(tasks[broker], completed=read, total=of)

        yield show


def _show(report: ScanReport, output: ScanOutput) -> None:
    from reconciler.words import said

    notes = [f"note: {said(note)}" for note in report.notes()]
    match output:
        case ScanOutput.JSON:
            print_json(report.as_dict())
            remark(*notes)
        case ScanOutput.JSONL:
            for line in report.lines():
                print_json(line)
            remark(*notes)
        case ScanOutput.HTML:
            from reconciler.commands.scan_page import page_of

            say(*page_of(report).splitlines())
        case ScanOutput.TABLE:
            say(f"{time_text(report.scanned_at_ms)}  {said(report.summary())}.", *notes)
            if report.groups:
                _print_tables(report)
            if report.outcomes:
                from reconciler.commands.scan import OUTCOME_COLUMNS, outcome_row

                say("")
                rows = [tuple(outcome_row(*row).values()) for row in report.outcomes]
                print_table("How halves ended", OUTCOME_COLUMNS, rows, first=OUTCOME_COLUMNS[:2])


def _print_tables(report: ScanReport) -> None:
    from reconciler.commands.scan import GROUP_COLUMNS, HALF_COLUMNS, age_text, keys_text
    from reconciler.words import said

    is_asked = report.proved() is not None

    def columns(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if is_asked or name != "business")

    def states(*found: StrEnum | None) -> tuple[str, ...]:
        return tuple("" if one is None else one.value for one in (found if is_asked else found[:1]))

    say("")
    groups = [
        (
            one.topic,
            one.producer_group,
            *states(one.state, one.business),
            one.keys,
            age_text(report.scanned_at_ms - one.oldest_born_ms),
            "-".join(str(times) for times in sorted(set(one.asked))),
            one.producers,
            one.questions_left,
            time_text(one.asked_until_ms),
            time_text(one.kept_until_ms),
            said(one.next_step),
        )
        for one in report.groups
    ]
    first = columns(GROUP_COLUMNS[:5])
    print_table("By topic and producer group", columns(GROUP_COLUMNS), groups, first=first, as_records=True)
    halves = [half.copy for half in report.halves[:_SHOWN_MAX]]
    rows = [
        (
            copy.topic,
            copy.unique_key,
            keys_text(half),
            *states(half.state, half.business_state),
            age_text(report.scanned_at_ms - copy.born_ms),
            copy.asked,
            copy.broker,
        )
        for half, copy in zip(report.halves, halves, strict=False)
    ]
    say("")
    print_table("Halves", columns(HALF_COLUMNS), rows, first=columns(HALF_COLUMNS[:5]))
    if len(report.halves) > _SHOWN_MAX:
        say(f"only the first {_SHOWN_MAX} of {len(report.halves)}: --output json has all")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("scan")(scan)
