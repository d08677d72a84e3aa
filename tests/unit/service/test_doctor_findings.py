"""Doctor runs to its end: what is away is a failed check with its remedy, and the next check still runs."""

from collections.abc import Sequence

import pytest

from reconciler.commands.diagnosis import Diagnosis, run_checks
from reconciler.commands.doctor.checks import check_packages
from reconciler.errors import BrokerUnavailable, ConfigurationError
from tests.unit.rocketmq.missing_packages import without_package


def fine() -> Sequence[Diagnosis]:
    return [Diagnosis(check="ledger", level="ok", found="revision 1")]


def test_check_that_cannot_be_asked_is_a_failure_with_its_remedy() -> None:
    def away() -> Sequence[Diagnosis]:
        raise BrokerUnavailable("connection refused")

    def unsuitable() -> Sequence[Diagnosis]:
        raise ConfigurationError("no such table")

    findings = run_checks(
        [("brokers", "start RocketMQ", away), ("tables", "run db upgrade", unsuitable), ("x", "", fine)]
    )
    assert [f.as_row() for f in findings] == [
        ("brokers", "fail", "connection refused", "start RocketMQ"),
        ("tables", "fail", "no such table", "run db upgrade"),
        ("ledger", "ok", "revision 1", ""),
    ]
    assert findings[0].as_dict() == {
        "check": "brokers",
        "level": "fail",
        "found": "connection refused",
        "remedy": "start RocketMQ",
    }


def test_bug_in_a_check_is_not_dressed_up_as_a_finding() -> None:
    def broken() -> Sequence[Diagnosis]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_checks([("brokers", "", broken)])


def test_a_compression_that_cannot_be_read_here_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(check_packages())
    without_package(monkeypatch, "zstandard")
    (finding,) = check_packages()
    assert (finding.check, finding.level) == ("package zstandard", "note")
    assert "pip install zstandard" in finding.remedy
