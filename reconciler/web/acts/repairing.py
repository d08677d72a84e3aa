"""Acts on messages: repair and dismiss."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Literal

from pydantic import ConfigDict, Field

from reconciler.commands.acts.dismiss import DISMISSED_MAX, dismiss_keys, preview_of_all, take_back_dismissals
from reconciler.commands.acts.jobs import LEFT_NAMED_MAX, REASON_CHARACTERS_MAX, job_document, place_repair
from reconciler.commands.acts.repair import (
    REPAIR_KEYS_MAX,
    RepairLine,
    digest_of,
    failed_keys,
    open_loss_keys,
    repair_now,
    waiting_keys,
)
from reconciler.contract.tables import RepairAct
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED
from reconciler.policy.open_halves import HalfState
from reconciler.web.access.visitors import require_role
from reconciler.web.acts.act import DONE, EXIT_CODE, PLACED, ActFields, ActRequest, ActResult, Reasoned, WebAct
from reconciler.web.acts.jobs import OF_JOB
from reconciler.web.description import FACT, FLAG, LINES, NUMBER, TEXT, coded, listed, nullable, one_of, record
from reconciler.web.exchange import WebRefusal
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices

#: More keys than these are a job: a browser waits for no broker that is slow a hundred times.
REPAIRED_AT_ONCE_MAX = 5
#: Messages of one preview; each is judged by asking brokers and databases.
PREVIEWED_MAX = 100
#: Lines of what has changed in the sentence of a refusal, which has all of them as data.
LINES_TOLD = 3


SEEN: Any = Field(
    default={},
    max_length=REPAIR_KEYS_MAX,
    description="Unique key: `seen` of the message, as explain or a dry run told it. A key that has changed since is "
    "left as it is, and told; of one that is not named here, what the request reads first counts.",
)


DIGEST: Any = Field(
    default=None,
    max_length=64,
    description="With all: digest of `seen`, as the preview gave it. A `seen` of another digest is refused.",
)
_VERDICT = f"^({'|'.join(Verdict)})$"
#: What is handed over by hand, or taken back, is decided message by message.
_NAMED: Any = {
    "all": {"const": False},
    "keys": {"minItems": 1, "maxItems": REPAIRED_AT_ONCE_MAX},
}
_SAYS_FAILED: Any = {"properties": {"failed": {"const": True}}, "required": ["failed"]}


class RepairFields(Reasoned):
    """What is repaired."""

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
        pattern=_VERDICT,
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
        """How they are repaired."""
        return RepairAct.CANCEL if self.cancel else RepairAct(self.by)


class DismissalFields(ActFields):
    """What is closed unsent."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {
                    "if": {"properties": {"all": {"const": True}}, "required": ["all"]},
                    "then": {
                        "properties": {"keys": {"maxItems": 0}, "take_back": {"const": False}},
                        "if": {"properties": {"dry_run": {"const": True}}, "required": ["dry_run"]},
                        "else": {"properties": {"seen": {"minProperties": 1}}, "required": ["seen"]},
                    },
                    "else": {
                        "properties": {"keys": {"minItems": 1}, "verdict": {"type": "null"}},
                        "required": ["keys"],
                    },
                }
            ],
            "if": {"properties": {"dry_run": {"const": True}}, "required": ["dry_run"]},
            "then": {"properties": {"take_back": {"const": False}, "keys": {"maxItems": PREVIEWED_MAX}}},
            "else": {
                "properties": {"reason": {"pattern": r"\S"}},
                "required": ["reason"],
                "if": {"properties": {"roll_back_half": {"const": True}}, "required": ["roll_back_half"]},
                "then": {"properties": {"take_back": {"const": False}, "keys": {"maxItems": PREVIEWED_MAX}}},
            },
        }
    )

    keys: list[str] = Field(default=[], max_length=DISMISSED_MAX, description="Unique keys.")
    all: bool = Field(
        default=False,
        description="Everything that waits for a person, as a dry run has counted it: give its `seen` and `digest`.",
    )
    reason: str = Field(
        default="",
        max_length=REASON_CHARACTERS_MAX,
        description="What was done instead; kept with the verdict. Needed unless it is a dry run.",
    )
    topic: str | None = Field(default=None, description="Only this topic.")
    group: str | None = Field(default=None, description="Only this consumer group.")
    dry_run: bool = Field(
        default=False, description="Tell what would come of it and whether a half is open, change nothing."
    )
    roll_back_half: bool = Field(
        default=False,
        description="Close an open half by END ROLLBACK, if every group of the topic has the effect or is dismissed.",
    )
    take_back: bool = Field(
        default=False,
        description="Instead: take a dismissal back. The keys wait for a person again, and nothing is sent.",
    )
    verdict: str | None = Field(
        default=None, pattern=_VERDICT, description="With all: only what waits with this verdict now."
    )
    seen: dict[str, str] = SEEN
    digest: str | None = DIGEST


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
    _require_preview(fields)
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


