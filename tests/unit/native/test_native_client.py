"""The library's loading, its deadline and its folder, without the library."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.client_python import open_native_producer
from reconciler.clock import SystemClock
from reconciler.errors import (
    BrokerUnavailable,
    ConfigurationError,
    InvalidValue,
    MissingDependency,
    RequestTimeout,
    UsageError,
)
from reconciler.rocketmq.client import native_client
from reconciler.rocketmq.client.native_client import (
    NativeObject,
    answered,
    call_within,
    check_group,
    load_library,
    new_instance_name,
    require_writable_home,
)


@pytest.fixture
def rocketmq(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package `rocketmq` without any module in it, as rocketmq-python-client leaves behind."""
    package = ModuleType("rocketmq")
    package.__path__ = []
    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rocketmq", package)
    return package


@pytest.fixture(autouse=True)
def forgetful() -> Any:
    before = len(native_client._ever_made)
    yield
    del native_client._ever_made[before:]


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_client, "import_module", _raising(ModuleNotFoundError("no", name="rocketmq")))
    with pytest.raises(MissingDependency, match=r"install the extra native.*librocketmq 2\.x"):
        load_library(transactions=True)


def test_the_grpc_client_in_its_place_is_named(rocketmq: ModuleType) -> None:
    with pytest.raises(MissingDependency, match="rocketmq-python-client installs the same folder"):
        load_library(transactions=False)


@pytest.mark.parametrize(
    "error",
    [
        ImportError("rocketmq dynamic library not found"),
        OSError("librocketmq.so: cannot open shared object file"),
        AttributeError("undefined symbol: CreateOrderlyProducer"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(native_client, "import_module", _raising(error))
    with pytest.raises(MissingDependency, match="cannot load librocketmq") as missing:
        open_native_producer(group="orders", environment="test", name_servers="a:9876", without_outbox=True)
    assert str(error) in str(missing.value)
    assert missing.value.exit_code == 2


def test_an_older_wheel_is_told_from_a_library_with_transactions(
    monkeypatch: pytest.MonkeyPatch, rocketmq: ModuleType
) -> None:
    for name in ("client", "ffi", "exceptions"):
        monkeypatch.setitem(sys.modules, f"rocketmq.{name}", ModuleType(f"rocketmq.{name}"))
    assert not load_library(transactions=False).has_transactions
    with pytest.raises(MissingDependency, match=r"wheel rocketmq 0\.4\.4 has no transactions"):
        load_library(transactions=True)


def test_a_home_that_is_a_file_is_said_before_the_library_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(ConfigurationError, match="set HOME"):
        require_writable_home()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ConfigurationError, match="not writable: set HOME"):
        require_writable_home()


def test_a_call_that_hangs_returns_by_our_deadline_and_others_pass_through() -> None:
    clock, is_over = SystemClock(), threading.Event()
    began = clock.monotonic_seconds()
    with pytest.raises(RequestTimeout, match="did not return from sleeping"):
        call_within(0.05, "sleeping", lambda: is_over.wait(60))
    assert clock.monotonic_seconds() - began < 30
    is_over.set()
    assert call_within(5, "adding", lambda: 1 + 1) == 2
    with pytest.raises(KeyboardInterrupt):
        call_within(5, "failing", _raising(KeyboardInterrupt()))


def test_a_callback_answers_even_if_its_failure_cannot_be_kept() -> None:
    assert answered(_raising(SystemExit(1)), otherwise=7, keep=_raising(ValueError())) == 7


def test_a_start_that_fails_is_not_tried_again() -> None:
    made = NativeObject(SimpleNamespace(start=_raising(ValueError("no route")), _handle=1), "producer orders")
    with pytest.raises(BrokerUnavailable, match="start of producer orders: no route"):
        made.start()
    with pytest.raises(UsageError, match="it is failed"):
        made.start()
    assert made.shutdown() is True


def test_what_fails_at_its_shutdown_is_over_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    package = SimpleNamespace(start=lambda: None, shutdown=_raising(ValueError("refused")), _handle=1)
    made = NativeObject(package, "producer orders")
    made.start()
    assert made.shutdown() is True
    assert package._handle is None
    assert "shutdown of producer orders failed: refused" in caplog.text


def test_a_shutdown_on_another_thread_is_said(caplog: pytest.LogCaptureFixture) -> None:
    made = NativeObject(SimpleNamespace(start=lambda: None, shutdown=lambda: None, _handle=1), "producer orders")
    made.start()
    assert call_within(5, "another thread", made.shutdown) is True
    assert "do it on the main thread" in caplog.text


def test_what_was_forgotten_is_shut_down_at_exit_under_an_alarm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alarms, ended = list[int](), list[str]()
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("signal.alarm", alarms.append)
    package = SimpleNamespace(start=lambda: None, shutdown=lambda: ended.append("library"), _handle=1)
    NativeObject(package, "producer orders").start()
    stuck = NativeObject(SimpleNamespace(start=lambda: None, shutdown=lambda: None, _handle=1), "consumer stuck")
    stuck.start()
    stuck._give_up("it hangs")
    native_client._leave()
    assert ended == ["library"]
    assert package._handle is None
    # Armed around the forgotten shutdown, and at the end because something hangs.
    assert alarms == [31, 0, native_client.EXIT_SECONDS]
    assert "producer orders was not shut down" in caplog.text


def test_groups_and_instances_have_names_of_their_own() -> None:
    assert check_group("orders-1_x") == "orders-1_x"
    for wrong in ("", "a b", "größe", "a\0"):
        with pytest.raises(InvalidValue):
            check_group(wrong)
    names = {new_instance_name("orders", name_servers) for name_servers in ("a:1", "a:1", "b:1")}
    assert len(names) == 3
    with pytest.raises(InvalidValue):
        new_instance_name("orders", "nowhere")


@pytest.mark.parametrize("name", ["send_timeout_seconds", "end_timeout_seconds"])
def test_a_time_out_that_no_broker_can_meet_is_refused_before_the_library_is_loaded(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name}.*more than 0"):
        open_native_producer(group="g", environment="test", name_servers="a:9876", without_outbox=True, **{name: 0.0})  # type: ignore[arg-type]  # names are the parameters'


def test_announcements_must_be_for_the_same_environment() -> None:
    with pytest.raises(ConfigurationError, match="announcements are for"):
        open_native_producer(
            group="orders",
            environment="test",
            name_servers="a:9876",
            announcements=AnnouncementRoute(environment="prod"),
        )


def _raising(error: BaseException) -> Any:
    def call(*_: object) -> None:
        raise error

    return call


def test_a_child_after_fork_neither_starts_nor_calls_nor_shuts_down_what_its_parent_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    made = SimpleNamespace(start=lambda: calls.append("start"), shutdown=lambda: calls.append("shutdown"))
    new, running = NativeObject(made, "producer new"), NativeObject(made, "producer old")
    running.start()
    monkeypatch.setattr(native_client, "os", SimpleNamespace(getpid=lambda: -1))
    with pytest.raises(UsageError, match="made by process"):
        new.start()
    with pytest.raises(UsageError, match="before a fork"), running.used():
        pass
    assert running.shutdown()
    assert calls == ["start"]
