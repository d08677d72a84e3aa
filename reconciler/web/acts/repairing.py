"""The act on lost messages: repair."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import Any, Literal

from pydantic import ConfigDict, Field

from reconciler.commands.acts.jobs import job_document, place_repair
from reconciler.commands.acts.repair import (
    REPAIR_KEYS_MAX,
    RepairLine,
    digest_of,
    failed_keys,
    open_loss_keys,
    repair_now,
)
from reconciler.contract.tables import RepairAct
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED
from reconciler.web.acts.act import DONE, EXIT_CODE, PLACED, ActRequest, ActResult, Reasoned, WebAct
from reconciler.web.acts.jobs import OF_JOB
from reconciler.web.acts.previewed import (
    DIGEST,
    PREVIEWED_MAX,
    SEEN,
    VERDICT,
    few,
    require_bulk_role,
    require_preview,
    verdict_of,
)
from reconciler.web.description import FACT, FLAG, LINES, NUMBER, TEXT, coded, listed, nullable, one_of, record
from reconciler.web.exchange import WebRefusal
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices

#: Maximum number of keys that one request repairs. More keys become a job, because a browser must not wait for a
#: hundred answers of slow brokers.
REPAIRED_AT_ONCE_MAX = 5
#: Schema of acts that are decided message by message. They are a person's hand-over and its cancellation.
_NAMED: Any = {
    "all": {"const": False},
    "keys": {"minItems": 1, "maxItems": REPAIRED_AT_ONCE_MAX},
}
_SAYS_FAILED: Any = {"properties": {"failed": {"const": True}}, "required": ["failed"]}


class RepairFields(Reasoned):
    """The messages that are repaired."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"if": {"properties": {name: {"const": value}}, "required": [name]}, "then": {"properties": _NAMED}}
                for name, value in (("by", "hand-over"), ("cancel", True))
            ]
            + [{"if": _SAYS_FAILED, "then": {"properties": {"verdict": {"type": "null"}}}}],
            "if": {"properties": {"all": {"const": True}}, "required": ["all"]},
            "then": {"properties": {"keys": {"maxItems": 0}}},
            "else": {
                "properties": {"keys": {"minItems": 1}, "verdict": {"type": "null"}, "failed": {"const": False}},
                "required": ["keys"],
                "if": {"properties": {"dry_run": {"const": True}}, "required": ["dry_run"]},
                "then": {"properties": {"keys": {"maxItems": PREVIEWED_MAX}}},
            },
        }
    )

    keys: list[str] = Field(
        default=[],
        max_length=REPAIR_KEYS_MAX,
        description="Unique keys; up to five may be business ids of one message.",
    )
    all: bool = Field(default=False, description="Instead of keys: every open loss, of the topic and group if given.")
    topic: str | None = Field(default=None, description="Only this topic.")
    group: str | None = Field(default=None, description="Only this consumer group.")
    verdict: str | None = Field(
        default=None,
        pattern=VERDICT,
        description="With all: only losses that have this verdict now.",
    )
    failed: bool = Field(default=False, description="With all: try failed repairs again, instead of open losses.")
    dry_run: bool = Field(default=False, description="Judge and tell, change nothing.")
    by: Literal["ladder", "hand-over"] = Field(
        default="ladder",
        description="`hand-over` gives the messages to the group's replay worker, at most once; up to five keys.",
    )
    cancel: bool = Field(default=False, description="Instead: take back what waits for a replay worker.")
    seen: dict[str, str] = SEEN
    digest: str | None = DIGEST

    @property
    def act(self) -> RepairAct:
        """The way of the repair."""
        return RepairAct.CANCEL if self.cancel else RepairAct(self.by)


def _repair(services: WebServices, asked: ActRequest, fields: RepairFields) -> ActResult:
    if bool(fields.keys) is fields.all:
        raise InvalidValue("keys", len(fields.keys), "name messages, or set all, not both")
    if fields.verdict and not fields.all:
        raise InvalidValue("verdict", fields.verdict, "it narrows what all takes: named messages are judged anew")
    if fields.failed and (fields.verdict or not fields.all):
        raise InvalidValue("failed", "true", "set all, too, and no verdict")
    if fields.act is not RepairAct.LADDER and not 1 <= len(fields.keys) <= REPAIRED_AT_ONCE_MAX:
        told = f"by hand over, or to cancel, name {REPAIRED_AT_ONCE_MAX} messages at most"
        raise InvalidValue("keys", len(fields.keys), told)
    if fields.dry_run:
        if len(fields.keys) > PREVIEWED_MAX:
            raise InvalidValue("keys", len(fields.keys), f"a dry run takes {PREVIEWED_MAX} keys at most")
        return _repaired(services, asked, fields)
    require_preview(fields.digest, fields.seen)
    keys, left = _bulk_keys(services, asked, fields), list[str]()
    if fields.all and fields.seen:
        left = [key for key in dict.fromkeys(_matching(services, fields, REPAIR_KEYS_MAX)) if key not in fields.seen]
    if not fields.all and len(keys) <= REPAIRED_AT_ONCE_MAX:
        return _repaired(services, asked, fields)
    job = place_repair(
        services.connections,
        keys,
        topic=fields.topic,
        group=fields.group,
        reason=fields.reason,
        by=asked.by,
        job_id=asked.job_id,
        seen={key: fields.seen[key] for key in keys if key in fields.seen},
        left=left,
    )
    return ActResult(document={"job": job_document(job)}, status=HTTPStatus.ACCEPTED)


