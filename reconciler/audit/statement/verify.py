"""Verifies signatures, chains and digests of statements. Only the folder and a public key are needed.

Everything in the folder is suspect. Only confined.py reads the folder, and no address in a file is followed. After a
difference the rest is still verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.audit.errors import AuditError
from reconciler.audit.result.classes import NAMES
from reconciler.audit.result.documents import canonical
from reconciler.audit.statement.chain import verify_chains
from reconciler.audit.statement.confined import WHAT, ConfinedFolder
from reconciler.audit.statement.document import (
    FOLDER,
    INPUTS,
    INTEGER_MAX,
    StatementFile,
    read_statement,
    statement_document,
    statement_name,
    statement_names,
)
from reconciler.audit.statement.fields import altered_fields
from reconciler.audit.statement.folder import VerifiedFolder, outputs_of
from reconciler.audit.statement.keys import PublicKey, read_public_key
from reconciler.audit.statement.verification import VerifiedStatement, VerifyReport, shown_text
from reconciler.audit.statement.verify_inputs import verify_inputs


def verify_statements(
    folder: Path | str,
    public_key: Path | str | PublicKey,
    *,
    evidence: Path | str | None = None,
    history: str | None = None,
) -> VerifyReport:
    """Verifies an audit's OUT, or a folder of several outputs.

    For several outputs, also verifies how their statements follow one another.

    `evidence`: the folder that was judged. None: the evidence in each output is verified. If an output has no evidence,
    the report says that inputs are not verified.
    `history`: place of the history. None: only a history inside of the evidence is verified. Raises AuditError("usage")
    for a key or folder that cannot be read, and for a folder without a statement. Raises AuditError("inputs") for
    evidence that cannot be read.
    """
    key = public_key if isinstance(public_key, PublicKey) else read_public_key(public_key)
    if not Path(folder).is_dir():
        raise AuditError("usage", f"{folder}: there is no such folder; name an audit's output")
    try:
        return _verified(folder, key, None if evidence is None else str(evidence), history)
    except OSError as error:
        raise AuditError("inputs", f"{folder}: cannot be looked at to its end: {error}") from error


def _verified(folder: Path | str, key: PublicKey, evidence: str | None, history: str | None) -> VerifyReport:
    report = VerifyReport()
    folders = list(_folders(ConfinedFolder(Path(folder)), report))
    for one in folders:
        _verify_statements_of(one, key, report)
        _verify_outputs(one, report)
    if not any(one.statements for one in folders) and not report.differences:
        raise AuditError("usage", f"{folder}: there is no statement in it; name an audit's output")
    verify_chains([(one.name_of(s), s) for one in folders for s in one.statements], report)
    verify_inputs(folders, report, evidence=evidence, history=history)
    report.differences.sort()
    return report


def _folders(place: ConfinedFolder, report: VerifyReport) -> Iterator[VerifiedFolder]:
    is_one = _is_output(place) or any(read_statement(place, name) for name in statement_names(place))
    if is_one:
        yield VerifiedFolder(place, "")
    for name, kind in place.entries():
        if kind == "folder" and name != FOLDER and not name.startswith(".") and _is_output(place.below(name)):
            yield VerifiedFolder(place.below(name), f"{name}/")
        elif kind == "link" and not is_one:
            report.skip([f"{name}: is a symbolic link: not followed"])


def _is_output(place: ConfinedFolder) -> bool:
    return place.kind(FOLDER) == "folder" or place.kind("result.json") == "file"


def _verify_statements_of(folder: VerifiedFolder, key: PublicKey, report: VerifyReport) -> None:
    folder.load_result()
    unreadable: list[str] = []
    for relative in statement_names(folder.place):
        statement = read_statement(folder.place, relative)
        if statement is None:
            unreadable.append(relative)
            continue
        folder.statements.append(statement)
        signature = statement.signature
        holds = signature is not None and key.has_signed(statement.data, signature)
        if holds:
            folder.signed.append(statement)
        else:
            _explain_signature(folder, statement, key, report)
        report.statements.append(_seen(folder.name_of(statement), statement, holds=holds))
    outputs = {path for statement in folder.statements for path, _ in outputs_of(statement)}
    for relative in unreadable:
        if relative.startswith(FOLDER) and relative != INPUTS and relative not in outputs:
            report.differ(folder.name(relative), "cannot be read as a statement: altered, or put there")
    _verify_completeness(folder, report)


def _seen(name: str, statement: StatementFile, *, holds: bool) -> VerifiedStatement:
    document = statement.document
    window = document.get("window")
    window = window if isinstance(window, dict) else {}
    classes = document.get("classes")
    classes = classes if isinstance(classes, dict) else {}
    signed_by = document.get("signed_by")
    reports = [sha256 for path, (_, sha256) in outputs_of(statement) if path == "report.html"]
    environment, topic, group = statement.subscription
    return VerifiedStatement(
        file=shown_text(name),
        environment=shown_text(environment),
        topic=shown_text(topic),
        group=shown_text(group),
        start=shown_text(str(window.get("start"))),
        end=shown_text(str(window.get("end"))),
        start_ms=_count(window.get("start_ms")),
        end_ms=_count(window.get("end_ms")),
        zone=shown_text(str(window.get("zone", "UTC"))),
        sequence=statement.sequence,
        verdict=shown_text(str(document.get("verdict"))),
        keys=_count(document.get("keys")),
        violations=_count(document.get("violations")),
        classes={name: _count(classes[name]) for name in NAMES if name in classes},
        signed_by=None if signed_by is None else shown_text(str(signed_by)),
        signature_holds=holds,
        report_sha256=shown_text(reports[0]) if reports else None,
    )


def _count(value: object) -> int:
    """Reads a counter. -1: the value is no integer in the range of JSON's readers."""
    return value if isinstance(value, int) and abs(value) < INTEGER_MAX else -1


