"""Whether the evidence is still what was judged: every file by its SHA-256, altered ones by their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import fs as arrow_fs

from reconciler.audit.errors import AuditError
from reconciler.audit.statement.compare import altered_rows
from reconciler.audit.statement.document import INPUTS
from reconciler.audit.statement.findings import VerifyReport
from reconciler.audit.statement.folder import VerifiedFolder
from reconciler.audit.statement.inputs import InputFolder, digest, open_inputs
from reconciler.audit.statement.known_keys import KnownKeys
from reconciler.audit.statement.retired import retired_files
from reconciler.audit.statement.writing import INPUT
from reconciler.contract.evidence_layout import EVIDENCE_TABLES


def verify_inputs(
    folders: Sequence[VerifiedFolder], report: VerifyReport, *, evidence: str | None, history: str | None
) -> None:
    """Adds what has changed in the inputs: in `evidence`, else in the evidence that lies in each output."""
    own = [folder for folder in folders if (folder.path / "evidence").is_dir()]
    if evidence is not None:
        _verify_given(folders, open_inputs(evidence, history), report)
        return
    for folder in own:
        listed = _listed(folder)
        if listed is None:
            report.unanswer(f"the inputs: {folder.name(INPUTS)} is not as signed, or not there")
        else:
            _verify_files(folder, listed, open_inputs(str(folder.path / "evidence"), history), report)
    if len(own) < len(folders):
        report.skip(["the inputs: name the evidence with --evidence DIR to have them compared, too"])


def _verify_given(folders: Sequence[VerifiedFolder], inputs: InputFolder, report: VerifyReport) -> None:
    lists = [(folder, found) for folder in folders if (found := _listed(folder)) is not None]
    if not lists:
        report.unanswer("the inputs: their list (statement/inputs.json) is not as signed, or not there")
        return
    if len(folders) > 1:
        lists = [(folder, found) for folder, found in lists if _is_of(found, inputs)]
        if not lists:
            report.unanswer("the inputs: no audit in this folder is of the given evidence")
            return
        report.skip(
            f"the inputs of {folder.shown}: --evidence is that of another audit"
            for folder in folders
            if all(folder is not one for one, _ in lists)
        )
    for folder, found in lists:
        _verify_files(folder, found, inputs, report)


def _listed(folder: VerifiedFolder) -> list[Mapping[str, Any]] | None:
    """inputs.json, if a statement that belongs to it vouches for its bytes."""
    data = folder.read(INPUTS)
    for statement in folder.belonging:
        said = statement.document.get("inputs")
        if data is not None and isinstance(said, dict) and said.get("list_sha256") == digest(data):
            found = json.loads(data)
            return [one for one in found if isinstance(one, dict)]
    return None


def _is_of(listed: Sequence[Mapping[str, Any]], inputs: InputFolder) -> bool:
    said = {one.get("path"): one.get("sha256") for one in listed}
    try:
        return said.get("evidence.json") == digest(inputs.read("evidence.json"))
    except OSError:
        return False


def _verify_files(
    folder: VerifiedFolder, listed: Sequence[Mapping[str, Any]], inputs: InputFolder, report: VerifyReport
) -> None:
    missing: list[str] = []
    shown = f"{folder.shown}evidence:"
    for one in listed:
        path = str(one.get("path"))
        try:
            data = inputs.read(path)
        except FileNotFoundError:
            missing.append(path)
            continue
        except OSError as error:
            report.unanswer(f"{shown}{path}: cannot be read: {error}")
            continue
        if digest(data) == one.get("sha256"):
            report.files_equal += 1
            continue
        kept = None if folder.checksums is None else folder.checksums.of(INPUT, path)
        known = KnownKeys(inputs, path, [str(other.get("path")) for other in listed])
        for row, message in altered_rows(path, data, kept, known.find):
            report.differ(f"{shown}{path}", message, row)
    retired = retired_files(listed, inputs) if missing else {}
    for path in missing:
        if path in retired:
            report.skip([f"{shown}{path}: {retired[path]}"])
        else:
            report.differ(f"{shown}{path}", "missing")
    for path in sorted(_tables_of(inputs) - {str(one.get("path")) for one in listed}):
        report.differ(f"{shown}{path}", "was not there when the evidence was judged")


def _tables_of(inputs: InputFolder) -> set[str]:
    """Parquet files of the tables that lie in the evidence now."""
    found: set[str] = set()
    for table in EVIDENCE_TABLES:
        selector = arrow_fs.FileSelector(f"{inputs.root}/{table.name}", allow_not_found=True, recursive=True)
        try:
            infos = inputs.filesystem.get_file_info(selector)
        except OSError as error:
            raise AuditError("inputs", f"--evidence: {table.name} cannot be listed: {error}") from error
        found.update(
            info.path.removeprefix(f"{inputs.root}/")
            for info in infos
            if info.type == arrow_fs.FileType.File and info.path.endswith(".parquet")
        )
    return found