def _repaired(services: WebServices, asked: ActRequest, fields: RepairFields) -> ActResult:
    report = repair_now(
        services.connections,
        fields.keys,
        topic=fields.topic,
        group=fields.group,
        dry_run=fields.dry_run,
        by=asked.by,
        reason=fields.reason,
        verdict=verdict_of(fields.verdict),
        is_failed=fields.failed,
        judged_max=PREVIEWED_MAX if fields.all else None,
        seen=fields.seen or None,
        act=fields.act,
    )
    changed = [line for line in report.keys if line.outcome == CHANGED]
    if changed and len(changed) == len(report.keys):  # nothing was done, so the idempotency key is free again
        told = few([f"{line.unique_key} for {line.group} is {line.verdict}" for line in changed])
        raise ChangedMeanwhile("what was to be repaired", now=report.as_dict(), told=told)
    named = {"topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    chosen = {"all": fields.all, "failed": fields.failed, "act": str(fields.act)} | named
    more = {"chosen": chosen, "lines": report.lines, "exit_code": report.exit_code}
    if fields.dry_run:
        more["digest"] = digest_of(report.seen)
    return ActResult(document=report.as_dict() | more)


def _matching(services: WebServices, fields: RepairFields, limit: int) -> list[str]:
    """Returns the keys that `all` takes now. A key that is lost for several groups is listed once per group."""
    connections, topic, group = services.connections, fields.topic, fields.group
    if fields.failed:
        return failed_keys(connections, topic=topic, group=group, limit=limit)
    return open_loss_keys(connections, topic=topic, group=group, verdict=verdict_of(fields.verdict), limit=limit)


def _bulk_keys(services: WebServices, asked: ActRequest, fields: RepairFields) -> list[str]:
    """Returns the keys to repair. With `all`, these are the keys of the preview.

    With `all` and without a preview, returns an empty list. It means all open losses, including those found before the
    job begins. A single verdict, failed repairs, and few losses that need no higher role are exceptions: then returns
    their keys. Raises WebRefusal.
    """
    few, keys = services.settings.web.bulk_admin_above, fields.keys
    is_named = bool(fields.seen or fields.verdict or fields.failed)
    if fields.all:
        keys = list(fields.seen) or _matching(services, fields, REPAIR_KEYS_MAX if is_named else few + 1)
        if not keys:
            lost, failed = "no loss is open", "no repair has failed for a group that lacks its effect"
            told = f"{failed if fields.failed else lost}: there is nothing to repair"
            raise WebRefusal(HTTPStatus.CONFLICT, told, kind="not-now")
    require_bulk_role(services, asked, len(keys))
    return [] if fields.all and not is_named and len(keys) > few else keys


_LINE = record({field.name: TEXT for field in dataclasses.fields(RepairLine)} | {"fact": nullable(FACT)})
_REPORT = record(
    {
        "dry_run": FLAG,
        "keys": listed(_LINE),
        "notes": LINES,
        "facts": coded("notes"),
        "chosen": record(
            {"all": FLAG, "failed": FLAG, "act": one_of(RepairAct)}
            | dict.fromkeys(("topic", "group", "verdict"), nullable(TEXT)),
            optional=("failed",),  # an answer that 0.2.0 has kept lacks this field
        ),
        "seen": {"type": "object", "additionalProperties": TEXT},
        "lines": {**NUMBER, "description": "Number of lines without the bound of a dry run."},
        "digest": {**TEXT, "description": "Digest of `seen` in a dry run, which a repair of all repeats."},
        "exit_code": EXIT_CODE,
    },
    optional=("digest",),
)
REPAIR = WebAct(
    name="repair",
    path="/repairs",
    role=WebRole.OPERATOR,
    summary="Verifies and repairs messages through the brakes of the reconciler; more than five keys are a job.",
    fields=RepairFields,
    do=_repair,
    answer={"oneOf": [_REPORT, OF_JOB]},
    statuses=DONE | PLACED,
    is_told=True,
)
