"""A Redis that may lose the sets is found safe, at the limits of what is safe."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.commands.safety import require_safe
from reconciler.errors import ConfigurationError, InvariantViolation
from reconciler.shards.checks import (
    MEMORY_SHARE_MAX,
    NO_PRIMARY,
    RAISE_MAXMEMORY,
    UPGRADE_REDIS,
    RedisFinding,
    RedisQuality,
    Severity,
    _eviction,
    _memory,
    _persistence,
    _version,
)
from reconciler.shards.values import GENERATION_MAX, generation_of, pairs_of, round_time_of, seen_ms_of
from reconciler.words import said
from tests.unit.history.house import shard

OK, ADVICE, REFUSED = Severity.OK, Severity.ADVICE, Severity.REFUSED


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("6.1.99", REFUSED),
        ("6.2.0", OK),
        ("6.10", OK),
        ("7.0.0-rc1", OK),
        ("5.9", REFUSED),
        ("7", ADVICE),
        ("", ADVICE),
    ],
)
def test_a_redis_without_zdiffstore_runs_a_round(version: str, severity: Severity) -> None:
    finding = _version({"redis_version": version} if version else {}, ADVICE)
    assert (finding.about, finding.severity) == ("version", severity)


@pytest.mark.parametrize(
    ("info", "settings", "severity"),
    [
        ({}, {"maxmemory-policy": "noeviction"}, OK),
        ({"maxmemory_policy": "noeviction"}, {}, OK),
        ({"maxmemory_policy": "noeviction"}, {"maxmemory-policy": "allkeys-lru"}, REFUSED),
        ({}, {}, ADVICE),
    ],
)
def test_a_whole_set_is_evicted_without_an_error(
    info: Mapping[str, str], settings: Mapping[str, str], severity: Severity
) -> None:
    finding = _eviction(info, settings, ADVICE)
    assert (finding.about, finding.severity) == ("eviction", severity)
    assert (severity is REFUSED) == (finding.remedy is not None and "noeviction" in said(finding.remedy))


def test_memory_that_runs_full_is_found_when_it_is_full() -> None:
    limit = 1_000
    used = int(limit * MEMORY_SHARE_MAX)
    assert [*_memory({"used_memory": used, "maxmemory": limit}), *_memory({"used_memory": used, "maxmemory": 0})] == []
    [finding] = _memory({"used_memory": used + 1, "maxmemory": limit})
    assert (finding.about, finding.severity, finding.remedy) == ("memory", ADVICE, RAISE_MAXMEMORY())


@pytest.mark.parametrize(
    ("aof", "save", "found"),
    [
        (1, "", [(OK, "append-only file")]),
        (0, "3600 1", [(ADVICE, "snapshots only")]),
        (0, "", [(ADVICE, "no append-only file")]),
        (None, "", []),
    ],
)
def test_sets_that_a_restart_loses_are_called_persistent(
    aof: int | None, save: str, found: list[tuple[Severity, str]]
) -> None:
    findings = list(_persistence({} if aof is None else {"aof_enabled": aof}, {"save": save}))
    assert [(one.about, one.severity, said(one.found).partition(":")[0]) for one in findings] == [
        ("persistence", *one) for one in found
    ]


def test_only_the_first_refusal_is_named_and_advice_stops_a_start() -> None:
    def finding(about: RedisQuality, severity: Severity, node: str = "") -> RedisFinding:
        found, remedy = NO_PRIMARY(role=f"why {about}"), UPGRADE_REDIS()
        return RedisFinding(about=about, severity=severity, found=found, remedy=remedy, node=node)

    role, version, memory = RedisQuality.ROLE, RedisQuality.VERSION, RedisQuality.MEMORY
    require_safe([finding(memory, ADVICE), finding(role, OK)])
    with pytest.raises(ConfigurationError) as raised:
        require_safe([finding(role, REFUSED), finding(memory, ADVICE), finding(version, REFUSED, "a:1")])
    assert str(raised.value) == (
        "Redis role: this server is a why role - upgrade to 6.2 or newer; "
        "Redis a:1 version: this server is a why version - upgrade to 6.2 or newer"
    )


@pytest.mark.parametrize(
    ("answer", "generation"),
    [
        (None, 0),
        (b"0", 0),
        (b"12", 12),
        (str(GENERATION_MAX).encode(), GENERATION_MAX),
        (str(GENERATION_MAX + 1).encode(), None),
        (b"012", None),
        (b"-1", None),
        (b"", None),
        ("²".encode(), None),
    ],
)
def test_a_fence_that_incrby_would_refuse_or_write_otherwise_is_taken(answer: object, generation: int | None) -> None:
    if generation is None:
        with pytest.raises(InvariantViolation, match="which is no number"):
            generation_of(shard(), answer)
    else:
        assert generation_of(shard(), answer) == generation


@pytest.mark.parametrize(
    ("answer", "at_ms"), [(b"7 1234", 1234), (b"6 1234", None), (b"7", None), (b"7 x", None), (None, None)]
)
def test_the_time_of_another_round_is_taken_for_the_last_one(answer: bytes | None, at_ms: int | None) -> None:
    assert round_time_of(answer, generation=7) == at_ms


def test_a_hash_is_read_in_one_of_redis_two_forms_only() -> None:
    assert pairs_of([b"a", b"1", b"b", b"2"]) == pairs_of({b"a": b"1", b"b": b"2"}) == [(b"a", b"1"), (b"b", b"2")]
    assert [seen_ms_of(score) for score in (12.9, float("inf"), float("nan"))] == [12, 0, 0]
