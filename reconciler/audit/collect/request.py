"""Request for evidence of outboxes, inboxes, ledger and effects. evidence.json has a copy of the request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from reconciler.audit.collect.sources import Sources
from reconciler.audit.collect.writer import WrittenFile
from reconciler.audit.evidence.document import LackingColumn, lacking_document, not_asked_document
from reconciler.audit.evidence.plan import UNSEEN_LATES
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.result.not_judged import RowsOf
from reconciler.audit.result.values import AuditedSubscription, InputVersion, Window
from reconciler.contract.evidence_layout import EVIDENCE_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request for the evidence of one window."""

    environment: str
    window: Window
    shards: int
    skew_bound_ms: int
    #: Sorted by topic and group.
    subscriptions: tuple[AuditedSubscription, ...]
    sources: Sources
    #: Path or URL of a history. None: no history.
    history: str | None
    #: Chain of the history that an older audit has verified. None: the whole manifest is read.
    history_after: HistoryChain | None = None
    #: Versions of the copies that `sources` name, sorted by input.
    input_versions: tuple[InputVersion, ...] = ()
    #: Time at which the collection began.
    collected_at_ms: int

    @property
    def written_since_ms(self) -> int:
        """Earliest time of outbox rows that may count (UNSEEN_LATES)."""
        late_seconds = max(s.late_after_seconds for s in self.subscriptions)
        return self.window.start_ms - UNSEEN_LATES * round(late_seconds * 1000)

    @property
    def since_ms(self) -> int:
        """Earliest time of other rows that may count. Clocks differ, so an effect can seem older than the commit."""
        return self.written_since_ms - self.skew_bound_ms

    @property
    def closes_ms(self) -> int:
        """Time after which no row changes the window: the window's end plus the time for late effects."""
        late_seconds = max(s.late_after_seconds for s in self.subscriptions)
        return self.window.end_ms + round(late_seconds * 1000) + 1

    def topics_of(self, producer_group: str) -> tuple[str, ...]:
        """Lists the audited topics that a producer group sends."""
        return tuple(sorted({s.topic for s in self.subscriptions if producer_group in s.producer_groups}))

    @property
    def topics(self) -> tuple[str, ...]:
        """Audited topics."""
        return tuple(sorted({s.topic for s in self.subscriptions}))


def evidence_document(
    request: Request,
    files: Mapping[str, WrittenFile],
    not_asked: Mapping[RowsOf, int],
    undated: Mapping[tuple[str, str], int],
    lacking: Collection[LackingColumn],
) -> dict[str, object]:
    """Makes evidence.json of the request and the files that answer it."""
    return {
        "version": EVIDENCE_VERSION,
        "environment": request.environment,
        "window": {"start_ms": request.window.start_ms, "end_ms": request.window.end_ms},
        "collected_at_ms": request.collected_at_ms,
        "skew_bound_ms": request.skew_bound_ms,
        "shards": request.shards,
        "subscriptions": [
            {
                "topic": s.topic,
                "group": s.group,
                "tags": None if s.tags is None else list(s.tags),
                "producer_groups": list(s.producer_groups),
                "grace_period_seconds": s.grace_period_seconds,
                "late_after_seconds": s.late_after_seconds,
                "inbox": s.inbox,
                "effects": s.effects,
                **({"of_halves": True} if s.of_halves else {}),
            }
            for s in request.subscriptions
        ],
        "outboxes": list(request.sources.outbox_groups),
        "ledger": request.sources.ledger is not None,
        "history": request.history,
        "not_asked": not_asked_document(not_asked),
        "undated_effects": [
            {"topic": topic, "group": group, "keys": count}
            for (topic, group), count in sorted(undated.items())
            if count
        ],
        "lacking_columns": lacking_document(lacking),
        **({"input_versions": [asdict(one) for one in request.input_versions]} if request.input_versions else {}),
        "files": described_files(files),
    }


def described_files(files: Mapping[str, WrittenFile]) -> dict[str, object]:
    """Makes the field `files` of evidence.json."""
    return {path: _described(file) for path, file in sorted(files.items())}


def _described(file: WrittenFile) -> dict[str, object]:
    found: dict[str, object] = {"rows": file.rows, "sha256": file.sha256}
    if file.groups:
        found["footer_sha256"] = file.footer_sha256
        found["row_groups"] = [{"prefix": one.prefix, "rows": one.rows, "sha256": one.sha256} for one in file.groups]
    return found
