"""Makes the files of OUT/statement: one statement with its signature per subscription."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.audit.result.documents import canonical
from reconciler.audit.statement.document import FOLDER, find_previous, statement_document, statement_name
from reconciler.audit.statement.keys import SigningKey


def statement_files(
    result: Mapping[str, Any],
    outputs: Sequence[Mapping[str, Any]],
    *,
    key: SigningKey | None,
    previous: Path | str | None,
) -> Iterator[tuple[str, bytes]]:
    """Yields the name in OUT and the bytes of each statement, and of each signature.

    With `key` None, there are no signatures.

    `outputs` has path, size and SHA-256 of every other file of OUT, sorted by path. Raises AuditError("usage") if the
    statements cannot follow `previous`.
    """
    public = None if key is None else key.public
    for subscription in result["subscriptions"]:
        topic, group = subscription["topic"], subscription["group"]
        before = find_previous(
            previous, result["environment"], topic, group, start_ms=result["window"]["start_ms"], key=public
        )
        document = statement_document(
            result,
            subscription,
            outputs=outputs,
            previous=before,
            signed_by=None if public is None else public.fingerprint,
        )
        data = canonical(document)
        name = f"{FOLDER}/{statement_name(topic, group)}"
        yield f"{name}.json", data
        if key is not None:
            yield f"{name}.sig", key.sign(data)
