"""GET /api/v1/status: the present status."""

from __future__ import annotations

from reconciler.contract import tables
from reconciler.contract.facts import COUNTED_MAX
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.web.description import (
    BAD_PARAMETER,
    END_OF_HOLD,
    FACT,
    FACT_OF_HOLD,
    FACTS,
    FLAG,
    LINES,
    NUMBER,
    TEXT,
    TIME_MS,
    ApiEndpoint,
    Description,
    listed,
    nullable,
    of_column,
    one_of,
    record,
    values_of,
)
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices

_OUTAGE = {column.name: of_column(column) for column in tables.OUTAGE.columns}
_COUNT = {**NUMBER, "description": f"Counted up to {COUNTED_MAX}; {COUNTED_MAX + 1}: more than that."}
_REMARKS = (
    "away", "late", "undecided", "rejected", "before_since", "lagging", "undecidable", "unswept", "standing", "doubled",
    "unproved", "damaged", "acknowledged",
)  # fmt: skip
#: Schema of `reconciler status --output json`.
STATUS = {
    "summary": {**TEXT, "description": "One sentence: until when commits are accounted for, or what needs a person."},
    "needs_a_person": FLAG,
    **dict.fromkeys(_REMARKS, LINES),
    "facts": {
        **record({"summary": FACT, **dict.fromkeys(_REMARKS, FACTS)}),
        "description": "The sentence and the lines above as codes and fields.",
    },
    "following": {
        **listed(record({"away": TEXT, "lines": LINES, "facts": FACTS})),
        "description": "Findings that follow from a dependency that is away, below its line of `away`.",
    },
    "subscriptions": listed(
        record(
            {
                "topic": TEXT,
                "group": TEXT,
                "pending": nullable(NUMBER),
                "oldest_pending_ms": nullable(TIME_MS),
                "watermark_ms": nullable(TIME_MS),
                "watermark_detail": TEXT,
                "last_round_ms": {
                    **nullable(TIME_MS),
                    "description": "Time of the last round, or of a later look that found all shards at rest.",
                },
                "weaker": TEXT,
                "accounted_until_ms": nullable(TIME_MS),
                "waiting": {**NUMBER, "description": "Messages that the group has not passed; also 0 if unknown."},
                "waiting_since_ms": nullable(TIME_MS),
                "since_ms": {
                    **nullable(TIME_MS),
                    "description": "Time from which it answers for messages; 0: for all of them; null: no round yet.",
                },
            }
        )
    ),
    "verdicts": listed(
        record(
            {
                "topic": TEXT,
                "group": TEXT,
                "state": one_of(CandidateState),
                "verdict": one_of(Verdict),
                "loss_verdict": nullable(one_of(Verdict)),
                "keys": _COUNT,
                "oldest_ms": TIME_MS,
            }
        )
    ),
    "repairs": listed(
        record(
            {
                "topic": TEXT,
                "scope": TEXT,
                "state": one_of(RepairState),
                "rung": one_of(Rung),
                "attempted": _COUNT,
                "repairs": _COUNT,
            }
        )
    ),
    "holds": listed(
        record(
            {
                "topic": TEXT,
                "kind": one_of(HoldKind),
                "since_ms": TIME_MS,
                "until_ms": END_OF_HOLD,
                "by": TEXT,
                "reason": TEXT,
                "fact": FACT_OF_HOLD,
            }
        )
    ),
    "outages": listed(
        record(
            {name: _OUTAGE[name] for name in ("started_at_ms", "reason", "scanned", "closed_at_ms")}
            | {"left_out": TEXT}
        )
    ),
    "history": listed(
        record(
            {
                "topic": TEXT,
                "group": TEXT,
                "captured_until_ms": nullable(TIME_MS),
                "recent_rounds": NUMBER,
                "gaps": NUMBER,
                "spool_bytes": NUMBER,
                "problems": TEXT,
            }
        )
    ),
    "exit_code": {"type": "integer", "enum": [0, 1, 3], "description": "That of the command."},
}


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Returns what `reconciler status --output json` prints."""
    values_of((), request)
    report = services.newest_status()
    return json_response(report.as_dict() | {"exit_code": report.exit_code})


ENDPOINT = ApiEndpoint(
    handler=show,
    about=Description(
        summary="Whether every commit is accounted for, since when not, and why",
        answer=record(STATUS),
        statuses={
            200: "as it was within the last seconds",
            **BAD_PARAMETER,
            503: "the ledger is away: nothing can be said",
        },
    ),
)
