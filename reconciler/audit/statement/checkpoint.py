"""Reads the manifest that an older audit has verified.

The reading needs this auditor's own signature of the older audit.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from reconciler.audit.errors import AuditError
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.history.checkpoint import CHECKPOINT, verified_chain
from reconciler.audit.statement.confined import DOCUMENT_BYTES_MAX, ConfinedFolder
from reconciler.audit.statement.document import read_statement, statement_names
from reconciler.audit.statement.folder import outputs_of
from reconciler.audit.statement.inputs import digest
from reconciler.audit.statement.keys import PublicKey


def believed_chain(previous: Path, key: PublicKey) -> HistoryChain | None:
    """Reads the chain that the audit of an older OUT has verified. None: the release of that audit kept no such file.

    Raises AuditError("usage") if no statement of this key has the digest of the file's present bytes.
    """
    if not previous.is_dir():
        raise _unbelieved(previous, "it is no output of an audit")
    place = ConfinedFolder(previous)
    try:
        statements = [one for name in statement_names(place) if (one := read_statement(place, name)) is not None]
    except OSError as error:
        raise _unbelieved(previous, f"it cannot be read ({error.strerror})") from error
    signed = [one for one in statements if one.signature is not None and key.has_signed(one.data, one.signature)]
    if not signed:
        raise _unbelieved(previous, "no statement in it is signed by the key of --public-key")
    outputs = {path: sha256 for one in signed for path, (_, sha256) in outputs_of(one)}
    if CHECKPOINT not in outputs:
        return None
    try:
        data = place.read(CHECKPOINT, DOCUMENT_BYTES_MAX)
        if digest(data) != outputs[CHECKPOINT]:
            raise _unbelieved(previous, f"{CHECKPOINT} is not the signed one")
        return verified_chain(data)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unbelieved(previous, f"{CHECKPOINT} cannot be read ({error})") from error


def _unbelieved(previous: Path, why: str) -> AuditError:
    remedy = "name an older output of this auditor, or read the whole manifest: --whole-chain"
    return AuditError("usage", f"--previous {previous}: {why}; {remedy}")
