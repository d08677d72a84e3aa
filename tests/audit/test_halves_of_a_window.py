"""Where half messages announce and there is no outbox, the audit answers for the halves of the window, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.audit.collect.configuration import read_configuration
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.result.classes import NAMES
from reconciler.audit.result.documents import canonical, result_document
from reconciler.audit.result.values import JudgedWindow
from reconciler.audit.statement.document import statement_document
from tests.audit.small_evidence import GROUP, START_MS, TOPIC, SmallEvidence
from tests.audit.small_evidence import subscription as asked_for

#: Of all rules those that ask what was committed, when, or with what content.
OF_COMMITS = {"EFFECT_WITHOUT_COMMIT", "REPAIR_DIFFERS", "NOT_ANNOUNCED_NOT_FOUND", "LOST", "EFFECT_LATE"}


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def halves(**asked: Any) -> SmallEvidence:
    """Three halves that took effect, one that was lost, one that was rolled back, one that nobody knows any more, one
    that was given up, and one that was repaired."""
    evidence = SmallEvidence(subscriptions=[asked_for(of_halves=True, **asked)], outboxes=[])
    evidence.add("snapshot")
    for number in (1, 2, 3):
        evidence.add("announced", key(number))
        evidence.add("inbox", key(number))
        evidence.add("consumed", key(number))
        evidence.add("effects", key(number))
    evidence.add("announced", key(4))
    evidence.add("candidate", key(4), state="OPEN", verdict="LOST_CONFIRM")
    evidence.add("announced", key(5))
    evidence.add("left", key(5), reason="SETTLED")
    evidence.add("announced", key(6))
    evidence.add("announced", key(7))
    evidence.add("candidate", key(7), state="QUARANTINED", verdict="DEAD_LETTERED")
    evidence.add("announced", key(8))
    evidence.add("candidate", key(8), state="SETTLED", verdict="CONSUMED")
    evidence.add("repair", key(8))
    evidence.add("inbox", key(8), applied_at_ms=START_MS + 95_000)
    return evidence


def judged(evidence: SmallEvidence, folder: Path) -> JudgedWindow:
    evidence.write(folder)
    return judge_here(folder)


def counted(found: JudgedWindow) -> dict[str, int]:
    return {name: found.classes[name] for name in NAMES if found.classes[name]}


def test_no_half_is_called_committed_or_rejected_and_the_answer_says_of_what_it_is(tmp_path: Path) -> None:
    found = judged(halves(), tmp_path)
    assert counted(found) == {"UNACCOUNTED": 1, "QUARANTINED": 1, "REPAIRED": 1, "EFFECT_IN_TIME": 3}
    assert {one.class_name for one in found.not_checked} == OF_COMMITS
    assert {str(one.why) for one in found.not_checked} == {
        "half messages announce, and no outbox tells which of them were committed"
    }
    (note,) = (note for note in found.notes if "halves of the window" in note)
    assert note.startswith(f"{TOPIC}/{GROUP}: the answer is of the halves of the window that were read")
    assert note.endswith("2 halves without a known effect are in no class")


def test_a_statement_says_that_it_is_of_halves_and_any_other_one_does_not(tmp_path: Path) -> None:
    def stated(evidence: SmallEvidence, name: str) -> dict[str, object]:
        result = result_document(judged(evidence, tmp_path / name), "UTC", "here")
        return statement_document(result, result["subscriptions"][0], outputs=(), previous=None, signed_by=None)

    assert stated(halves(), "halves")["of_halves"] is True
    whole = SmallEvidence()
    whole.story(key(1))
    document = stated(whole, "whole")
    assert b"of_halves" not in canonical(document)


def test_without_inbox_and_effects_the_ledger_is_enough_for_what_it_can_tell(tmp_path: Path) -> None:
    evidence = halves(inbox=False, effects=False)
    for name in ("inbox", "effects"):
        evidence.rows.pop(name)
    found = judged(evidence, tmp_path)
    assert counted(found) == {"UNACCOUNTED": 1, "QUARANTINED": 1}
    assert {one.class_name for one in found.not_checked} >= OF_COMMITS | {"REPAIRED", "EFFECT_IN_TIME", "DOUBLE_EFFECT"}
    (note,) = (note for note in found.notes if "halves of the window" in note)
    assert note.endswith("6 halves without a known effect are in no class")


def test_without_anything_that_tells_what_became_of_halves_there_is_no_answer(tmp_path: Path) -> None:
    evidence = halves(inbox=False, effects=False)
    for name in ("inbox", "effects", "candidate", "repair"):
        evidence.rows.pop(name, None)
    evidence.ledger = False
    with pytest.raises(AuditError, match="what became of its halves") as refused:
        judged(evidence, tmp_path)
    assert refused.value.reason == "inputs"


def test_an_outbox_that_is_given_all_the_same_tells_what_was_committed(tmp_path: Path) -> None:
    evidence = halves()
    evidence.outboxes = ["shop"]
    for number in range(1, 9):
        if number != 5:
            evidence.add("outbox", key(number))
    found = judged(evidence, tmp_path)
    assert (found.classes["LOST"], found.classes["REJECTED"], found.not_checked) == (1, 1, ())
    assert [one.subscription.of_halves for one in found.subscriptions] == [False]
    assert not [note for note in found.notes if "halves of the window" in note]


def test_the_settings_say_which_subscriptions_are_of_halves(tmp_path: Path) -> None:
    file = tmp_path / "reconciler.toml"

    def read(announcements: str) -> bool:
        file.write_text(f"""
            environment = "test"
            [[producers]]
            group = "shop"
            topics = ["ORDERS"]
            commit_queries = "queries.toml"
            [[subscriptions]]
            topic = "ORDERS"
            group = "billing"
            {announcements}
            """)
        (one,) = read_configuration(file, {}).subscriptions
        return one.of_halves

    assert not read("")
    assert not read('announcements = "unique_key_topic"')
    assert read('announcements = "half_topic"')
    with pytest.raises(AuditError, match="announcements = 'halves': expected one of unique_key_topic, half_topic"):
        read('announcements = "halves"')
