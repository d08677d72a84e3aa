"""The audit parses settings with the service's code, and must not misread their meaning or what the service refuses."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from reconciler.audit.collect.configuration import (
    PRODUCER_NAMES,
    SUBSCRIPTION_NAMES,
    audited_subscriptions,
    read_configuration,
    with_configured,
)
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.errors import AuditError
from reconciler.settings.file import load_settings
from reconciler.settings.schema import ProducerSettings, SubscriptionSettings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "config" / "reconciler.toml"


def test_the_names_of_settings_are_those_of_the_service() -> None:
    assert set(PRODUCER_NAMES) == set(ProducerSettings.model_fields)
    assert set(SUBSCRIPTION_NAMES) == set(SubscriptionSettings.model_fields)


def test_the_example_says_the_same_to_service_and_audit() -> None:
    audit, service = read_configuration(EXAMPLE, {}), load_settings(EXAMPLE, {})
    assert audit.environment == service.environment
    assert audit.shards == service.unique_key_topic.queues
    assert audit.skew_bound_ms == service.rounds.skew_margin_seconds * 1000
    assert audit.ledger_url == service.ledger.url.reveal()
    for ours, theirs in zip(audit.subscriptions, service.subscriptions, strict=True):
        assert (ours.topic, ours.group) == (theirs.topic, theirs.group)
        assert (None if ours.tags is None else frozenset(ours.tags)) == theirs.tag_set
        assert ours.grace_period_seconds == theirs.grace_period_seconds
        assert ours.late_after_seconds == theirs.late_after_seconds
        assert ours.producer_groups == ("order-service",)


def test_what_the_audit_reads_is_what_stands_in_the_file() -> None:
    audit, bare = read_configuration(EXAMPLE, {}), tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    producers = {one["group"]: one for one in bare["producers"]}
    assert audit.environment == bare["environment"]
    assert audit.shards == bare["unique_key_topic"]["queues"]
    assert audit.skew_bound_ms == bare["rounds"]["skew_margin_seconds"] * 1000
    assert audit.ledger_url == bare["ledger"]["url"]
    assert {one.group: list(one.topics) for one in audit.producers} == {g: p["topics"] for g, p in producers.items()}
    assert len(audit.subscriptions) == len(bare["subscriptions"])
    for one in bare["subscriptions"]:
        (found,) = (s for s in audit.subscriptions if (s.topic, s.group) == (one["topic"], one["group"]))
        tags = one.get("tags", "*")
        assert found.tags == (None if tags == "*" else tuple(sorted(tag.strip() for tag in tags.split("||"))))
        assert found.producer_groups == tuple(sorted(g for g, p in producers.items() if one["topic"] in p["topics"]))
        assert found.grace_period_seconds == one["grace_period_seconds"]
        assert found.late_after_seconds == one["late_after_seconds"]


def test_executors_load_no_settings() -> None:
    """They unpickle tasks of these modules, on machines that have neither FILE nor its secrets."""
    loading = "import sys, reconciler.audit.engines.job, reconciler.audit.engines.spark, reconciler.audit.collect.tasks"
    telling = "print([name for name in sys.modules if name.startswith('reconciler.settings')])"
    done = subprocess.run([sys.executable, "-c", f"{loading}\n{telling}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "reconciler.toml"
    path.write_text(text)
    return path


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
environment = "a b"
[unique_key_topic]
queues = 0
[[producers]]
group = "shop"
topics = "ORDERS"
outbox_url = "hunter2"
[[subscriptions]]
topic = "PAYMENTS"
group = "billing"
tag = "paid"
late_after_seconds = 5
grace_period_seconds = "soon"
""",
    )
    with pytest.raises(AuditError) as refused:
        read_configuration(path, {})
    message = str(refused.value)
    assert refused.value.reason == "configuration"
    for part in ("environment", "queues", "topics", "outbox_url", "tag: unknown", "grace_period_seconds", "PAYMENTS"):
        assert part in message
    assert "hunter2" not in message


def test_variables_and_secret_files_override_the_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgresql://auditor:hunter2@db/ledger\n")
    environ = {"RECONCILER_LEDGER__URL_FILE": str(secret), "RECONCILER_SUBSCRIPTIONS__0__TAGS": "paid || refunded"}
    found = read_configuration(EXAMPLE, environ)
    assert found.ledger_url == "postgresql://auditor:hunter2@db/ledger"
    assert found.subscriptions[0].tags == ("paid", "refunded")
    assert "hunter2" not in repr(found)
    with pytest.raises(AuditError, match="RECONCILER_LEDGER__URL_FILE"):
        read_configuration(EXAMPLE, {"RECONCILER_LEDGER__URL_FILE": str(tmp_path / "nowhere")})


def test_nothing_is_taken_from_the_file_unless_it_is_asked_for() -> None:
    configuration = read_configuration(EXAMPLE, {})
    bare = parse_sources()
    assert [(s.inbox, s.effects) for s in audited_subscriptions(configuration, bare)] == [(False, False)]
    given = with_configured(parse_sources(ledger="sqlite:////other.db"), configuration)
    assert given.outbox_groups == ("order-service",)
    assert given.ledger is not None
    assert given.ledger.address == "sqlite:////other.db"
    assert [s.inbox for s in audited_subscriptions(configuration, given)] == [True]


def test_a_url_can_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("mysql://auditor:hunter2@db/orders\n")
    sources = parse_sources(outbox=[f"shop=@{path}"])
    assert sources.outboxes[0][1].address == "mysql://auditor:hunter2@db/orders"
    assert "hunter2" not in f"{sources} {sources!r}"


def test_every_database_of_a_list_is_collected_and_one_that_stands_twice_is_refused(tmp_path: Path) -> None:
    section = '{"group": "order-service", "topics": ["ORDERS"], "outbox_url": %s}'
    urls = '["sqlite:////a", "sqlite:////b"]'
    environ = {"RECONCILER_PRODUCERS": f"[{section % urls}, {section % urls}]"}
    given = with_configured(parse_sources(), read_configuration(EXAMPLE, environ))
    assert [source.address for _, source in given.outboxes] == ["sqlite:////a", "sqlite:////b"]
    assert [str(source) for _, source in given.outboxes] == [
        "--subscriptions: outbox_url of order-service (1 of 2)",
        "--subscriptions: outbox_url of order-service (2 of 2)",
    ]
    for wrong in ("[]", '["sqlite:////hunter2", "sqlite:////hunter2"]', '["sqlite:////a", "hunter2"]'):
        with pytest.raises(AuditError, match=r"producers\[0\]\.outbox_url") as refused:
            read_configuration(EXAMPLE, {"RECONCILER_PRODUCERS": f"[{section % wrong}]"})
        assert "hunter2" not in str(refused.value)
