"""Doctor runs to its end: what is away is a failed check with its remedy, and the next check still runs."""

import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from reconciler.commands.asking.availability import REDIS_REMEDY, ask_brokers, require
from reconciler.commands.asking.brokers import BROKER_REMEDY
from reconciler.commands.diagnosis import Diagnosis, NamedCheck, as_told, run_checks
from reconciler.commands.doctor import checks
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.checks import START_REDIS, START_ROCKETMQ, check_packages, examine
from reconciler.commands.doctor.databases import REVISION
from reconciler.commands.doctor.server_clocks import BrokerProbes
from reconciler.errors import (
    AccessRefused,
    BrokerUnavailable,
    ChannelRefused,
    ConfigurationError,
    DatabaseAway,
    DependencyAway,
    InvalidValue,
    Lacking,
    ReconcilerError,
    RedisAway,
)
from reconciler.rocketmq.client.demands import REMEDIES, PeerDemand
from reconciler.rocketmq.client.tls_failures import TlsFailure
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.folded_names import FOLDED_REMEDY
from reconciler.sql.tables import ledger_metadata
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import database_fact
from tests.settings_file import settings_file
from tests.unit.rocketmq.missing_packages import without_package

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"


def fine() -> Sequence[Diagnosis]:
    return [Diagnosis(check=database_fact("ledger", ""), level="ok", found=REVISION(revision="1"))]


def caused(by: ReconcilerError) -> ReconcilerError:
    error = BrokerUnavailable("no name server answers")
    error.__cause__ = by
    return error


def test_check_that_cannot_be_asked_is_a_failure_with_its_remedy() -> None:
    def away() -> Sequence[Diagnosis]:
        raise BrokerUnavailable("connection refused")

    def unsuitable() -> Sequence[Diagnosis]:
        raise ConfigurationError("no such table: run reconciler db upgrade")

    tables = database_fact("outbox", "shop")
    findings = run_checks(
        [
            NamedCheck(area("brokers"), START_ROCKETMQ(), away),
            NamedCheck(tables, START_REDIS(), unsuitable),
            NamedCheck(tables, None, fine),
        ]
    )
    assert [f.as_row() for f in findings] == [
        ("brokers", "fail", "connection refused", BROKER_REMEDY),
        ("outbox of shop", "fail", "no such table: run reconciler db upgrade", "do what the text says"),
        ("ledger", "ok", "revision 1", ""),
    ]
    assert findings[0].as_dict() == {
        "check": "brokers",
        "level": "fail",
        "found": "connection refused",
        "remedy": BROKER_REMEDY,
        "facts": {
            "check": {"code": "doctor.brokers", "fields": {}},
            "found": {"code": "doctor.as-told", "fields": {"text": "connection refused"}},
            "remedy": {"code": "doctor.start-rocketmq", "fields": {}},
        },
        "following": [],
    }


@pytest.mark.parametrize(
    ("error", "found", "remedy"),
    [
        (
            InvalidValue("rocketmq.tls.ca_file", "a.pem", "a PEM file"),
            "a.pem': a PEM file",
            "correct rocketmq.tls.ca_file",
        ),
        (DatabaseAway("db: denied", remedy="GRANT it"), "db: denied", "GRANT it"),
        (
            AccessRefused(Lacking.RIGHT, request="A", user="ann", right="SUB on topic T", code=16, remark="no"),
            "A refused: user ann lacks SUB on topic T [code 16: no]",
            "grant user ann SUB on topic T at every broker",
        ),
        (TlsFailure("a:1: expired; renew it"), "a:1: expired; renew it", REMEDIES[PeerDemand.TLS_FAILS]),
        (caused(TlsFailure("a:1: expired; renew it")), "no name server answers", REMEDIES[PeerDemand.TLS_FAILS]),
        (RedisAway("Redis: refused"), "Redis: refused", REDIS_REMEDY),
    ],
    ids=["a file of ours", "a right in a database", "a right at a broker", "TLS", "TLS behind another error", "away"],
)
def test_what_to_do_is_said_once_and_by_the_error_where_it_knows(
    error: ReconcilerError, found: str, remedy: str
) -> None:
    def check() -> Sequence[Diagnosis]:
        raise error

    (finding,) = (one.as_row() for one in run_checks([NamedCheck(area("clocks"), START_REDIS(), check)]))
    assert finding.found.endswith(found)
    assert finding.remedy == remedy
    assert remedy not in finding.found


def test_checks_wait_for_their_servers_beside_each_other_and_are_told_in_order() -> None:
    both = threading.Barrier(2)

    def check(found: str) -> Sequence[Diagnosis]:
        both.wait(timeout=30)
        return [Diagnosis(check=area("clocks"), level="ok", found=as_told(found))]

    checks = [NamedCheck(area("clocks"), None, partial(check, found)) for found in ("first", "second")]
    assert [one.as_row().found for one in run_checks(checks)] == ["first", "second"]