def _require_preview(fields: RepairFields | DismissalFields) -> None:
    if fields.digest is not None and fields.digest != digest_of(fields.seen):
        raise InvalidValue("digest", fields.digest, "they are not those of the preview: look at it again")


def _repaired(services: WebServices, asked: ActRequest, fields: RepairFields) -> ActResult:
    report = repair_now(
        services.connections,
        fields.keys,
        topic=fields.topic,
        group=fields.group,
        dry_run=fields.dry_run,
        by=asked.by,
        reason=fields.reason,
        verdict=_verdict(fields),
        is_failed=fields.failed,
        judged_max=PREVIEWED_MAX if fields.all else None,
        seen=fields.seen or None,
        act=fields.act,
    )
    changed = [line for line in report.keys if line.outcome == CHANGED]
    if changed and len(changed) == len(report.keys):  # nothing was done, and the key of the request is free again
        told = _few([f"{line.unique_key} for {line.group} is {line.verdict}" for line in changed])
        raise ChangedMeanwhile("what was to be repaired", now=report.as_dict(), told=told)
    named = {"topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    chosen = {"all": fields.all, "failed": fields.failed, "act": str(fields.act)} | named
    more = {"chosen": chosen, "lines": report.lines, "exit_code": report.exit_code}
    if fields.dry_run:
        more["digest"] = digest_of(report.seen)
    return ActResult(document=report.as_dict() | more)


def _few(lines: Sequence[str]) -> str:
    """The first ones in a sentence."""
    more = [f"{len(lines) - LINES_TOLD} more"] if len(lines) > LINES_TOLD else []
    return "; ".join([*lines[:LINES_TOLD], *more])


def _matching(services: WebServices, fields: RepairFields, limit: int) -> list[str]:
    """What `all` takes now; one that is lost for several groups stands there as often."""
    connections, topic, group = services.connections, fields.topic, fields.group
    if fields.failed:
        return failed_keys(connections, topic=topic, group=group, limit=limit)
    return open_loss_keys(connections, topic=topic, group=group, verdict=_verdict(fields), limit=limit)


def _bulk_keys(services: WebServices, asked: ActRequest, fields: RepairFields) -> list[str]:
    """What is to be repaired: of all, what the preview has shown. Where no preview is given, none named: all open
    losses, also those that come until the job begins.

    Where they are so few that nobody needs a higher role, of a single verdict, or failed, they are named. Raises
    WebRefusal.
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


def require_bulk_role(services: WebServices, asked: ActRequest, count: int) -> None:
    """Raises WebRefusal: so many messages at once need a higher role."""
    if count > services.settings.web.bulk_admin_above:
        require_role(asked.request, WebRole.ADMIN)


def _dismiss(services: WebServices, asked: ActRequest, fields: DismissalFields) -> ActResult:
    if not (fields.reason.strip() or fields.dry_run):
        raise InvalidValue("reason", fields.reason, "say what was done instead")
    if fields.take_back and (fields.dry_run or fields.roll_back_half or fields.all):
        raise InvalidValue("take_back", "true", "give it with keys, and without dry_run and roll_back_half")
    if bool(fields.keys) is fields.all:
        raise InvalidValue("keys", len(fields.keys), "name messages, or set all, not both")
    if fields.verdict and not fields.all:
        raise InvalidValue("verdict", fields.verdict, "it narrows what all takes")
    if fields.all and fields.dry_run:
        return _preview_of_all(services, fields)
    waiting = _waiting(services, fields) if fields.all else ()
    keys = list(fields.seen) if fields.all else fields.keys
    if (fields.dry_run or fields.roll_back_half) and len(keys) > PREVIEWED_MAX:
        raise InvalidValue("keys", len(keys), f"the halves of {PREVIEWED_MAX} keys at most are looked for")
    if len(keys) > DISMISSED_MAX:
        raise InvalidValue("seen", len(keys), f"{DISMISSED_MAX} keys at most are dismissed at once")
    if not fields.dry_run:
        require_bulk_role(services, asked, len(keys))
    act = (
        take_back_dismissals
        if fields.take_back
        else partial(dismiss_keys, dry_run=fields.dry_run, roll_back_half=fields.roll_back_half)
    )
    report = act(
        services.connections,
        keys,
        topic=fields.topic,
        group=fields.group,
        reason=fields.reason,
        by=asked.by,
        seen=fields.seen,
    )
    is_done = fields.dry_run or any(half.closed for half in report.halves)
    if not is_done and len(report.changed) == len(report.keys):  # the key of the request is free again
        about = "the message" if len(keys) == 1 else "each message"
        raise ChangedMeanwhile(about, now=report.as_dict(), told=_few([line.sentence for line in report.changed]))
    chosen = {"all": fields.all, "topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    more: dict[str, object] = {"chosen": chosen, "exit_code": report.exit_code}
    if fields.all:
        left = [key for key in waiting if key not in fields.seen]
        more |= {"left": left[:LEFT_NAMED_MAX], "left_number": len(left)}
    return ActResult(document=report.as_dict() | more)


def _waiting(services: WebServices, fields: DismissalFields) -> list[str]:
    """What waits for a person, and all takes now. Raises InvalidValue without a preview."""
    if not fields.seen:
        raise InvalidValue("seen", "{}", "look at them first: give seen and digest as a dry run of all told them")
    _require_preview(fields)
    return waiting_keys(
        services.connections,
        topic=fields.topic,
        group=fields.group,
        verdict=_verdict(fields),
        limit=REPAIR_KEYS_MAX,
    )


def _preview_of_all(services: WebServices, fields: DismissalFields) -> ActResult:
    """Raises WebRefusal where nothing waits."""
    report = preview_of_all(
        services.connections,
        topic=fields.topic,
        group=fields.group,
        verdict=_verdict(fields),
        looked_at_max=PREVIEWED_MAX,
        roll_back_half=fields.roll_back_half,
    )
    if not report.waiting:
        raise WebRefusal(HTTPStatus.CONFLICT, "nothing waits for a person: there is nothing to dismiss", kind="not-now")
    chosen = {"all": True, "topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    more = {"chosen": chosen, "exit_code": report.exit_code, "messages": len(report.waiting)}
    return ActResult(document=report.as_dict() | more | {"digest": digest_of(report.seen)})


def _verdict(fields: RepairFields | DismissalFields) -> Verdict | None:
    return Verdict(fields.verdict) if fields.verdict else None


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
            optional=("failed",),  # of an answer that 0.2.0 has kept
        ),
        "seen": {"type": "object", "additionalProperties": TEXT},
        "lines": {**NUMBER, "description": "Number of lines without the bound of a dry run."},
        "digest": {**TEXT, "description": "Digest of `seen` in a dry run, which a repair of all repeats."},
        "exit_code": EXIT_CODE,
    },
    optional=("digest",),
)
_DISMISSALS = record(
    {
        "keys": listed(
            record(
                dict.fromkeys(("topic", "group", "unique_key", "outcome", "told"), TEXT)
                | {"fact": nullable(FACT), "now": nullable({"type": "object"})}
            )
        ),
        "dry_run": FLAG,
        "halves": listed(
            record(
                {
                    "topic": TEXT,
                    "unique_key": TEXT,
                    "state": one_of(HalfState),
                    "told": TEXT,
                    "fact": FACT,
                    "until": nullable(TEXT),
                    "can_be_closed": FLAG,
                    "closed": FLAG,
                }
            )
        ),
        "seen": {"type": "object", "additionalProperties": TEXT},
        "chosen": record(
            {"all": FLAG} | dict.fromkeys(("topic", "group", "verdict"), nullable(TEXT)),
            optional=("all", "verdict"),  # of an answer that 0.2.0 has kept
        ),
        "messages": {**NUMBER, "description": "In a dry run of all: the number of messages that wait."},
        "digest": {**TEXT, "description": "In a dry run of all: digest of `seen`, which the act repeats."},
        "left": {**LINES, "description": "With `all`: the first messages that wait and were in no preview."},
        "left_number": {**NUMBER, "description": "How many these are."},
        "exit_code": EXIT_CODE,
    },
    optional=("messages", "digest", "left", "left_number"),
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
DISMISS = WebAct(
    name="dismiss",
    path="/dismissals",
    role=WebRole.OPERATOR,
    summary="Closes quarantined keys that a person has seen to; no message is sent.",
    fields=DismissalFields,
    do=_dismiss,
    answer=_DISMISSALS,
    is_told=True,
    is_harmless_again=False,
)
