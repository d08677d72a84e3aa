"""One planted accident of each class, in an otherwise clean window: it is found once, and its rule is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.audit.engines.job import judge_here
from reconciler.audit.judge.rules import CONDITIONS
from reconciler.audit.result.classes import BY_NAME, NAMES, RULES, VIOLATIONS, KeyClass
from reconciler.audit.result.values import JudgedWindow
from tests.audit.reference_judge import judged
from tests.audit.small_evidence import AS_OF_MS, END_MS, GROUP, LATE_MS, SKEW_MS, START_MS, TOPIC, SmallEvidence
from tests.audit.small_evidence import subscription as asked_for

KEY = bytes.fromhex("00FF00112233445566778899AABBCC00")
DIGEST_A, DIGEST_B = b"a" * 32, b"b" * 32

Plant = Callable[[SmallEvidence], None]


def clean() -> SmallEvidence:
    """Two hundred messages as they should be, one snapshot at the end."""
    evidence = SmallEvidence()
    evidence.add("snapshot")
    for number in range(200):
        evidence.story(number.to_bytes(16, "big"))
    return evidence


def plant_incomplete(e: SmallEvidence) -> None:
    """Whatever else is known of the key: a repair, two effects in the business tables, a verdict."""
    e.story(KEY)
    e.rows["inbox"][-1]["incomplete"] = "4711"
    e.add("effects", KEY, effects=2)
    e.add("repair", KEY, sent_at_ms=END_MS)
    e.add("candidate", KEY, state="QUARANTINED", verdict="INCOMPLETE")


def plant_without_commit(e: SmallEvidence) -> None:
    e.add("inbox", KEY)


def plant_after_rollback(e: SmallEvidence) -> None:
    e.story(KEY, state="ROLLED_BACK")


def plant_double(e: SmallEvidence) -> None:
    e.story(KEY)
    e.rows["effects"][-1]["effects"] = 2


def plant_differs(e: SmallEvidence) -> None:
    e.story(KEY, content_digest=DIGEST_A)
    e.rows["inbox"][-1].update(content_digest=DIGEST_B, applied_at_ms=START_MS + 95_000)
    e.add("repair", KEY)


def plant_unnecessary(e: SmallEvidence) -> None:
    e.story(KEY)
    e.add("repair", KEY, sent_at_ms=START_MS + 2000 + SKEW_MS + 1)


def plant_unannounced(e: SmallEvidence) -> None:
    e.add("outbox", KEY, state="NEW")


def plant_unaccounted(e: SmallEvidence) -> None:
    e.add("outbox", KEY)
    e.add("announced", KEY)


def plant_lost(e: SmallEvidence) -> None:
    plant_unaccounted(e)
    e.add("pending", KEY)


def plant_quarantined(e: SmallEvidence) -> None:
    plant_unaccounted(e)
    e.add("candidate", KEY, state="QUARANTINED", verdict="DEAD_LETTERED")


def plant_dismissed(e: SmallEvidence) -> None:
    plant_unaccounted(e)
    e.add("candidate", KEY, state="SETTLED", verdict="DEAD_LETTERED")


def plant_repaired(e: SmallEvidence) -> None:
    e.story(KEY)
    e.rows["inbox"][-1]["applied_at_ms"] = START_MS + 92_000
    e.add("repair", KEY)


def plant_late(e: SmallEvidence) -> None:
    e.story(KEY)
    e.rows["inbox"][-1]["applied_at_ms"] = START_MS + 1000 + LATE_MS + 1


def plant_in_time(e: SmallEvidence) -> None:
    e.story(KEY)


def plant_filtered(e: SmallEvidence) -> None:
    e.subscriptions = [asked_for(tags=["paid"])]
    for row in e.rows["outbox"]:
        row["tag"] = "paid"
    e.add("outbox", KEY, tag="audit")


def plant_not_taken(e: SmallEvidence) -> None:
    """A process died between taking the key out of pending and telling the history."""
    plant_filtered(e)
    e.add("announced", KEY)


def plant_rejected(e: SmallEvidence) -> None:
    plant_unaccounted(e)
    e.rows["outbox"].pop()
    e.add("candidate", KEY, state="SETTLED", verdict="REJECTED")


def plant_rolled_back(e: SmallEvidence) -> None:
    e.add("outbox", KEY, state="ROLLED_BACK")


def plant_pending(e: SmallEvidence) -> None:
    e.subscriptions = [asked_for(grace_period_seconds=7200.0)]
    e.add("outbox", KEY, created_at_ms=END_MS - 1)
    e.add("announced", KEY, at_ms=END_MS)
    e.add("pending", KEY)


PLANTS: list[tuple[KeyClass, Plant]] = [
    (KeyClass.EFFECT_INCOMPLETE, plant_incomplete),
    (KeyClass.EFFECT_WITHOUT_COMMIT, plant_without_commit),
    (KeyClass.EFFECT_WITHOUT_COMMIT, plant_after_rollback),
    (KeyClass.DOUBLE_EFFECT, plant_double),
    (KeyClass.REPAIR_DIFFERS, plant_differs),
    (KeyClass.UNNECESSARY_REPAIR, plant_unnecessary),
    (KeyClass.NOT_ANNOUNCED_NOT_FOUND, plant_unannounced),
    (KeyClass.UNACCOUNTED, plant_unaccounted),
    (KeyClass.LOST, plant_lost),
    (KeyClass.QUARANTINED, plant_quarantined),
    (KeyClass.QUARANTINED, plant_dismissed),
    (KeyClass.REPAIRED, plant_repaired),
    (KeyClass.EFFECT_LATE, plant_late),
    (KeyClass.EFFECT_IN_TIME, plant_in_time),
    (KeyClass.FILTERED, plant_filtered),
    (KeyClass.FILTERED, plant_not_taken),
    (KeyClass.REJECTED, plant_rejected),
    (KeyClass.ROLLED_BACK, plant_rolled_back),
    (KeyClass.PENDING, plant_pending),
]


def outcome(evidence: SmallEvidence, folder: Path) -> JudgedWindow:
    return judge_here(evidence.write(folder))


def test_the_list_its_numbers_and_its_conditions_are_the_same_in_one_order() -> None:
    assert NAMES == tuple(KeyClass) == tuple(CONDITIONS)
    assert [rule.number for rule in RULES] == list(range(1, len(NAMES) + 1))
    assert [rule.name for rule in RULES if rule.violation] == list(KeyClass)[:8]
    assert {name for name, _ in PLANTS} == set(KeyClass)


def test_a_clean_window_has_no_finding(tmp_path: Path) -> None:
    found = outcome(clean(), tmp_path)
    assert found.verdict == "clean"
    assert found.verdict == "clean"
    assert found.findings == ()
    assert found.classes == {**dict.fromkeys(NAMES, 0), "EFFECT_IN_TIME": 200}
    assert found.not_checked == ()


@pytest.mark.promise("U1")
@pytest.mark.parametrize(("name", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
def test_one_planted_key_is_in_its_class_and_nothing_else_moves(tmp_path: Path, name: KeyClass, plant: Plant) -> None:
    evidence = clean()
    plant(evidence)
    found = outcome(evidence, tmp_path)
    expected = dict.fromkeys(NAMES, 0)
    expected["EFFECT_IN_TIME"] = 200
    expected[name] += 1
    assert found.classes == expected
    assert judged(evidence)[TOPIC, GROUP][KEY] == name
    assert found.verdict == ("violations" if name in VIOLATIONS else "clean")
    rule = BY_NAME[name]
    assert [(f.class_name, f.key, f.topic, f.group, f.rule) for f in found.findings] == (
        [(name, KEY.hex().upper(), TOPIC, GROUP, rule.text)] if rule.listed else []
    )


def test_findings_carry_the_facts_that_made_the_rule_match(tmp_path: Path) -> None:
    evidence = clean()
    plant_differs(evidence)
    [finding] = outcome(evidence, tmp_path).findings
    assert finding.evidence == {
        "committed_at_ms": START_MS + 1000,
        "outbox_state": "ANNOUNCED",
        "producer_group": "shop",
        "announced_at_ms": START_MS + 5000,
        "consumed_at_ms": START_MS + 5000,
        "applied_at_ms": START_MS + 95_000,
        "source": "consumer",
        "effects": 1,
        "repair_scope": "*",
        "repair_rung": "end",
        "repair_state": "DONE",
        "repair_attempts": 1,
        "repair_created_at_ms": START_MS + 90_000,
        "repair_first_sent_ms": START_MS + 91_000,
        "outbox_digest": DIGEST_A.hex(),
        "inbox_digest": DIGEST_B.hex(),
        "as_of_ms": AS_OF_MS,
    }


def test_an_effect_is_not_without_commit_where_a_producers_outbox_was_not_given(tmp_path: Path) -> None:
    evidence = clean()
    evidence.subscriptions = [asked_for(producer_groups=["shop", "returns"])]
    plant_without_commit(evidence)
    found = outcome(evidence, tmp_path)
    assert found.classes["EFFECT_WITHOUT_COMMIT"] == 0
    assert found.classes["EFFECT_IN_TIME"] == 201
    assert {item.class_name for item in found.not_checked} == {
        "EFFECT_WITHOUT_COMMIT",
        "NOT_ANNOUNCED_NOT_FOUND",
        "LOST",
    }


def test_a_content_digest_that_is_not_known_differs_from_nothing(tmp_path: Path) -> None:
    evidence = clean()
    plant_differs(evidence)
    evidence.rows["inbox"][-1]["content_digest"] = None
    assert outcome(evidence, tmp_path).classes["REPAIRED"] == 1


def test_the_digest_of_a_tombstone_is_compared_with_nothing(tmp_path: Path) -> None:
    evidence = clean()
    plant_differs(evidence)
    evidence.rows["outbox"][-1]["content_digest"] = None
    evidence.add("outbox", KEY, state="ROLLED_BACK", content_digest=DIGEST_A)
    assert outcome(evidence, tmp_path).classes["REPAIRED"] == 1


@pytest.mark.parametrize(
    ("repair", "name", "count"),
    [
        pytest.param({"sent_at_ms": START_MS + 2000 + SKEW_MS}, "REPAIRED", 1, id="later by the skew bound only"),
        pytest.param({"attempts": 2, "sent_at_ms": START_MS + 900_000}, "UNNECESSARY_REPAIR", 0, id="second send"),
        pytest.param({"attempts": 0, "sent_at_ms": None, "state": "OPEN"}, "EFFECT_IN_TIME", 201, id="never sent"),
    ],
)
def test_a_repair_was_necessary_unless_its_first_send_is_later_than_the_effect(
    tmp_path: Path, repair: dict[str, Any], name: str, count: int
) -> None:
    evidence = clean()
    evidence.story(KEY)
    evidence.add("repair", KEY, **repair)
    assert outcome(evidence, tmp_path).classes[name] == count


def test_a_snapshot_read_before_the_round_in_one_life_of_redis_accuses_nobody(tmp_path: Path) -> None:
    """Its time is taken before it is read, the round's too: by the clock alone the key would be missing from it."""
    evidence = clean()
    evidence.add("outbox", KEY, created_at_ms=END_MS - 1)
    evidence.add("announced", KEY, at_ms=AS_OF_MS - 2000, generation=10)
    assert outcome(evidence, tmp_path).classes["UNACCOUNTED"] == 0


