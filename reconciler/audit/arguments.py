"""Arguments of `python -m reconciler.audit`. `reconciler audit` and `reconciler statement` take the same arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from reconciler.audit.errors import AuditError
from reconciler.audit.places import local_path, readable_place
from reconciler.audit.report.texts import REPORT_LANGUAGES
from reconciler.contract.release import version_line

_SOURCES = (
    "URL is SQLAlchemy's (sqlite, postgresql, mysql, mariadb), parquet:PATH or delta:PATH of an export, or @FILE: a "
    "file that holds the URL."
)


class Arguments(argparse.ArgumentParser):
    """Parser that raises AuditError for every complaint, so that `--output json` reports the complaint, too."""

    def error(self, message: str) -> NoReturn:
        """Raises AuditError("usage")."""
        raise AuditError("usage", f"{message} (see {self.prog} --help)")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command and its options. Raises AuditError("usage"). `--help` ends the process."""
    return command_line().parse_args(list(arguments))


def command_line() -> Arguments:
    """Builds the parser of all commands and options."""
    parser = Arguments(prog="reconciler", description="An independent answer: did every committed message take effect?")
    parser.add_argument("--version", action="version", version=version_line(), help="print release and revision")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Arguments)
    _audit(commands.add_parser("audit", help="judge a window", description=AUDIT_HELP, epilog=_SOURCES))
    statement = commands.add_parser("statement", help="signed statements of audits")
    actions = statement.add_subparsers(dest="action", required=True, parser_class=Arguments)
    verify = actions.add_parser("verify", help="find what was altered since it was signed")
    verify.add_argument("folder", metavar="DIR", type=local_path, help="an audit's OUT, or a folder of several")
    verify.add_argument("--public-key", metavar="FILE", type=local_path, required=True, help="Ed25519, PEM")
    verify.add_argument(
        "--evidence", metavar="DIR", type=readable_place, help="the evidence that was judged; else OUT/evidence"
    )
    verify.add_argument("--history", metavar="PATH", type=readable_place, help="where the history lies now")
    _output(verify)
    keygen = actions.add_parser("keygen", help="make a key pair: FILE and FILE.pub")
    keygen.add_argument("file", metavar="FILE", type=local_path, help="the private key; FILE.pub is for others")
    _output(keygen)
    package = commands.add_parser("package", help="write the two files that spark-submit takes")
    package.add_argument("folder", metavar="DIR", type=local_path, help="where they are written")
    return parser


AUDIT_HELP = (
    "Judges every message of a window from outboxes, inboxes, ledger and history. Exit code 0: clean; 1: violations; "
    "2: no answer, --output json tells the reason; 130: interrupted."
)


def _audit(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--window", metavar="START/END", help="ISO 8601 with offsets or zones; END is not included")
    asked.add_argument(
        "--timezone", metavar="ZONE", help="time zone of times without offset, for example Europe/Berlin"
    )
    asked.add_argument("--subscriptions", metavar="FILE", type=local_path, help="the reconciler's settings (TOML)")
    asked.add_argument("--only", metavar="TOPIC/GROUP", action="append", default=[], help="only these subscriptions")
    evidence = parser.add_argument_group("evidence")
    history = evidence.add_mutually_exclusive_group()
    history.add_argument(
        "--history",
        metavar="PATH",
        type=readable_place,
        help="folder or URL of the reconciler's history; beside --evidence: of its copy",
    )
    history.add_argument("--no-history", action="store_true", help="there is none: judge by the databases alone")
    evidence.add_argument(
        "--outbox", metavar="GROUP=URL", action="append", default=[], help="a producer group's outbox"
    )
    evidence.add_argument("--inbox", metavar="TOPIC/GROUP=URL", action="append", default=[], help="a group's inbox")
    evidence.add_argument("--ledger", metavar="URL", help="the reconciler's ledger")
    evidence.add_argument(
        "--effects",
        metavar="TOPIC/GROUP=URL#QUERY",
        action="append",
        default=[],
        help="a SELECT of key and number of business effects; it may use :start_ms and :end_ms",
    )
    evidence.add_argument(
        "--from-configuration", action="store_true", help="take the URLs that FILE holds where no option names one"
    )
    evidence.add_argument(
        "--evidence",
        metavar="DIR",
        type=readable_place,
        help="judge evidence that was collected before (folder or URL)",
    )
    result = parser.add_argument_group("result")
    result.add_argument("--out", metavar="DIR", type=local_path, required=True, help="folder of the result")
    result.add_argument(
        "--language",
        choices=REPORT_LANGUAGES,
        default=REPORT_LANGUAGES[0],
        help="language of report.html; the other files are the same",
    )
    result.add_argument(
        "--tables",
        metavar="DIR",
        type=local_path,
        help="put every judged key, findings, counts and the run into Parquet tables for SQL, in place of the window's",
    )
    result.add_argument(
        "--signing-key", metavar="FILE", type=local_path, help="Ed25519 private key (PEM): sign the statements"
    )
    result.add_argument("--previous", metavar="DIR", type=local_path, help="an older OUT that the statements follow")
    result.add_argument(
        "--public-key",
        metavar="FILE",
        type=local_path,
        help="Ed25519 public key (PEM): if it signed --previous, only later entries of the manifest are read",
    )
    result.add_argument(
        "--whole-chain", action="store_true", help="read the manifest from its first entry on, whatever --previous read"
    )
    _output(result)
    _engine(parser)


def _engine(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_argument_group("engine")
    spark.add_argument(
        "--engine",
        choices=("spark", "here"),
        default="spark",
        help="where it is computed: on Spark, or in this process, without Java, for a quick look; both find the same",
    )
    spark.add_argument("--master", metavar="URL", help="Spark master; default: the one of spark-submit, else local[*]")
    spark.add_argument(
        "--spark", metavar="NAME=VALUE", action="append", default=[], help="a Spark setting (spark.driver.memory=4g)"
    )


def _output(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="form of standard output")
