"""Links to pages of the console: the page about a notice, and its runbook."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from reconciler.contract.tables import CandidateState, NoticeKind, RepairState
from reconciler.telling.ports.notices import Notice


def console_link(console_url: str, notice: Notice) -> str:
    """Returns the address of the page about the notice, with every part percent-encoded."""
    path, asked = _page_of(notice)
    query = urlencode({name: value for name, value in asked.items() if value}, quote_via=quote, errors="replace")
    return f"{console_url.rstrip('/')}{path}{'?' if query else ''}{query}"


def runbook_link(console_url: str, page: str) -> str:
    """Returns the console's address of a page of docs. The console shows the page in the reader's language."""
    return f"{console_url.rstrip('/')}/{page}"


def _page_of(notice: Notice) -> tuple[str, dict[str, str]]:
    topic, group = {"topic": notice.topic or ""}, {"group": notice.group or ""}
    match notice.kind:
        case NoticeKind.LOSS_PROVED:
            return "/losses", topic | group
        case NoticeKind.QUARANTINED:
            return "/losses", topic | group | {"state": CandidateState.QUARANTINED.value, "loss": "all"}
        case NoticeKind.REPAIR_FAILED:
            return "/repairs", topic | {"state": RepairState.FAILED.value}
        case NoticeKind.BREAKER_OPEN:
            return "/brakes", {}
        case NoticeKind.OUTAGE:
            return "/outages", {}
        case NoticeKind.AUDIT_VIOLATION:
            return "/audits", {}
        case NoticeKind.ROUNDS_STALE:
            return "/rounds", topic | group
        case NoticeKind.LEDGER_AWAY | NoticeKind.BROKER_AWAY | NoticeKind.DATABASE_AWAY:
            return "/health", {}
        case NoticeKind.ACCOUNTED_UNTIL_STALE:
            return "/", {}