def test_an_announced_key_without_a_later_snapshot_is_accounted_for(tmp_path: Path) -> None:
    evidence = clean()
    evidence.rows["snapshot"][0]["at_ms"] = START_MS + 5000
    plant_unaccounted(evidence)
    found = outcome(evidence, tmp_path)
    assert found.classes["UNACCOUNTED"] == 0
    assert found.classes["LOST"] == 1


def test_a_shard_at_rest_has_nothing_pending_so_what_never_left_it_is_not_accounted_for(tmp_path: Path) -> None:
    evidence = clean()
    evidence.rows["snapshot"].clear()
    plant_unaccounted(evidence)
    for minute in (2, 3, 4):
        evidence.add("snapshot", kind="AT_REST", generation=1, at_ms=START_MS + minute * 60_000)
    assert outcome(evidence, tmp_path).classes["UNACCOUNTED"] == 1


@pytest.mark.parametrize("is_of_another_life", [True, False])
def test_a_snapshot_of_another_life_of_redis_says_nothing_of_what_was_announced_before(
    tmp_path: Path, *, is_of_another_life: bool
) -> None:
    """Redis lost its memory and the snapshot was taken before the announcements were read again."""
    evidence = clean()
    if is_of_another_life:
        evidence.rows["snapshot"].clear()
    times: dict[str, Any] = {} if is_of_another_life else {"at_ms": AS_OF_MS - 2000}
    evidence.add("snapshot", epoch="e2", generation=1, **times)
    evidence.story(KEY)
    evidence.rows["consumed"].pop()
    assert outcome(evidence, tmp_path).classes["UNACCOUNTED"] == (0 if is_of_another_life else 1)


