"""Statements.

A statement tells of one window and subscription: the findings, the inputs, the outputs, and the statement before. A
statement is canonical JSON. The file `.sig` has the Ed25519 signature of the statement's bytes. Statements of one
subscription form a chain by `previous`. output/writing.py writes the outputs before. verify.py verifies statements.
Format: docs/reference/statement.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reconciler.audit.errors import AuditError
from reconciler.audit.result.documents import canonical
from reconciler.audit.statement.confined import DOCUMENT_BYTES_MAX, ConfinedFolder, suspect_json
from reconciler.audit.statement.inputs import digest
from reconciler.audit.statement.keys import SIGNATURE_BYTES, PublicKey

STATEMENT_KIND = "checkback-reconciler statement"
STATEMENT_VERSION = 1
#: Folder of the statements in OUT.
FOLDER = "statement"
INPUTS = f"{FOLDER}/inputs.json"
#: Upper bound of all counters and times, because readers of JSON have this bound.
INTEGER_MAX = 2**53

_NAME_MAX = 100
_PLAIN = re.compile(r"[A-Za-z0-9_%.-]+")
_MANIFEST = re.compile(r"history/manifest/.*\d{12}\.json")


@dataclass(frozen=True, slots=True)
class StatementFile:
    """Statement that was read: the place, the bytes, and the fields of the document."""

    path: Path
    data: bytes
    document: Mapping[str, Any]
    #: Bytes of the file .sig, at most one byte more than a signature. None: the statement has no file .sig.
    signature: bytes | None

    @property
    def subscription(self) -> tuple[str, str, str]:
        """Environment, topic and group, which name the statement's chain."""
        return (
            str(self.document.get("environment")),
            str(self.document.get("topic")),
            str(self.document.get("group")),
        )

    @property
    def sequence(self) -> int:
        """Number of the statement in the chain, from 1. 0: the statement has no number."""
        return _integer(self.document.get("sequence"))

    @property
    def start_ms(self) -> int:
        """Beginning of the window. 0: the statement has no beginning."""
        window = self.document.get("window")
        return _integer(window.get("start_ms")) if isinstance(window, dict) else 0