def _explain_signature(folder: VerifiedFolder, statement: StatementFile, key: PublicKey, report: VerifyReport) -> None:
    """Reports why a signature does not hold: unsigned, removed, another key, or altered.

    For an altered statement, also reports the altered fields.
    """
    name = folder.name_of(statement)
    signed_by = statement.document.get("signed_by")
    outputs = statement.document.get("outputs")
    described = [_described(folder, one) for one in outputs] if isinstance(outputs, list) else []
    fields = list(_altered_fields(folder, statement, described))
    for path, message in fields:
        report.differ(name, message, path)
    if signed_by is None and statement.signature is None:
        report.unanswer(f"{name}: it says that it is not signed, so nothing vouches for it")
    elif statement.signature is None:
        report.differ(name.removesuffix(".json") + ".sig", "the signature is missing")
    elif signed_by != key.fingerprint:
        report.differ(name, f"names the key {signed_by}; the one given is {key.fingerprint}: another key", "/signed_by")
    elif canonical(dict(statement.document)) != statement.data:
        report.differ(name, "the signature does not hold: it is not in canonical form, so it was altered")
    elif fields:
        report.differ(name, "the signature does not hold")
    else:
        report.differ(
            name.removesuffix(".json") + ".sig",
            "the signature does not hold, though the statement says what the outputs say: the signature, "
            "the statement's number or its link to the one before was altered, or another key signed",
        )


