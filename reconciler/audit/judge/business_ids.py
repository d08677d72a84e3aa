"""Business ids of the few messages that people look at.

Every key has a business id, but only the ids of these messages are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.files import VerifiedFile
from reconciler.audit.evidence.plan import JudgePlan, PlannedFile
from reconciler.audit.evidence.tables import READ_TABLES
from reconciler.audit.judge.findings import FoundKey
from reconciler.audit.result.values import BUSINESS_ID
from reconciler.contract.evidence_layout import OUTBOX_EVIDENCE


def name_by_business(plan: JudgePlan, files: Sequence[PlannedFile], findings: Sequence[FoundKey]) -> None:
    """Adds a business id to each finding's evidence.

    If the key's outbox rows have several ids, the first id in sorted order is taken. The digests of the files were
    checked when the files were judged. Raises AuditError("inputs").
    """
    wanted: dict[tuple[str, bytes], list[FoundKey]] = {}
    for found in findings:
        wanted.setdefault((plan.subscriptions[found.subscription].topic, found.key), []).append(found)
    if not wanted:
        return
    keys = pa.array(sorted({key for _, key in wanted}), pa.large_binary())
    ids: dict[tuple[str, bytes], str] = {}
    for file in (file for file in files if file.table == OUTBOX_EVIDENCE.name):
        verified = VerifiedFile(file, READ_TABLES[file.table], is_verified=True)
        for batch in verified.batches(["key", "topic", BUSINESS_ID], by_row_group=True):
            rows = batch.filter(pc.is_in(batch["key"].cast(pa.large_binary()), keys))
            try:
                for row in rows.to_pylist():
                    message, business_id = (row["topic"], row["key"]), row[BUSINESS_ID]
                    if business_id is not None and message in wanted:
                        ids[message] = min(business_id, ids.get(message, business_id))
            except UnicodeDecodeError as error:
                raise AuditError(
                    "inputs", f"{file.shown}: a business id is no UTF-8 ({error}); collect again"
                ) from error
    for message, business_id in ids.items():
        for found in wanted[message]:
            found.evidence[BUSINESS_ID] = business_id
