"""Verifies that the evidence is unchanged since the judgement.

Files are verified by SHA-256, the manifest by the audit's rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from reconciler.audit.errors import AuditError
from reconciler.audit.history.chain import chain_of
from reconciler.audit.statement.confined import DOCUMENT_BYTES_MAX, Refused, read_bounded, suspect_json
from reconciler.audit.statement.document import INPUTS
from reconciler.audit.statement.folder import ALTERED, VerifiedFolder
from reconciler.audit.statement.inputs import HISTORY_PREFIX, InputFolder, Place, digest, suspect_inputs
from reconciler.audit.statement.retired import retired_files
from reconciler.audit.statement.verification import VerifyReport
from reconciler.contract.evidence_layout import EVIDENCE_TABLES
from reconciler.contract.manifest import manifest_folder

_HEAD = re.compile(rf"{HISTORY_PREFIX}{manifest_folder('([^/]*)')}/\d{{12}}\.json", re.ASCII)
_NO_LIST = "is not as signed, not there, or no list that names each file once"
_Listed = Sequence[Mapping[str, Any]]


def verify_inputs(
    folders: Sequence[VerifiedFolder], report: VerifyReport, *, evidence: str | None, history: str | None
) -> None:
    """Adds the changes of the inputs to the report. The inputs are in `evidence`, or in the evidence of each output."""
    chains = _Chains(report)
    if evidence is not None:
        for folder, listed, inputs in _given(folders, suspect_inputs(evidence, history), report):
            _verify_files(folder, listed, inputs, report)
            chains.verify(folder, listed, inputs)
        return
    own = [folder for folder in folders if folder.place.kind("evidence") == "folder"]
    for folder in own:
        found = _listed(folder)
        if found is None:
            report.unanswer(f"the inputs: {folder.name(INPUTS)} {_NO_LIST}")
            continue
        inputs = suspect_inputs(folder.place.below("evidence"), history)
        _verify_files(folder, found, inputs, report)
        chains.verify(folder, found, inputs)
    # An empty list belongs to a window without an answer.
    if any(folder.place.kind("evidence") != "folder" and _listed(folder) != [] for folder in folders):
        report.skip(["the inputs: name the evidence with --evidence DIR to have them compared, too"])


def _given(
    folders: Sequence[VerifiedFolder], inputs: InputFolder, report: VerifyReport
) -> list[tuple[VerifiedFolder, _Listed, InputFolder]]:
    lists = [(folder, found, inputs) for folder in folders if (found := _listed(folder)) is not None]
    if not lists:
        report.unanswer(f"the inputs: their list (statement/inputs.json) {_NO_LIST}")
    elif len(folders) > 1:
        lists = [one for one in lists if _is_of(one[1], inputs)]
        if not lists:
            report.unanswer("the inputs: no audit in this folder is of the given evidence")
            return []
        report.skip(
            f"the inputs of {folder.shown}: --evidence is that of another audit"
            for folder in folders
            if all(folder is not one for one, _, _ in lists)
        )
    return lists


def _listed(folder: VerifiedFolder) -> _Listed | None:
    """Reads inputs.json, if a statement that belongs to the folder has the digest of its bytes.

    None: no statement has the digest, or the list names a file twice. An audit never lists a file twice.
    """
    data = folder.read(INPUTS)
    for statement in folder.belonging:
        said = statement.document.get("inputs")
        if data is not None and isinstance(said, dict) and said.get("list_sha256") == digest(data):
            try:
                found = suspect_json(data)
            except ValueError:
                return None
            listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else None
            is_list = listed is not None and len({str(one.get("path")) for one in listed}) == len(listed)
            return listed if is_list else None
    return None


def _is_of(listed: _Listed, inputs: InputFolder) -> bool:
    said = {str(one.get("path")): one.get("sha256") for one in listed}
    try:
        return said.get("evidence.json") == inputs.digest("evidence.json")
    except OSError:
        return False


def _verify_files(folder: VerifiedFolder, listed: _Listed, inputs: InputFolder, report: VerifyReport) -> None:
    missing: list[str] = []
    shown = f"{folder.shown}evidence:"
    paths = [str(one.get("path")) for one in listed]
    for path, said in zip(paths, (one.get("sha256") for one in listed), strict=True):
        if not inputs.has(path):
            continue
        try:
            found = inputs.digest(path)
        except FileNotFoundError:
            missing.append(path)
        except Refused as error:
            report.differ(f"{shown}{path}", str(error))
        except OSError as error:
            report.unanswer(f"{shown}{path}: cannot be read: {error}")
        else:
            if found == said:
                report.files_equal += 1
            else:
                report.differ(f"{shown}{path}", ALTERED)
    retired = retired_files(listed, inputs) if missing else {}
    for path in missing:
        if path in retired:
            report.skip([f"{shown}{path}: {retired[path]}"])
        else:
            report.differ(f"{shown}{path}", "missing")
    for path in sorted(_tables_of(inputs) - set(paths)):
        report.differ(f"{shown}{path}", "was not there when the evidence was judged")


def _tables_of(inputs: InputFolder) -> set[str]:
    """Lists Parquet files of the tables that are in the evidence now."""
    found: set[str] = set()
    for table in EVIDENCE_TABLES:
        try:
            found.update(path for path, _ in inputs.evidence.walk(table.name) if path.endswith(".parquet"))
        except OSError as error:
            raise AuditError("inputs", f"--evidence: {table.name} cannot be listed: {error}") from error
    return found


class _Chains:
    """Manifests of the histories that audits have read. Each manifest is verified once."""

    def __init__(self, report: VerifyReport) -> None:
        self._report = report
        self._seen: list[tuple[Place, str]] = []

    def verify(self, folder: VerifiedFolder, listed: _Listed, inputs: InputFolder) -> None:
        """Adds the faults that an audit would refuse: an entry that is missing, doubled, swapped or altered."""
        shown = f"{folder.shown}evidence:history"
        heads = [found for one in listed if (found := _HEAD.fullmatch(str(one.get("path"))))]
        if inputs.history is None:
            self._report.skip(
                f"{shown}: its files and the chain of its manifest; evidence.json says that it lies at "
                f"{inputs.history_said}: name it with --history PATH to have it looked at"
                for _ in heads[:1]
            )
            return
        for environment in (head[1] for head in heads):
            if (inputs.history, environment) not in self._seen:
                self._seen.append((inputs.history, environment))
                self._verify(shown, inputs.history.below(manifest_folder(environment)), environment)

    def _verify(self, shown: str, manifest: Place, environment: str) -> None:
        names = [name for name, kind in manifest.walk() if kind == "file"]
        try:
            chain = chain_of(environment, names or None, partial(_entry, manifest))
        except OSError as error:
            self._report.unanswer(f"{shown}: the chain of its manifest cannot be read: {error}")
            return
        for problem in chain.problems:
            self._report.differ(shown, problem)


def _entry(manifest: Place, name: str) -> bytes:
    with manifest.open(name) as file:
        return read_bounded(file, DOCUMENT_BYTES_MAX)
