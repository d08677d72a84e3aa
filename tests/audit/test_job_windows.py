"""Windows and their edges: every key in exactly one of two neighbouring windows, and windows of no or one row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.audit.collect.window import parse_window
from reconciler.audit.engines.job import judge_here
from reconciler.audit.result.classes import NAMES
from reconciler.contract.unique_key import key_of
from reconciler.contract.verdicts import STILL_DELIVERED, Verdict, what_ends
from reconciler.words import said
from tests.audit.small_evidence import AS_OF_MS, END_MS, GROUP, LATE_MS, START_MS, TOPIC, SmallEvidence, subscription

DAY_MS = 86_400_000


def test_an_empty_window_is_clean_and_counts_nothing(tmp_path: Path) -> None:
    found = judge_here(SmallEvidence().write(tmp_path))
    assert found.verdict == "clean"
    assert found.classes == dict.fromkeys(NAMES, 0)
    assert found.subscriptions[0].volume == ()
    assert found.subscriptions[0].latencies == {}


@pytest.mark.parametrize("key", [bytes(16), bytes(17), bytes(28), bytes(32), b"\xff" * 32])
def test_a_window_of_one_row(tmp_path: Path, key: bytes) -> None:
    evidence = SmallEvidence()
    evidence.add("snapshot")
    evidence.add("outbox", key)
    [finding] = judge_here(evidence.write(tmp_path)).findings
    assert finding.key == key.hex().upper()


@pytest.mark.parametrize(
    ("at_ms", "belongs"), [(START_MS - 1, False), (START_MS, True), (END_MS - 1, True), (END_MS, False)]
)
@pytest.mark.parametrize("seen", ["outbox", "announced", "inbox", "candidate"])
def test_a_key_belongs_from_the_first_millisecond_to_before_the_last(
    tmp_path: Path, at_ms: int, belongs: bool, seen: str
) -> None:
    evidence = SmallEvidence()
    column = {
        "outbox": "created_at_ms",
        "announced": "at_ms",
        "inbox": "applied_at_ms",
        "candidate": "first_seen_ms",
    }[seen]
    evidence.add(seen, b"k" * 16, **{column: at_ms})
    if seen == "outbox":
        evidence.add("announced", b"k" * 16, at_ms=at_ms + LATE_MS)
    assert judge_here(evidence.write(tmp_path)).subscriptions[0].keys == belongs


@pytest.mark.parametrize(
    ("written_ms", "seen_ms", "belongs"),
    [
        (START_MS - 1, START_MS + LATE_MS - 1, False),  # in time for its own window's audit
        (START_MS - 1, START_MS + LATE_MS, True),
        (START_MS - DAY_MS, START_MS + LATE_MS, True),
        (START_MS - DAY_MS - 1, START_MS + LATE_MS, False),  # longer than any transaction: announced again
        (END_MS - 1, END_MS + LATE_MS - 1, True),
        (END_MS - 1, END_MS + LATE_MS, False),
        (START_MS - 2 * LATE_MS - 1, None, False),
        (START_MS - 2 * LATE_MS, None, True),
        (END_MS - 2 * LATE_MS - 1, None, True),
        (END_MS - 2 * LATE_MS, None, False),
        # First seen longer after than any transaction lasts: where the audits before counted it, which had not seen it.
        (START_MS - 2 * LATE_MS - 1, START_MS - LATE_MS + DAY_MS, False),
        (START_MS - 2 * LATE_MS, START_MS - LATE_MS + DAY_MS + 1, True),
        (END_MS - 2 * LATE_MS, END_MS - LATE_MS + DAY_MS + 1, False),
    ],
)
def test_a_commit_that_was_seen_late_belongs_to_the_window_that_can_see_it(
    tmp_path: Path, written_ms: int, seen_ms: int | None, belongs: bool
) -> None:
    evidence = SmallEvidence()
    evidence.add("snapshot")
    evidence.add("outbox", b"k" * 16, created_at_ms=written_ms)
    if seen_ms is not None:
        evidence.add("announced", b"k" * 16, at_ms=seen_ms)
        evidence.add("candidate", b"k" * 16, first_seen_ms=seen_ms)
    found = judge_here(evidence.write(tmp_path))
    assert found.subscriptions[0].keys == belongs
    assert (found.verdict == "violations") is belongs  # lost: not announced, or still open


def test_a_late_commit_is_named_with_both_times_where_it_is_counted(tmp_path: Path) -> None:
    """The answer about the window of its row was given without it, and stays as it is."""
    evidence = SmallEvidence()
    for number in range(25):
        key = number.to_bytes(16, "big")
        evidence.story(key, created_at_ms=START_MS - 1)
        for table, column in (("announced", "at_ms"), ("inbox", "applied_at_ms"), ("consumed", "at_ms")):
            evidence.rows[table][-1][column] = START_MS + LATE_MS + number
    evidence.add("outbox", b"u" * 16, created_at_ms=END_MS - 1)
    found = judge_here(evidence.write(tmp_path))
    assert found.classes["EFFECT_LATE"] == found.subscriptions[0].keys == 25
    assert found.findings[3].evidence["committed_at_ms"] == START_MS - 1
    assert found.findings[3].evidence["counted_at_ms"] == START_MS + 3
    late, unseen = (note for note in found.notes if note.startswith(f"{TOPIC}/{GROUP}: "))
    assert "written before the window, first seen late or not at all, and counted here: 25 (" in late
    assert late.endswith(f"{(19).to_bytes(16, 'big').hex().upper()} and 5 more)")
    assert unseen.endswith(f"and counted in the next window: 1 ({(b'u' * 16).hex().upper()})")


def test_evidence_after_the_window_counts_for_keys_of_the_window(tmp_path: Path) -> None:
    """An effect just after the end must not make its key a loss."""
    evidence = SmallEvidence()
    evidence.story(b"k" * 16, created_at_ms=END_MS - 1)
    for table, column in (("inbox", "applied_at_ms"), ("announced", "at_ms"), ("consumed", "at_ms")):
        evidence.rows[table][0][column] = END_MS + 2000
    assert judge_here(evidence.write(tmp_path)).classes["EFFECT_IN_TIME"] == 1


def test_a_committed_key_of_an_earlier_window_is_not_judged_again(tmp_path: Path) -> None:
    evidence = SmallEvidence()
    evidence.story(b"k" * 16, created_at_ms=START_MS - 1)
    assert judge_here(evidence.write(tmp_path)).subscriptions[0].keys == 0


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2026-03-29[Europe/Berlin]/2026-03-30[Europe/Berlin]", 23),
        ("2026-10-25[Europe/Berlin]/2026-10-26[Europe/Berlin]", 25),
        ("2026-12-31T12:00Z/2027-01-01T12:00Z", 24),
    ],
)
def test_every_hour_of_a_day_of_changing_clocks_and_of_the_years_end_is_counted_once(
    tmp_path: Path, text: str, hours: int
) -> None:
    window = parse_window(text)
    later_ms = window.end_ms + 3_600_000
    evidence = SmallEvidence(
        start_ms=window.start_ms, end_ms=window.end_ms, as_of_ms=later_ms, collected_at_ms=later_ms
    )
    for number, at_ms in enumerate(range(window.start_ms, window.end_ms, 1_800_000)):
        evidence.story(number.to_bytes(16, "big"), created_at_ms=at_ms)
        evidence.rows["inbox"][-1]["applied_at_ms"] = at_ms + 100
        for stream in ("announced", "consumed"):
            evidence.rows[stream][-1]["at_ms"] = at_ms + 5000
    found = judge_here(evidence.write(tmp_path))
    assert found.verdict == "clean"
    [one] = found.subscriptions
    assert [hour.hour_start_ms for hour in one.volume] == [window.start_ms + hour * 3_600_000 for hour in range(hours)]
    assert {tuple(hour.classes.items()) for hour in one.volume} == {(("EFFECT_IN_TIME", 2),)}
    assert datetime.fromtimestamp(one.volume[0].hour_start_ms / 1000, tz=UTC).minute == 0


def test_each_group_of_a_topic_is_judged_for_itself(tmp_path: Path) -> None:
    evidence = SmallEvidence(subscriptions=[subscription(), subscription(group="mail"), subscription("RETURNS")])
    evidence.story(b"k" * 16)
    found = {
        (one.subscription.topic, one.subscription.group): {name for name, keys in one.classes.items() if keys}
        for one in judge_here(evidence.write(tmp_path)).subscriptions
    }
    assert found == {
        (TOPIC, GROUP): {"EFFECT_IN_TIME"},
        (TOPIC, "mail"): {"NOT_ANNOUNCED_NOT_FOUND"},
        ("RETURNS", GROUP): set(),
    }


def test_a_topic_that_got_another_name_in_the_window_is_two_and_no_key_is_in_both(tmp_path: Path) -> None:
    """And where the old name is asked about no more, its rows are told, not taken for the new one's."""
    names = [subscription(), subscription("ORDERS-2")]
    for place, asked in enumerate((names, names[1:])):
        evidence = SmallEvidence(subscriptions=asked)
        evidence.story(b"a" * 16)
        evidence.story(b"b" * 16)
        for rows in evidence.rows.values():
            rows[1]["topic"] = "ORDERS-2"
        found = judge_here(evidence.write(tmp_path / str(place)))
        assert {one.subscription.topic: one.classes["EFFECT_IN_TIME"] for one in found.subscriptions} == {
            one["topic"]: 1 for one in asked
        }
        old = {(one.table, one.topic, one.group): one.rows for one in found.not_judged.listed}
        told = {("outbox", TOPIC, "shop"): 1, ("inbox", TOPIC, GROUP): 1, ("effects", TOPIC, GROUP): 1}
        assert old == (told if place else {})


@pytest.mark.parametrize("verdict", sorted(STILL_DELIVERED))
def test_a_message_that_the_broker_still_delivers_is_lost_so_far_and_audit_and_explain_say_both(
    tmp_path: Path, verdict: Verdict
) -> None:
    evidence = SmallEvidence()
    for key, state in ((bytes(16), "OPEN"), (bytes([1]) * 16, "SETTLED")):
        evidence.add("outbox", key)
        evidence.add("announced", key)
        evidence.add("candidate", key, verdict=verdict, state=state)
    found = judge_here(evidence.write(tmp_path / "while it is delivered"))
    assert (found.classes["LOST"], found.verdict) == (2, "violations")
    (told,) = (note for note in found.notes if f"as {verdict}:" in note)
    assert told.startswith(f"{TOPIC}/{GROUP}: 1 of the listed LOST: ")
    assert "counts it as LOST" in said(what_ends(verdict, key_of(bytes(16))))
    evidence.add("inbox", bytes(16), applied_at_ms=AS_OF_MS + 1)
    late = judge_here(evidence.write(tmp_path / "once it took effect"))
    assert (late.classes["LOST"], late.classes["EFFECT_LATE"]) == (1, 1)
    assert not any(f"as {verdict}:" in note for note in late.notes)
