"""The act of dismissing messages that a person has handled."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from pydantic import ConfigDict, Field

from reconciler.commands.acts.dismiss import DISMISSED_MAX, dismiss_keys, preview_of_all, take_back_dismissals
from reconciler.commands.acts.jobs import LEFT_NAMED_MAX, REASON_CHARACTERS_MAX
from reconciler.commands.acts.repair import digest_of, waiting_keys
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.open_halves import HalfState
from reconciler.web.acts.act import EXIT_CODE, ActFields, ActRequest, ActResult, WebAct
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
from reconciler.web.description import FACT, FLAG, LINES, NUMBER, TEXT, listed, nullable, one_of, record
from reconciler.web.exchange import WebRefusal
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices


class DismissalFields(ActFields):
    """The keys that are closed without sending their messages."""

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
        default=None, pattern=VERDICT, description="With all: only what waits with this verdict now."
    )
    seen: dict[str, str] = SEEN
    digest: str | None = DIGEST


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
        raise ChangedMeanwhile(about, now=report.as_dict(), told=few([line.sentence for line in report.changed]))
    chosen = {"all": fields.all, "topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    more: dict[str, object] = {"chosen": chosen, "exit_code": report.exit_code}
    if fields.all:
        left = [key for key in waiting if key not in fields.seen]
        more |= {"left": left[:LEFT_NAMED_MAX], "left_number": len(left)}
    return ActResult(document=report.as_dict() | more)


def _waiting(services: WebServices, fields: DismissalFields) -> list[str]:
    """Returns the keys that wait for a person and that `all` takes now. Raises InvalidValue without a preview."""
    if not fields.seen:
        raise InvalidValue("seen", "{}", "look at them first: give seen and digest as a dry run of all told them")
    require_preview(fields.digest, fields.seen)
    verdict = verdict_of(fields.verdict)
    return waiting_keys(services.connections, topic=fields.topic, group=fields.group, verdict=verdict)


def _preview_of_all(services: WebServices, fields: DismissalFields) -> ActResult:
    """Previews a dismissal of all. Raises WebRefusal if nothing waits."""
    report = preview_of_all(
        services.connections,
        topic=fields.topic,
        group=fields.group,
        verdict=verdict_of(fields.verdict),
        looked_at_max=PREVIEWED_MAX,
        roll_back_half=fields.roll_back_half,
    )
    if not report.waiting:
        raise WebRefusal(HTTPStatus.CONFLICT, "nothing waits for a person: there is nothing to dismiss", kind="not-now")
    chosen = {"all": True, "topic": fields.topic, "group": fields.group, "verdict": fields.verdict}
    more = {"chosen": chosen, "exit_code": report.exit_code, "messages": len(report.waiting)}
    return ActResult(document=report.as_dict() | more | {"digest": digest_of(report.seen)})


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
            optional=("all", "verdict"),  # an answer that 0.2.0 has kept lacks these fields
        ),
        "messages": {**NUMBER, "description": "In a dry run of all: the number of messages that wait."},
        "digest": {**TEXT, "description": "In a dry run of all: digest of `seen`, which the act repeats."},
        "left": {**LINES, "description": "With `all`: the first messages that wait and were in no preview."},
        "left_number": {**NUMBER, "description": "How many these are."},
        "exit_code": EXIT_CODE,
    },
    optional=("messages", "digest", "left", "left_number"),
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
