"""Evidence that is not to be believed: each ends in a message that names it, never in an answer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError, Reason
from reconciler.audit.result.values import BUSINESS_ID
from reconciler.contract.evidence_layout import EVIDENCE_TABLES, EVIDENCE_VERSION, LATER_COLUMNS
from reconciler.contract.history_row import prefix_of
from tests.audit.small_evidence import (
    AS_OF_MS,
    END_MS,
    GROUP,
    LATE_MS,
    START_MS,
    STREAMS,
    TOPIC,
    Row,
    SmallEvidence,
    described,
    of_all_prefixes,
    read_document,
    seal_again,
    subscription,
    write_document,
)

Damage = Callable[[Path], None]
KEYS = [number.to_bytes(16, "big") for number in range(64)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    evidence = SmallEvidence()
    evidence.add("snapshot")
    evidence.add("gate")
    for key in KEYS:
        evidence.story(key, content_digest=b"d" * 32)
        evidence.add("candidate", key, state="SETTLED", verdict="CONSUMED")
        evidence.add("verdict", key)
    evidence.add("repair", KEYS[0], sent_at_ms=None, attempts=0)
    return evidence.write(tmp_path / "evidence")


def refused(folder: Path) -> tuple[Reason, str]:
    with pytest.raises(AuditError) as raised:
        judge_here(folder)
    return raised.value.reason, str(raised.value)


def first(folder: Path, table: str) -> str:
    return str(sorted((folder / table).rglob("*.parquet"))[0].relative_to(folder))


def changed(folder: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> str:
    """The first file of a table, rewritten with a digest that fits: only its contents are wrong."""
    path = first(folder, table)
    seal_again(folder, path, change(pq.ParquetFile(folder / path).read()))
    return path


def with_column(name: str, values: Callable[[int], pa.Array]) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.schema.get_field_index(name), name, values(table.num_rows))


@pytest.mark.parametrize(
    "table",
    ["outbox", "inbox", "effects", "candidate", "repair"]
    + [f"history/{name}" for name in ("announced", "consumed", "verdict", "gate", "snapshot", "round")],
)
@pytest.mark.parametrize(
    "how", ["truncated", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("altered", "missing"))]
)
def test_a_damaged_file_of_any_table_is_named(folder: Path, table: str, how: str) -> None:
    path = first(folder, table)
    data = (folder / path).read_bytes()
    if how == "missing":
        (folder / path).unlink()
    else:
        flipped = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        (folder / path).write_bytes(data[:-5] if how == "truncated" else flipped)
    reason, message = refused(folder)
    assert reason == "inputs"
    assert path.removeprefix("history/") in message


@pytest.mark.timeout(120)  # whoever opens a FIFO waits for ever
@pytest.mark.parametrize(
    "path", ["evidence.json", "history/manifest/environment=test/000000000001.json", "history/round", "inbox"]
)
def test_what_is_no_regular_file_keeps_no_reader_waiting(folder: Path, path: str) -> None:
    named = path if path.endswith(".json") else first(folder, path)
    (folder / named).unlink()
    os.mkfifo(folder / named)
    reason, message = refused(folder)
    assert (reason, named.removeprefix("history/") in message) == ("inputs", True)


def test_a_damaged_file_of_rounds_that_no_rule_needs_is_named(tmp_path: Path) -> None:
    hour_ms = 3_600_000
    start_ms = START_MS + 6 * hour_ms
    evidence = SmallEvidence(start_ms=start_ms, end_ms=start_ms + hour_ms, as_of_ms=AS_OF_MS + 6 * hour_ms)
    evidence.collected_at_ms = evidence.as_of_ms
    times_ms = (START_MS - hour_ms, start_ms - 1000, evidence.as_of_ms)
    for generation, at_ms in enumerate(times_ms, start=1):
        evidence.add("round", generation=generation, at_ms=at_ms)
    folder = evidence.write(tmp_path / "evidence")
    assert judge_here(folder).verdict == "clean"
    path = first(folder, "history/round")
    (folder / path).write_bytes((folder / path).read_bytes()[:-5])
    reason, message = refused(folder)
    assert (reason, path.removeprefix("history/") in message) == ("inputs", True)


def test_a_history_that_was_copied_elsewhere_gives_the_same_answer(folder: Path, tmp_path: Path) -> None:
    before = judge_here(folder)
    (folder / "history").rename(tmp_path / "copy")
    assert judge_here(folder, history=str(tmp_path / "copy")) == before
    assert refused(folder)[0] == "inputs"


def test_a_topic_and_group_that_nobody_asked_about_is_told_and_changes_no_count(tmp_path: Path) -> None:
    evidence = SmallEvidence()
    evidence.story(KEYS[1])
    evidence.rows["round"] = evidence.rounds()
    for at_ms, group in ((START_MS + 1, "shipping"), (END_MS, "later"), (START_MS - 1, "earlier")):
        evidence.add("round", consumer_group=group, generation=1, at_ms=at_ms)
    judged = judge_here(evidence.write(tmp_path / "evidence"))
    assert judged.verdict == "clean"
    told = [note for note in judged.notes if "not asked about" in note]
    assert len(told) == 1
    assert "ORDERS/shipping, which" in told[0]


def test_a_file_of_another_window_is_named(folder: Path, tmp_path: Path) -> None:
    other = SmallEvidence()
    for key in KEYS:
        other.add("inbox", key, applied_at_ms=END_MS + 5)
    path = first(other.write(tmp_path / "other"), "inbox")
    (folder / path).write_bytes((tmp_path / "other" / path).read_bytes())
    reason, message = refused(folder)
    assert (reason, path in message) == ("inputs", True)


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        ("outbox", lambda t: t.drop_columns(["created_at_ms"]), "no column `created_at_ms`"),
        ("outbox", with_column("created_at_ms", lambda n: pa.array(["noon"] * n)), "has the type string"),
        ("outbox", with_column("created_at_ms", lambda n: pa.nulls(n, pa.int64())), "NULLs"),
        ("outbox", with_column("state", lambda n: pa.array(["UNDECIDED"] * n)), "'UNDECIDED'"),
        ("candidate", with_column("state", lambda n: pa.array(["FORGIVEN"] * n)), "'FORGIVEN'"),
        ("repair", with_column("state", lambda n: pa.array(["WAITING"] * n)), "'WAITING'"),
        ("inbox", with_column("key", lambda n: pa.array([b"x" * 66] * n)), "66 bytes"),
        ("inbox", with_column("key", lambda n: pa.array([b""] * n)), "0 to 0 bytes"),
        ("outbox", with_column("created_at_ms", lambda n: pa.array([START_MS * 1000] * n)), "no time in milliseconds"),
        ("inbox", with_column("applied_at_ms", lambda n: pa.array([-1] * n)), "no time in milliseconds"),
    ],
)
def test_a_file_of_another_schema_is_named_with_its_column(
    folder: Path, table: str, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    path = changed(folder, table, change)
    reason, message = refused(folder)
    assert reason == "inputs"
    assert path in message
    assert told in message


def test_one_key_in_the_file_of_another_prefix_is_told(folder: Path) -> None:
    """It would be judged without its other rows: a loss that is none, or none where there is one."""
    stray = next(key for key in KEYS if prefix_of(key) != prefix_of(KEYS[0]))
    path = f"outbox/prefix={prefix_of(KEYS[0]):02d}/part-0.parquet"
    table = pq.ParquetFile(folder / path).read()
    row = table.slice(0, 1)
    stray_row = with_column("key", lambda n: pa.array([stray] * n))(row).cast(table.schema)
    seal_again(folder, path, pa.concat_tables([table, stray_row]))
    reason, message = refused(folder)
    assert reason == "inputs"
    assert stray.hex().upper() in message
    assert f"outbox: files of prefix={prefix_of(KEYS[0]):02d}" in message


def test_names_that_are_no_utf8_are_told(folder: Path) -> None:
    raw = pa.array([b"\xff\xfe"]).cast(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    changed(folder, "outbox", with_column("tag", lambda n: pa.concat_arrays([text] * n)))
    assert refused(folder)[0] == "inputs"


def test_digests_of_another_length_are_refused_where_they_are_compared(folder: Path) -> None:
    path = changed(folder, "repair", with_column("attempts", lambda n: pa.array([1] * n, pa.int32())))
    outbox = next((folder / "outbox" / Path(path).parent.name).glob("*.parquet")).relative_to(folder)
    table = pq.ParquetFile(folder / outbox).read()
    seal_again(folder, str(outbox), with_column("content_digest", lambda n: pa.array([b"short"] * n))(table))
    reason, message = refused(folder)
    assert (reason, "digests" in message, str(outbox) in message) == ("inputs", True, True)


def flipped(folder: Path, path: str, groups: list[Row], place: int) -> None:
    """One bit of the file, at `place` from its start or its end."""
    data = bytearray((folder / path).read_bytes())
    data[place] ^= 1
    (folder / path).write_bytes(data)


def unnamed(folder: Path, path: str, groups: list[Row]) -> None:
    document = read_document(folder)
    document["files"][path]["rows"] -= groups.pop()["rows"]
    document["files"][path]["row_groups"] = groups
    write_document(folder, document)


def of_another_prefix(folder: Path, path: str, groups: list[Row]) -> None:
    document = read_document(folder)
    groups[0]["prefix"], groups[1]["prefix"] = groups[1]["prefix"], groups[0]["prefix"]
    document["files"][path]["row_groups"] = groups
    write_document(folder, document)


def missing(folder: Path, path: str, groups: list[Row]) -> None:
    (folder / path).unlink()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (partial(flipped, place=20), "inbox/part.parquet: is not the file that was collected"),
        (partial(flipped, place=-20), "inbox/part.parquet: is not the file that was collected"),
        (partial(flipped, place=-1), "inbox/part.parquet: is no readable Parquet file"),
        (unnamed, "inbox/part.parquet: has 64 rows, 6"),
        (of_another_prefix, "of other prefixes"),
        (missing, "inbox/part.parquet: is missing"),
    ],
)
def test_a_file_of_all_prefixes_is_believed_by_the_digests_of_its_row_groups_and_its_footer(
    folder: Path, damage: Callable[[Path, str, list[Row]], None], told: str
) -> None:
    of_all_prefixes(folder)
    damage(folder, "inbox/part.parquet", read_document(folder)["files"]["inbox/part.parquet"]["row_groups"])
    reason, message = refused(folder)
    assert (reason, told in message) == ("inputs", True), message


def test_rows_that_do_not_add_up_are_told(folder: Path) -> None:
    document = read_document(folder)
    path = first(folder, "inbox")
    document["files"][path]["rows"] += 1
    write_document(folder, document)
    reason, message = refused(folder)
    assert (reason, f"{path}: has" in message) == ("inputs", True)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("version", EVIDENCE_VERSION + 1, f"version {EVIDENCE_VERSION + 1}"),
        ("version", None, "version"),
        ("window", {"start_ms": 5, "end_ms": 5}, "window"),
        ("subscriptions", [], "at least one"),
        ("subscriptions", [subscription(), subscription()], "none twice"),
        ("subscriptions", [subscription(producer_groups=[])], "producer_groups"),
        ("subscriptions", [subscription(grace_period_seconds="1m")], "grace_period_seconds"),
        ("subscriptions", [subscription(late_after_seconds=1e308)], "late_after_seconds"),
        ("subscriptions", [subscription(grace_period_seconds=10**400)], "grace_period_seconds"),
        ("window", {"start_ms": 0, "end_ms": 1 << 64}, "window.end_ms"),
        ("collected_at_ms", -(10**4000), "collected_at_ms"),
        ("subscriptions", [subscription(inbox=False, effects=False)], "neither its inbox nor its effects"),
        ("outboxes", [], "nothing says what was committed"),
        ("shards", 0, "shards"),
        ("files", {"../outside/x.parquet": {"rows": 1, "sha256": ""}}, "relative path"),
        ("files", {"gossip/prefix=00/x.parquet": {"rows": 1, "sha256": ""}}, "gossip"),
        ("files", {"inbox/prefix=64/x.parquet": {"rows": 1, "sha256": ""}}, "prefix"),
        ("files", {"inbox/x.parquet": {"rows": 1, "sha256": ""}}, "row_groups"),
        ("files", {"inbox/x.parquet": {"rows": 1, "sha256": "", "footer_sha256": "", "row_groups": []}}, "1 rows"),
        ("files", {"inbox/x.parquet": {"rows": 1, "sha256": "", "row_groups": [{"prefix": 64}]}}, "below 64"),
    ],
)
def test_a_document_that_makes_no_sense_is_refused_with_its_field(
    folder: Path, field: str, value: Any, told: str
) -> None:
    write_document(folder, {**read_document(folder), field: value})
    reason, message = refused(folder)
    assert reason == "inputs"
    assert told in message


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 1', b"\xff\xfe", b"[" * 100_000])
def test_a_document_that_is_none_is_refused(folder: Path, content: bytes) -> None:
    (folder / "evidence.json").write_bytes(content)
    assert refused(folder)[0] == "inputs"


def test_a_folder_without_a_document_is_refused(tmp_path: Path) -> None:
    reason, message = refused(tmp_path)
    assert (reason, "evidence.json" in message) == ("inputs", True)


def test_unknown_fields_of_the_document_are_ignored(folder: Path) -> None:
    write_document(folder, {**read_document(folder), "weather": "fine"})
    assert judge_here(folder).verdict == "clean"


def test_a_gap_withholds_the_verdict_and_shows_what_was_found(tmp_path: Path) -> None:
    evidence = SmallEvidence()
    evidence.add("snapshot")
    evidence.add("outbox", KEYS[0])
    evidence.add("gap")
    found = judge_here(evidence.write(tmp_path))
    assert found.no_answer is not None
    assert (found.no_answer.reason, found.verdict) == ("gap", "no answer")
    assert [f.class_name for f in found.findings] == ["NOT_ANNOUNCED_NOT_FOUND"]
    assert found.gaps


def test_a_window_before_the_first_round_is_no_answer_although_it_holds_no_key(tmp_path: Path) -> None:
    """It was clean, with 0 keys: no evidence could have shown one."""
    evidence = SmallEvidence()
    evidence.add("round", generation=1, at_ms=END_MS + 1000)
    evidence.add("round", generation=2, at_ms=AS_OF_MS)
    found = judge_here(evidence.write(tmp_path))
    assert found.no_answer is not None
    assert (found.no_answer.reason, found.verdict) == ("gap", "no answer")
    assert "from 2026-03-01T00:00:00.000Z to 2026-03-01T01:00:01.000Z" in found.no_answer.message
    assert "later" not in found.no_answer.message


def test_a_window_after_the_last_round_asks_for_a_later_audit_only_where_that_can_help(tmp_path: Path) -> None:
    for days, reason in ((0, "window"), (2, "gap")):
        evidence = SmallEvidence(as_of_ms=END_MS, collected_at_ms=AS_OF_MS + days * 86_400_000)
        no_answer = judge_here(evidence.write(tmp_path / str(days))).no_answer
        assert no_answer is not None
        assert (no_answer.reason, "again later" in no_answer.message) == (reason, reason == "window")


@pytest.mark.parametrize(("as_of_ms", "collected_at_ms"), [(END_MS + LATE_MS - 1, AS_OF_MS), (AS_OF_MS, END_MS)])
def test_a_window_that_history_or_databases_have_not_passed_is_no_answer(
    tmp_path: Path, as_of_ms: int, collected_at_ms: int
) -> None:
    """Databases that were read too early would make every later effect a loss."""
    evidence = SmallEvidence(as_of_ms=as_of_ms, collected_at_ms=collected_at_ms)
    for key in KEYS:
        evidence.story(key)
    found = judge_here(evidence.write(tmp_path))
    assert found.no_answer is not None
    assert found.no_answer.reason == "window"
    assert not found.subscriptions[0].closed


def test_without_a_history_losses_are_found_and_what_it_would_have_told_is_not_checked(tmp_path: Path) -> None:
    """The original algorithm writes none; a key that was never announced and one that was are both just lost."""
    evidence = SmallEvidence(has_history=False)
    evidence.add("outbox", KEYS[0])
    evidence.add("outbox", KEYS[1])
    evidence.add("inbox", KEYS[1])
    evidence.add("effects", KEYS[1])
    found = judge_here(evidence.write(tmp_path))
    assert (found.verdict, found.no_answer) == ("violations", None)
    assert [(f.class_name, f.key) for f in found.findings] == [("LOST", KEYS[0].hex().upper())]
    unchecked = {item.class_name: item.why for item in found.not_checked}
    assert unchecked == {"NOT_ANNOUNCED_NOT_FOUND": "there is no history", "UNACCOUNTED": "there is no history"}
    assert any(note.startswith("there is no history: ") for note in found.notes)
    assert found.subscriptions[0].watermark_ms is None
    assert not any(item.path.startswith("history/") for item in found.inputs)


def test_without_an_inbox_what_its_rows_would_have_told_is_not_checked(tmp_path: Path) -> None:
    evidence = SmallEvidence(subscriptions=[subscription(inbox=False)])
    evidence.add("snapshot")
    evidence.story(KEYS[0])
    evidence.rows["inbox"].clear()
    found = judge_here(evidence.write(tmp_path))
    assert {item.class_name: item.why for item in found.not_checked} == dict.fromkeys(
        ("EFFECT_INCOMPLETE", "REPAIR_DIFFERS", "UNNECESSARY_REPAIR", "EFFECT_LATE"), "the inbox was not given"
    )


@pytest.mark.parametrize("shown", [0, 1, 2])
def test_business_effects_that_show_nothing_of_what_the_inbox_has_are_no_check(shown: int, tmp_path: Path) -> None:
    """The query reads another table, or its bounds are in another unit or time zone."""
    evidence = SmallEvidence()
    evidence.add("snapshot")
    for key in KEYS[:2]:
        evidence.story(key)
    evidence.rows["effects"].clear()
    for key in KEYS[:shown]:
        evidence.add("effects", key)
    found = judge_here(evidence.write(tmp_path))
    unchecked = {item.class_name: item.why for item in found.not_checked}
    told = {name: why.partition(":")[0] for name, why in unchecked.items()}
    assert told == (
        {"DOUBLE_EFFECT": "none of the 2 keys of the inbox is among the business effects"} if not shown else {}
    )
    some = f"{TOPIC}/{GROUP}: 1 of the 2 keys of the inbox are not among the business effects"
    assert [note.startswith(some) for note in found.notes] == [True] * (shown == 1)


def test_evidence_that_does_not_say_whether_a_later_column_was_there_proves_nothing_by_it(tmp_path: Path) -> None:
    """Of an earlier release, or of another program."""
    evidence = SmallEvidence(lacking_columns=None)
    evidence.add("snapshot")
    evidence.story(KEYS[0])
    found = judge_here(evidence.write(tmp_path / "before"))
    assert {item.class_name: re.split("[:,]", item.why)[0] for item in found.not_checked} == {
        "EFFECT_INCOMPLETE": "the evidence does not say whether rows of the inbox had the column incomplete",
        "UNNECESSARY_REPAIR": "the evidence does not say whether repairs of the ledger had the column first_sent_at_ms",
    }
    assert found.verdict == "clean"
    evidence.lacking_columns = []
    assert judge_here(evidence.write(tmp_path / "today")).not_checked == ()


@pytest.mark.parametrize("column", sorted(LATER_COLUMNS))
def test_each_column_that_evidence_may_lack_has_the_checks_that_ask_for_it(tmp_path: Path, column: str) -> None:
    (table,) = (one.name for one in EVIDENCE_TABLES if any(of.name == column for of in one.columns))
    evidence = SmallEvidence(lacking_columns=[{"topic": TOPIC, "group": GROUP, "table": table, "column": column}])
    evidence.add("snapshot")
    evidence.story(KEYS[0])
    asking = {"first_sent_at_ms": {"UNNECESSARY_REPAIR"}, "incomplete": {"EFFECT_INCOMPLETE"}}
    found = {item.class_name for item in judge_here(evidence.write(tmp_path)).not_checked}
    assert found == (set() if column == BUSINESS_ID else asking[column])


def test_without_a_history_a_window_is_closed_when_the_databases_were_read_late_enough(tmp_path: Path) -> None:
    for late_ms, reason in ((LATE_MS, None), (LATE_MS - 1, "window")):
        evidence = SmallEvidence(has_history=False, collected_at_ms=END_MS + late_ms)
        evidence.story(KEYS[0])
        for stream in STREAMS:
            evidence.rows[stream].clear()
        found = judge_here(evidence.write(tmp_path / str(late_ms)))
        assert (found.no_answer and found.no_answer.reason) == reason


def test_a_history_beside_evidence_that_was_collected_without_one_is_refused(tmp_path: Path) -> None:
    """Whose rows it would ask for was not asked when the evidence was collected."""
    evidence = SmallEvidence(has_history=False)
    evidence.add("outbox", KEYS[0])
    with pytest.raises(AuditError, match="collected with --no-history") as raised:
        judge_here(evidence.write(tmp_path / "evidence"), history=str(tmp_path))
    assert raised.value.reason == "usage"


def test_the_window_is_closed_exactly_at_its_end_and_the_time_for_late_effects(tmp_path: Path) -> None:
    evidence = SmallEvidence(as_of_ms=END_MS + LATE_MS, collected_at_ms=END_MS + LATE_MS)
    evidence.story(KEYS[0])
    assert judge_here(evidence.write(tmp_path)).verdict == "clean"


def test_inputs_name_every_file_that_was_read(folder: Path) -> None:
    found = judge_here(folder)
    named = {item.path for item in found.inputs}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert named == files
    assert json.loads((folder / "evidence.json").read_text())["files"].keys() <= named


@pytest.mark.parametrize("kind", [pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()])
def test_other_spellings_of_a_text_column_are_read(folder: Path, kind: pa.DataType) -> None:
    """What pandas or another writer makes of a column without any value, or with few."""
    expected = judge_here(folder)
    changed(folder, "outbox", with_column("tag", lambda n: pa.nulls(n, kind)))
    changed(folder, "inbox", with_column("source", lambda n: pa.array(["consumer"] * n).cast(pa.large_string())))
    found = judge_here(folder)
    assert (found.subscriptions, found.findings) == (expected.subscriptions, expected.findings)


def test_other_spellings_of_keys_and_digests_are_read(folder: Path) -> None:
    expected = judge_here(folder)
    for table, kind in (("outbox", pa.binary(16)), ("inbox", pa.large_binary()), ("repair", pa.binary(16))):
        changed(folder, table, lambda t, kind=kind: with_column("key", lambda n: t["key"].cast(kind))(t))  # type: ignore[misc]
    changed(folder, "repair", with_column("attempts", lambda n: pa.array([2] * n, pa.int32())))
    found = judge_here(folder)
    assert found.verdict == expected.verdict == "clean"
    assert found.classes["REPAIRED"] == 1


def test_files_without_a_row_are_read(folder: Path) -> None:
    expected = judge_here(folder)
    document = read_document(folder)
    for table in ("outbox", "inbox", "candidate", "effects", "repair"):
        path = first(folder, table)
        empty = str(Path(path).with_name("empty.parquet"))
        pq.write_table(pq.ParquetFile(folder / path).read().slice(0, 0), folder / empty)
        document["files"][empty] = described(folder / empty, 0)
    write_document(folder, document)
    assert judge_here(folder).subscriptions == expected.subscriptions
