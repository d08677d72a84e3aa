"""The command: collects or takes evidence, judges, writes, and prints text or one JSON object on standard output.

Exit codes: 0 clean, 1 violations, 2 no answer (`reason` names its kind), 130 SIGINT. A bug, or an answer that cannot be
written, gives exit code 2 with reason "engine" and a traceback.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from reconciler.audit import streams
from reconciler.audit.arguments import parse
from reconciler.audit.audit_run import AuditRun, run_audit
from reconciler.audit.engines.package import write_package
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import JudgedWindow

EXIT_CLEAN, EXIT_VIOLATIONS, EXIT_NO_ANSWER, EXIT_INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = {"clean": EXIT_CLEAN, "violations": EXIT_VIOLATIONS, "no answer": EXIT_NO_ANSWER}


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code. Raises only SystemExit, for --help."""
    code, text = _done(arguments)
    return code if streams.answer(text) else EXIT_NO_ANSWER


def _done(arguments: Sequence[str]) -> tuple[int, str]:
    """Returns the exit code and the text for standard output."""
    try:
        with _interrupted_by_sigterm():
            return _run(parse(arguments))
    except AuditError as error:
        streams.remark(f"reconciler: no answer ({error.reason}): {error}\n")
        refused = error
    except KeyboardInterrupt:
        streams.remark("reconciler: interrupted; nothing was written\n")
        return EXIT_INTERRUPTED, ""
    except Exception as error:  # noqa: BLE001 - a bug is no answer either, and never "clean"
        streams.remark(traceback.format_exc())
        streams.remark("reconciler: no answer (engine): this is a bug; please report it with the lines above\n")
        refused = AuditError("engine", f"{type(error).__name__}: {error}")
    if not _asks_for_json(arguments):
        return EXIT_NO_ANSWER, ""
    return EXIT_NO_ANSWER, streams.json_line(streams.no_answer(refused.reason, str(refused)))


def _run(options: argparse.Namespace) -> tuple[int, str]:
    if options.command == "package":
        return EXIT_CLEAN, "".join(f"{path}\n" for path in write_package(options.folder))
    if options.command == "statement":
        return _keygen(options) if options.action == "keygen" else _verify(options)
    done = run_audit(options, now_ms=_now_ms(), seconds=time.perf_counter, say=_say)
    text = streams.json_line(answer(done)) if options.output == "json" else summary(done, options.out)
    return EXIT_CODES[done.judged.verdict], text


def answer(done: AuditRun) -> dict[str, Any]:
    """Makes the JSON object of an audit that ran to its end (docs/reference/audit.md)."""
    judged = done.judged
    refused = judged.no_answer
    return {
        "verdict": judged.verdict,
        "reason": None if refused is None else refused.reason,
        "message": None if refused is None else refused.message,
        "classes": judged.classes,
        "violations": judged.violations,
        "gaps": len(judged.gaps),
        "not_judged": judged.not_judged.rows,
        "rows": sum(judged.rows.values()),
        "seconds": round(done.seconds, 3),
        "engine": done.engine,
        "run": done.run,
    }


def summary(done: AuditRun, out: Path) -> str:
    """Makes the answer for people: verdict, number of keys of each class, place of the report."""
    judged: JudgedWindow = done.judged
    lines = [f"verdict: {judged.verdict}"]
    if judged.no_answer is not None:
        lines.append(f"reason: {judged.no_answer.reason}: {judged.no_answer.message}")
    for one in judged.subscriptions:
        lines.append(f"{one.subscription.topic}/{one.subscription.group}: {one.keys} keys")
        lines += [f"  {name}: {count}" for name, count in one.classes.items() if count]
    lines += [f"not checked: {n.class_name} of {n.topic}/{n.group}: {n.why}" for n in judged.not_checked]
    lines += [
        f"not judged: {one.rows} rows of {one.table} of {one.topic}/{one.group}, which was not asked about"
        for one in judged.not_judged.listed
    ]
    if judged.not_judged.omitted_rows:
        lines.append(f"not judged: {judged.not_judged.omitted_rows} rows of other topics and groups")
    lines += [f"note: {note}" for note in judged.notes]
    lines.append(f"report: {out / 'report.html'}")
    if done.run is not None:
        lines.append(f"tables: run {done.run}")
    return streams.lines(lines)


def _keygen(options: argparse.Namespace) -> tuple[int, str]:
    from reconciler.audit.statement.keys import make_keys  # the module needs the package cryptography

    secret, public, fingerprint = make_keys(options.file)
    if options.output == "json":
        document = {"private_key": str(secret), "public_key": str(public), "fingerprint": fingerprint}
        return EXIT_CLEAN, streams.json_line(document)
    text = f"private key: {secret} (keep it secret)\npublic key: {public}\nfingerprint: {fingerprint}\n"
    return EXIT_CLEAN, text


def _verify(options: argparse.Namespace) -> tuple[int, str]:
    from reconciler.audit.evidence.memory import bounded_memory
    from reconciler.audit.statement.verify import verify_statements  # likewise

    with bounded_memory(str(options.folder)):
        report = verify_statements(
            options.folder, options.public_key, evidence=options.evidence, history=options.history
        )
    if options.output == "json":
        return report.exit_code, streams.json_line(report.as_dict())
    lines: list[str] = []
    for one in report.statements:
        unheld = "NOT SIGNED" if one.signed_by is None else "SIGNATURE DOES NOT HOLD"
        held = f"signed by {one.signed_by}" if one.signature_holds else unheld
        lines.append(f"{one.file}: {one.start} to {one.end}, {one.verdict}, {one.keys} keys, {held}")
    lines += [f"DIFFERS {difference}" for difference in report.differences]
    if report.more_differences:
        lines.append(f"DIFFERS and {report.more_differences} more")
    lines += [f"not checked: {line}" for line in (*report.not_checked, *report.unanswered)]
    is_signed = all(one.signature_holds for one in report.statements)
    as_said = "as they were signed" if is_signed else "as the statements say"
    lines.append(f"{report.verdict}: {report.files_equal} files are {as_said}")
    return report.exit_code, streams.lines(lines)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Looks for --output json before the arguments are parsed. With this option errors of parsing are JSON, too."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(a in ("--output=json", "-ojson") or (a in ("--output", "-o") and b == "json") for a, b in pairs)


def _say(line: str) -> None:
    """Shows progress to people at a terminal only."""
    if sys.stderr.isatty():
        streams.remark(f"reconciler audit: {line}\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Makes SIGTERM end an audit like SIGINT, without incomplete output and without a running JVM."""

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