def _integer(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < INTEGER_MAX else 0


def statement_name(topic: str, group: str) -> str:
    """Makes a file name without folder and suffix.

    Each subscription has its own file name, even with long names and names with "--".
    """
    shown = "--".join(quote(name, safe="%", errors="surrogatepass")[:_NAME_MAX] for name in (topic, group))
    if all(_PLAIN.fullmatch(name) and "--" not in name and len(name) <= _NAME_MAX for name in (topic, group)):
        return shown
    mark = hashlib.sha256(f"{topic}\0{group}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown}--{mark}"


def statement_document(
    result: Mapping[str, Any],
    subscription: Mapping[str, Any],
    *,
    outputs: Sequence[Mapping[str, Any]],
    previous: StatementFile | None,
    signed_by: str | None,
) -> dict[str, Any]:
    """Makes the statement of one subscription.

    The inputs are result.json and the list of outputs (path, bytes, sha256).
    """
    manifests = [file for file in result["inputs"] if _MANIFEST.fullmatch(file["path"])]
    evidence = [file["sha256"] for file in result["inputs"] if file["path"] == "evidence.json"]
    return {
        "kind": STATEMENT_KIND,
        "version": STATEMENT_VERSION,
        "environment": result["environment"],
        "topic": subscription["topic"],
        "group": subscription["group"],
        "window": result["window"],
        "rules": result["rules"],
        # Engine that has judged. The field is absent in results of releases with one engine.
        **({"engine": result["engine"]} if "engine" in result else {}),
        "verdict": result["verdict"],
        "no_answer": result["no_answer"],
        "closed": subscription["closed"],
        "watermark_ms": subscription["watermark_ms"],
        "as_of_ms": subscription["as_of_ms"],
        "keys": subscription["keys"],
        "violations": subscription["violations"],
        "classes": subscription["classes"],
        "not_checked": subscription["not_checked"],
        # Where half messages announce, the statement is about the window's halves, and not about all commits.
        **({"of_halves": True} if subscription.get("of_halves") else {}),
        # Counts of the whole audit. The field is absent in results of releases that did not count.
        **({"not_judged": result["not_judged"]} if "not_judged" in result else {}),
        # This field exists only where a platform's tables were copied. Results of older releases lack the field.
        **({"input_versions": result["input_versions"]} if "input_versions" in result else {}),
        # All subscriptions of the audit. If a statement is missing, the other statements show this.
        "subscriptions": [{"topic": one["topic"], "group": one["group"]} for one in result["subscriptions"]],
        "inputs": {
            "files": len(result["inputs"]),
            "rows": result["rows"],
            "list": INPUTS,
            "list_sha256": digest(canonical_inputs(result)),
            "evidence_sha256": evidence[0] if evidence else None,
            "manifest_head": manifests[-1] if manifests else None,
        },
        "outputs": list(outputs),
        "sequence": 1 if previous is None else previous.sequence + 1,
        "previous": None if previous is None else {"sha256": digest(previous.data), "sequence": previous.sequence},
        "signed_by": signed_by,
    }


def canonical_inputs(result: Mapping[str, Any]) -> bytes:
    """Makes the bytes of inputs.json: path, rows and SHA-256 of every file that was read."""
    files = [{"path": file["path"], "rows": file["rows"], "sha256": file["sha256"]} for file in result["inputs"]]
    return canonical(files)


def find_previous(
    named: Path | str | None, environment: str, topic: str, group: str, *, start_ms: int, key: PublicKey | None
) -> StatementFile | None:
    """Finds the newest statement of this subscription. The place is an older OUT, its statement folder, or one file.

    None: nothing is named, or the place has no statement of this subscription. Raises AuditError("usage") for a place
    that has no statement, and for a statement of a later window. If this audit signs, also raises AuditError("usage")
    for a statement that this key did not sign. Otherwise a chain could confirm a forged statement.
    """
    if named is None:
        return None
    place = Path(named)
    if place.is_file():
        found = [read_statement(ConfinedFolder(place.parent), place.name)]
    else:
        folder = ConfinedFolder(place)
        found = [read_statement(folder, name) for name in statement_names(folder)] if place.is_dir() else []
    statements = [one for one in found if one is not None]
    if not statements:
        raise AuditError("usage", f"--previous {named}: there is no statement; name an older audit's output")
    mine = [one for one in statements if one.subscription == (environment, topic, group)]
    if not mine:
        return None
    newest = max(mine, key=lambda one: (one.sequence, one.start_ms))
    if newest.sequence < 1:
        raise AuditError("usage", f"--previous {newest.path}: it has no number in its chain; name an unaltered one")
    if newest.start_ms > start_ms:
        raise AuditError("usage", f"--previous {newest.path}: it is of a later window; name the one before")
    if key is not None:
        signature = newest.signature
        if signature is None or not key.has_signed(newest.data, signature):
            raise AuditError(
                "usage",
                f"--previous {newest.path}: not signed by the key of --signing-key; verify it "
                "(`reconciler statement verify`), or start a new chain without --previous",
            )
    return newest


def read_statement(folder: ConfinedFolder, name: str) -> StatementFile | None:
    """Reads a statement. None: the file is no statement, or may not be read."""
    try:
        data = folder.read(name, DOCUMENT_BYTES_MAX)
        document = suspect_json(data)
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("kind") != STATEMENT_KIND:
        return None
    return StatementFile(folder.path / name, data, document, _signature(folder, name))


def _signature(folder: ConfinedFolder, name: str) -> bytes | None:
    try:
        with folder.open(f"{name.removesuffix('.json')}.sig") as file:
            return file.read(SIGNATURE_BYTES + 1)
    except OSError:
        return None


def statement_names(folder: ConfinedFolder) -> list[str]:
    """Lists the sorted JSON files of OUT/statement, or of the folder itself."""
    inner = f"{FOLDER}/" if folder.kind(FOLDER) == "folder" else ""
    return [f"{inner}{name}" for name, _ in folder.entries(inner.rstrip("/")) if name.endswith(".json")]