@pytest.mark.parametrize("asked", ["doctor", "status"])
def test_tls_file_that_cannot_be_used_sends_nobody_to_start_a_server(asked: str, tmp_path: Path) -> None:
    path = settings_file(tmp_path, f'rocketmq.tls = {{ enabled = true, ca_file = "{tmp_path}/nowhere.pem" }}')
    with Connections(load_settings(path, {})) as connections:
        if asked == "status":
            with pytest.raises(InvalidValue, match=r"rocketmq\.tls\.ca_file") as caught:
                require(ask_brokers(connections))
            assert "start" not in str(caught.value)
            return
        of_brokers = [f for f in (one.as_row() for one in examine(connections)) if "ca_file" in f.found]
    assert [f.check for f in of_brokers] == ["name server 127.0.0.1:1"]
    assert {f.remedy for f in of_brokers} == {"correct rocketmq.tls.ca_file"}


def test_no_probe_makes_a_topic_before_doctor_has_looked_at_the_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where brokers create topics by themselves, the probe topic would be there, with queues that nobody wanted."""
    probed = threading.Event()

    def topics(_connections: Connections) -> Iterator[Diagnosis]:
        assert not probed.wait(0.5)
        yield Diagnosis(check=area("topics"), level="ok", found=as_told("seen"))

    def probe(_connections: Connections) -> BrokerProbes:
        probed.set()
        return []

    monkeypatch.setattr(checks, "check_topics", topics)
    monkeypatch.setattr(checks, "probe_brokers", probe)
    with Connections(load_settings(EXAMPLE, {})) as connections:
        found = [one.as_row().found for one in examine(connections)]
    assert "seen" in found
    assert probed.is_set()


def test_every_name_server_is_looked_at_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands still would else cost a time-out of its own in each check that asks it."""
    asked: list[str] = []

    def results(questions: dict[str, object]) -> dict[str, str | None]:
        asked.extend(questions)
        return {}

    monkeypatch.setattr(checks, "results_of", results)
    servers = {"RECONCILER_ROCKETMQ__NAME_SERVERS": "127.0.0.1:1;127.0.0.1:2"}
    with Connections(load_settings(EXAMPLE, servers)) as connections:
        assert checks._who_is_silent(connections) == set()
    assert [one for one in asked if "name server" in one] == ["name server 127.0.0.1:1", "name server 127.0.0.1:2"]


@pytest.mark.parametrize("kind", [DependencyAway, ChannelRefused])
@pytest.mark.parametrize(("remedy", "told"), [("", "it is away"), ("start it", "it is away; start it")])
def test_what_failed_is_told_with_its_remedy_where_it_has_one(
    kind: type[DependencyAway | ChannelRefused], remedy: str, told: str
) -> None:
    assert str(kind("it is away", remedy=remedy)) == told


def test_bug_in_a_check_is_not_dressed_up_as_a_finding() -> None:
    def broken() -> Sequence[Diagnosis]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_checks([NamedCheck(area("brokers"), None, broken)])


def test_a_database_that_takes_names_for_one_another_fails_with_its_columns(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger_metadata.create_all(engine)
    with engine.begin() as connection:
        (ddl,) = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'reconciler_hold'").scalars()
        connection.exec_driver_sql("DROP TABLE reconciler_hold")
        connection.exec_driver_sql(ddl.replace("topic VARCHAR(160)", "topic VARCHAR(160) COLLATE NOCASE"))
    engine.dispose()
    with Connections(load_settings(EXAMPLE, {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/ledger.db"})) as made:
        found = [one for one in (told.as_row() for told in examine(made)) if one.check == "collations in the ledger"]
    assert [(one.level, one.remedy) for one in found] == [("fail", FOLDED_REMEDY)]
    assert "reconciler_hold.topic (NOCASE)" in found[0].found


def test_a_compression_that_cannot_be_read_here_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(EXAMPLE, {})
    assert not list(check_packages(settings))
    without_package(monkeypatch, "zstandard")
    (finding,) = (one.as_row() for one in check_packages(settings))
    assert (finding.check, finding.level) == ("package zstandard", "note")
    assert "pip install zstandard" in finding.remedy


@pytest.mark.parametrize(
    ("setting", "value", "package", "module"),
    [
        ("HISTORY__PATH", "/srv/history", "pyarrow", "pyarrow"),
        ("METRICS__LISTEN", "127.0.0.1:9378", "prometheus-client", "prometheus_client"),
        ("TRACING__ENABLED", "true", "opentelemetry", "opentelemetry.sdk.trace"),
    ],
)
def test_a_package_that_run_will_need_with_these_settings_and_not_without_fails(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str, package: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert not list(check_packages(load_settings(EXAMPLE, {})))
    (finding,) = (one.as_row() for one in check_packages(load_settings(EXAMPLE, {f"RECONCILER_{setting}": value})))
    assert (finding.check, finding.level) == (f"package {package}", "fail")
    assert "not installed" in finding.found
