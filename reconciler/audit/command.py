"""The command: evidence is collected or given, judged, written; one line or one JSON object on standard output.

Exit codes: 0 clean, 1 violations, 2 no answer (`reason` says which kind), 130 SIGINT. There is no other one: an
error of the program itself is 2 with reason "engine" and its traceback.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from reconciler.audit.arguments import parse
from reconciler.audit.audit_run import AuditRun, run_audit
from reconciler.audit.errors import AuditError
from reconciler.audit.package import write_package
from reconciler.audit.result import JudgedWindow

#: As in every command's JSON.
SCHEMA_VERSION = 1
EXIT_CLEAN, EXIT_VIOLATIONS, EXIT_NO_ANSWER, EXIT_INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = {"clean": EXIT_CLEAN, "violations": EXIT_VIOLATIONS, "no answer": EXIT_NO_ANSWER}


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; never raises (but SystemExit for --help)."""
    is_json = _asks_for_json(arguments)
    try:
        with _interrupted_by_sigterm():
            return _run(parse(arguments))
    except AuditError as error:
        sys.stderr.write(f"reconciler: no answer ({error.reason}): {error}\n")
        if is_json:
            print_json(no_answer(error))
        return EXIT_NO_ANSWER
    except KeyboardInterrupt:
        sys.stderr.write("reconciler: interrupted; nothing was written\n")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug is no answer either, and never "clean"
        traceback.print_exc()
        sys.stderr.write("reconciler: no answer (engine): this is a bug; please report it with the lines above\n")
        if is_json:
            print_json(no_answer(AuditError("engine", f"{type(error).__name__}: {error}")))
        return EXIT_NO_ANSWER


def _run(options: argparse.Namespace) -> int:
    if options.command == "package":
        for path in write_package(options.folder):
            sys.stdout.write(f"{path}\n")
        return EXIT_CLEAN
    if options.command == "statement":
        return _statement(options)
    done = run_audit(options, now_ms=_now_ms(), seconds=time.perf_counter, say=_say)
    if options.output == "json":
        print_json(answer(done))
    else:
        sys.stdout.write(summary(done, options.out))
    return EXIT_CODES[done.judged.verdict]


def answer(done: AuditRun) -> dict[str, Any]:
    """The JSON object of an audit that ran to its end (docs/audit.md)."""
    judged = done.judged
    refused = judged.no_answer
    return {
        "verdict": judged.verdict,
        "reason": None if refused is None else refused.reason,
        "message": None if refused is None else refused.message,
        "classes": judged.classes,
        "violations": judged.violations,
        "gaps": len(judged.gaps),
        "rows": sum(judged.rows.values()),
        "seconds": round(done.seconds, 3),
        "engine": done.engine,
    }


def no_answer(error: AuditError) -> dict[str, Any]:
    """The same object where nothing was judged."""
    return {
        "verdict": "no answer",
        "reason": error.reason,
        "message": str(error),
        "classes": {},
        "violations": 0,
        "gaps": 0,
        "rows": 0,
        "seconds": 0.0,
        "engine": None,
    }


def summary(done: AuditRun, out: Path) -> str:
    """What people read: verdict, classes with keys, where to look."""
    judged: JudgedWindow = done.judged
    lines = [f"verdict: {judged.verdict}"]
    if judged.no_answer is not None:
        lines.append(f"reason: {judged.no_answer.reason}: {judged.no_answer.message}")
    for one in judged.subscriptions:
        lines.append(f"{one.subscription.topic}/{one.subscription.group}: {one.keys} keys")
        lines += [f"  {name}: {count}" for name, count in one.classes.items() if count]
    lines += [f"not checked: {n.class_name} of {n.topic}/{n.group}: {n.why}" for n in judged.not_checked]
    lines += [f"note: {note}" for note in judged.notes]
    lines.append(f"report: {out / 'report.html'}")
    return "\n".join(lines) + "\n"


def print_json(document: Mapping[str, Any]) -> None:
    """One object on one line of standard output."""
    sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _statement(options: argparse.Namespace) -> int:
    from reconciler.audit.statement.keys import make_keys  # needs the package cryptography
    from reconciler.audit.statement.verify import verify_statements

    if options.action == "keygen":
        secret, public, fingerprint = make_keys(options.file)
        if options.output == "json":
            print_json({"private_key": str(secret), "public_key": str(public), "fingerprint": fingerprint})
        else:
            sys.stdout.write(
                f"private key: {secret} (keep it secret)\npublic key: {public}\nfingerprint: {fingerprint}\n"
            )
        return EXIT_CLEAN
    evidence = options.evidence
    if evidence is None and (options.folder / "evidence" / "evidence.json").is_file():
        evidence = options.folder / "evidence"
    report = verify_statements(options.folder, options.public_key, evidence=evidence, history=options.history)
    if options.output == "json":
        print_json(report.as_dict())
        return report.exit_code
    for one in report.statements:
        held = f"signed by {one.signed_by}" if one.signature_holds else "SIGNATURE DOES NOT HOLD"
        sys.stdout.write(f"{one.file}: {one.start} to {one.end}, {one.verdict}, {one.keys} keys, {held}\n")
    for difference in report.differences:
        sys.stdout.write(f"DIFFERS {difference}\n")
    if report.more_differences:
        sys.stdout.write(f"DIFFERS and {report.more_differences} more\n")
    for line in (*report.not_checked, *report.unanswered):
        sys.stdout.write(f"not checked: {line}\n")
    sys.stdout.write(f"{report.verdict}: {report.files_equal} files are as they were signed\n")
    return report.exit_code


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Before the arguments are known to be right, so that wrong ones are told in JSON, too."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(a in ("--output=json", "-ojson") or (a in ("--output", "-o") and b == "json") for a, b in pairs)


def _say(line: str) -> None:
    """Progress, for people at a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"reconciler audit: {line}\n")
        sys.stderr.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends an audit like SIGINT: nothing half-written, no JVM left behind."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: a test, or a notebook
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