def test_a_snapshot_taken_while_rounds_ran_that_redis_lost_accuses_nobody_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    evidence = clean()
    evidence.add("snapshot", epoch="e1", generation=2, at_ms=START_MS + 15_000)
    evidence.rows["snapshot"].pop(0)
    evidence.story(KEY)
    evidence.rows["consumed"].pop()
    assert outcome(evidence, tmp_path / "before").classes["UNACCOUNTED"] == 1
    evidence.add("reread")
    found = outcome(evidence, tmp_path / "after")
    assert found.classes["UNACCOUNTED"] == 0
    [told] = [one for one in found.not_checked if one.class_name == "UNACCOUNTED"]
    assert "Redis lost its memory" in told.why
    assert found.no_answer is None


def test_an_effect_is_none_because_rounds_after_a_loss_took_its_consumption(tmp_path: Path) -> None:
    """What the reconciler puts together again is its own account; commits and effects are asked of the databases."""
    evidence = clean()
    evidence.add("reread")
    evidence.add("outbox", KEY)
    evidence.add("announced", KEY, epoch="e2", at_ms=START_MS + 20_000)
    evidence.add("consumed", KEY, epoch="e2", at_ms=START_MS + 20_000)
    found = outcome(evidence, tmp_path)
    assert (found.classes["LOST"], found.no_answer) == (1, None)


def test_times_of_rounds_are_not_counted_across_rounds_that_redis_lost(tmp_path: Path) -> None:
    evidence = clean()
    evidence.story(KEY)
    for stream in ("announced", "consumed"):
        evidence.rows[stream][-1].update(epoch="e2", at_ms=START_MS + 30_000)
    [before] = outcome(evidence, tmp_path / "before").subscriptions
    assert before.latencies["commit_to_announced"].largest_ms == 29_000
    evidence.add("reread")
    [after] = outcome(evidence, tmp_path / "after").subscriptions
    assert after.latencies["commit_to_announced"].largest_ms < 20_000
    counts = [one.latencies["commit_to_effect"].count for one in (before, after)]
    assert counts[0] == counts[1], "the effect's time is the inbox's"
