"""Sentences of a result, by code.

They tell of gaps of the history, unchecked rules, reasons for no answer, and remarks. A result has the sentences in
English, and the signature covers the English text. A page says the same sentences in its own language, by code and
fields (reconciler/words/audit_report.toml).
"""

from __future__ import annotations

from collections.abc import Mapping

_SHOWS_STOPPED = "which shows a handler that stopped half way"
_SENT_OFTEN = "keys that were sent more than once are not checked"

#: Code -> sentence with a placeholder for each field.
SENTENCES: Mapping[str, str] = {
    # Gaps of the history.
    "first-round": "the first round of this topic and group came then",
    "retired": "rows before {day} are older than the history is kept",
    "begins-later": "history begins with generation {generation} of epoch {epoch}",
    "missing": "generations {first} to {last} of epoch {epoch} are missing",
    "missing-before": "generations up to {last} of epoch {epoch} are missing before one that is declared as missing",
    "stored-only": "the ledger stored generations {first} to {last} of epoch {epoch}, history lacks them",
    "no-round": "no round came",
    "no-later-round": "no later round came",
    # Why a rule is not checked.
    "unsaid.incomplete": "the evidence does not say whether rows of the inbox had the column incomplete, "
    f"{_SHOWS_STOPPED}",
    "unsaid.first_sent_at_ms": "the evidence does not say whether repairs of the ledger had the column "
    f"first_sent_at_ms: {_SENT_OFTEN}",
    "lacking.incomplete": f"rows of the inbox have no column incomplete, {_SHOWS_STOPPED}",
    "lacking.first_sent_at_ms": f"repairs of the ledger have no column first_sent_at_ms: {_SENT_OFTEN}",
    "no-outbox": "no outbox was given for {groups}",
    "no-outbox-keys": "no outbox was given for {groups}: keys of these producers are not checked",
    "no-commits": "half messages announce, and no outbox tells which of them were committed",
    "effects-not-counted": "business effects were not counted; a key in two inboxes is found",
    "shows-none": "none of the {count} keys of the inbox is among the business effects: are table, unit and time zone "
    "of --effects right?",
    "no-inbox": "the inbox was not given",
    "no-ledger": "the ledger was not given",
    "no-history": "there is no history",
    "no-snapshot": "history holds no snapshot of pending of this time",
    "lost-account": "Redis lost its memory: rounds from {start} to {end} are not there. Of keys that were announced "
    "before, this is judged only where a snapshot of before shows it; the times at which rounds took keys are not "
    "counted across it",
    "both": "{first}; {second}",
    # Remarks.
    "and-more": "{names} and {more} more",
    "of-halves": "{subscription}: the answer is of the halves of the window that were read, and not of all commits: no "
    "outbox tells which of them were committed. {count} halves without a known effect are in no class",
    "unknown-announcements": "there is no history: what was announced is not known, and nothing tells of a message "
    "whose outbox row was deleted for its age",
    "verified-before": "entries 1 to {number} of the history's manifest were not read again: the audit of --previous "
    "has verified them, and entry {number} is still the one that it read",
    "not-asked": "history has rounds in the window of {names}, which this audit was not asked about: not audited",
    "undated": "effects of {subscription}: {count} of their keys are nowhere else in the window's evidence and were "
    "left out, because the query of --effects names no time (:start_ms, :end_ms)",
    "not-shown": "{subscription}: {count} of the {of} keys of the inbox are not among the business effects, so their "
    "double effects are not found: are table, unit and time zone of --effects right?",
    "counted-late": "{subscription}: committed keys written before the window, first seen late or not at all, and "
    "counted here: {count} ({names})",
    "counted-next": "{subscription}: committed keys written at the window's end, not seen yet, and counted in the next "
    "window: {count} ({names})",
    "still-delivered": "{subscription}: {count} of the listed LOST: the ledger has them as {verdict}: the broker still "
    "delivers them; they are LOST until they take effect, and EFFECT_LATE in a later audit of this window",
    "doubled": "{table}: {count} rows were there more than once and counted once",
    # Why there is no answer.
    "gap": "history of {subscription} lacks rows of {stream} from {start} to {end} ({why}); audit a window without "
    "them",
    "gaps": "history of {subscription} lacks rows of {stream} from {start} to {end} ({why}), and {more} more gaps; "
    "audit a window without them",
    "open": "the window is not closed for {subscription}: the evidence was collected at {collected}, which must reach "
    "{closes} (the window's end and late_after_seconds); audit again later",
    "open-history": "the window is not closed for {subscription}: history reaches {reached}, the evidence was "
    "collected at {collected}, both must reach {closes} (the window's end and late_after_seconds); audit again later",
    "open-no-round": "the window is not closed for {subscription}: history has no round of every shard, the evidence "
    "was collected at {collected}, both must reach {closes} (the window's end and late_after_seconds); audit again "
    "later",
}


class Sentence(str):
    """English sentence, with its code and fields."""

    code: str
    fields: Mapping[str, object]


def sentence(code: str, **fields: object) -> Sentence:
    """Makes a sentence. A field may be a sentence, too."""
    made = Sentence(SENTENCES[code].format(**fields))
    made.code, made.fields = code, fields
    return made
