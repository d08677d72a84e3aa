"""A row of `reconciler_outbox` by its columns, for stand-ins of the table: as evidence it is an `OutboxRow`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from reconciler.contract.tables import OutboxState
from reconciler.policy.evidence import OutboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    message_keys: str | None = None
    business_id: str | None = None
    half_broker: str | None = None
    half_commit_log_offset: int | None = None
    half_queue_offset: int | None = None
    properties: Mapping[str, str] | None = None
    body: bytes | None = None
    content_digest: bytes | None
    state: OutboxState
    created_at_ms: int
    announced_at_ms: int | None = None
    settled_at_ms: int | None = None

    @property
    def is_committed(self) -> bool:
        return self.state is not OutboxState.ROLLED_BACK

    @property
    def seen(self) -> OutboxRow:
        """As a witness shows it."""
        return OutboxRow.of_columns({column.name: getattr(self, column.name) for column in fields(self)})