def _altered_fields(folder: VerifiedFolder, statement: StatementFile, outputs: Any) -> Iterator[tuple[str, str]]:
    """Yields the fields in which the statement differs from the outputs beside it.

    chain.py verifies the links between statements.
    """
    mine = _subscription_of(folder.result, statement)
    if folder.result is None or mine is None:
        return
    try:
        expected = statement_document(
            folder.result,
            mine,
            outputs=outputs,
            previous=None,
            signed_by=None,
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return  # the report has a difference of result.json already
    for name in ("sequence", "previous", "signed_by"):
        expected[name] = statement.document.get(name)
    yield from altered_fields(statement.document, expected)


def _described(folder: VerifiedFolder, one: Any) -> dict[str, Any]:
    path = one.get("path") if isinstance(one, dict) else None
    size, sha256 = folder.described(path) or (0, "")
    return {"path": path, "bytes": size, "sha256": sha256}


def _subscription_of(result: Mapping[str, Any] | None, statement: StatementFile) -> Mapping[str, Any] | None:
    asked = result.get("subscriptions") if result is not None else None
    for one in asked if isinstance(asked, list) else []:
        if isinstance(one, dict) and (one.get("topic"), one.get("group")) == statement.subscription[1:]:
            return one
    return None


def _verify_completeness(folder: VerifiedFolder, report: VerifyReport) -> None:
    """Checks that each subscription of the audit has one statement with the right file name."""
    asked: set[tuple[str, str]] = set()
    for document in [folder.result or {}, *(statement.document for statement in folder.signed)]:
        listed = document.get("subscriptions")
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict):
                asked.add((str(one.get("topic")), str(one.get("group"))))
    seen: set[tuple[str, str]] = set()
    for statement in folder.statements:
        _, topic, group = statement.subscription
        seen.add((topic, group))
        if folder.has_statements and statement.path.stem != statement_name(topic, group):
            report.differ(
                folder.name_of(statement), f"it is the statement of {topic}/{group}, under the name of another"
            )
    if folder.result is None and not folder.has_statements:
        return  # the folder has statements only
    for topic, group in sorted(asked - seen):
        missing = f"{FOLDER}/{statement_name(topic, group)}.json"
        report.differ(folder.name(missing), f"the statement of {topic}/{group} is missing")


def _verify_outputs(folder: VerifiedFolder, report: VerifyReport) -> None:
    """Compares digests of the files beside the statements. Signed statements give the digests.

    If no statement is signed, all statements give the digests.
    """
    if not folder.has_statements:
        report.skip(f"{folder.name_of(s)}: its outputs are not in this folder" for s in folder.statements)
        return
    trusted = folder.signed or folder.statements
    folder.belonging = [statement for statement in trusted if _belongs(folder, statement, report)]
    covered: set[str] = set()
    different: set[str] = set()
    for path, signed in sorted({one for statement in folder.belonging for one in outputs_of(statement)}):
        covered.add(path)
        if folder.described(path) != signed and path not in different:
            different.add(path)
            report.differ(folder.name(path), folder.why_it_differs(path))
    if "result.json" in different:
        _name_altered_counts(folder, report)
    report.files_equal += len(covered - different)
    for relative, kind in sorted(folder.place.walk()):
        is_statement = relative.startswith(f"{FOLDER}/") and relative.endswith((".json", ".sig"))
        is_evidence = relative.startswith("evidence/")  # verify_inputs.py verifies evidence
        if relative not in covered and not is_statement and not is_evidence:
            what = "no statement speaks of this file" if kind == "file" else WHAT[kind]
            report.skip([f"{folder.name(relative)}: {what}"])


def _name_altered_counts(folder: VerifiedFolder, report: VerifyReport) -> None:
    """Reports where a statement with a valid signature differs from result.json."""
    for statement in folder.signed:
        _, topic, group = statement.subscription
        for path, message in _altered_fields(folder, statement, statement.document.get("outputs")):
            report.differ(folder.name("result.json"), f"the statement of {topic}/{group} {message}", path)


def _belongs(folder: VerifiedFolder, statement: StatementFile, report: VerifyReport) -> bool:
    """True if the statement belongs to this folder.

    False: the statement is of another window and was put into this folder.
    """
    said, mine = statement.document.get("window"), (folder.result or {}).get("window")
    if folder.result is None or said == mine or not isinstance(said, dict):
        return True
    others = [one.document.get("window") for one in folder.signed if one is not statement]
    is_foreign = mine in others
    if is_foreign or not others:
        shown = mine if isinstance(mine, dict) else {}
        report.differ(
            folder.name_of(statement),
            f"it is of the window {said.get('start')} to {said.get('end')}, and result.json of "
            f"{shown.get('start')} to {shown.get('end')}: one of them was altered or replaced",
            "/window",
        )
    # If all signed statements agree, result.json was altered. The digest of result.json will show this.
    return not is_foreign
