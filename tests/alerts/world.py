"""A deployment that a real Prometheus watches, and the proof that an alert comes and goes with its accident.

with World(tmp_path) as world, world.proving("SweepStale") as alerts:
    world.sweeper.end(SIGKILL)
    alerts.fires("SweepStale", "no process shows a sweep")
    world.start_sweeper()
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.acceptance.deployment import Deployment, Service
from tests.alerts.scaled_rules import FACTOR, scaled_rules, seconds_of
from tests.polling import eventually
from tests.services import prometheus, redis_server
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.prometheus import PrometheusServer
from tests.services.redis_server import RedisServer
from tests.services.requirements import require

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"
#: The longest an alert is waited for: an hour and ten minutes of the rules, and a busy machine.
WAIT_SECONDS = 4_200 / FACTOR + 60


class World:
    """Broker, Redis, `reconciler run` and `sweep`, a consumer and a producer. Confined to one test."""

    def __init__(self, folder: Path, *, settings: str = "", keys_factor: float = 1.0) -> None:
        """`settings` is TOML that is appended. `keys_factor`: so many keys of the rules are one of the test."""
        for service in (prometheus, redis_server):
            require(service.missing())
        self._folder = folder
        self._keys_factor = keys_factor
        self._settings = _QUICK + settings
        self._ports = {"run": free_port(), "sweep": free_port()}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        with ExitStack() as stack:
            # First: it looks for its targets five seconds after its start, whenever they are there.
            self.prometheus = stack.enter_context(
                PrometheusServer(self._folder / "prometheus", rules=self._rules(), targets=self._ports)
            )
            self.redis = stack.enter_context(RedisServer(self._folder / "redis"))
            self.broker = stack.enter_context(EmbeddedBroker(properties=_QUICK_CHECKS))
            self.deployed = stack.enter_context(
                Deployment(
                    self._folder / "deployment",
                    redis_url=self.redis.url,
                    name_servers=self.broker.name_servers,
                    settings=self._settings,
                )
            )
            self.start_service()
            self.start_sweeper()
            self.producer = self.deployed.producer()
            eventually(self.prometheus.has_scraped, within_seconds=60, message="Prometheus has seen every process")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _rules(self) -> Path:
        with PrometheusServer(self._folder / "reader", rules=RULES) as reader:
            groups = reader.rules()
        quick = self._folder / "rules.yml"
        quick.write_text(json.dumps(scaled_rules(groups, FACTOR, keys_factor=self._keys_factor)))
        return quick

    def start_service(self) -> None:
        """`reconciler run`."""
        self.service = self._started("run")

    def start_sweeper(self) -> None:
        """`reconciler sweep`."""
        self.sweeper = self._started("sweep")

    def _started(self, command: str) -> Service:
        return self.deployed.run(command, variables={"RECONCILER_METRICS__LISTEN": f"127.0.0.1:{self._ports[command]}"})

    def commit(
        self,
        count: int,
        *,
        lose: bool = False,
        roll_back: bool = False,
        before: Callable[[list[str]], object] | None = None,
    ) -> list[str]:
        """Commits as the deployment does, by the one producer."""
        return self.deployed.commit(count, lose=lose, roll_back=roll_back, before=before, producer=self.producer)

    def command(self, *arguments: str) -> None:
        """Runs `reconciler ...`, which must succeed."""
        ended = self.deployed.command(*arguments)
        assert ended.exit_code == 0, (arguments, ended.stdout, ended.stderr)

    @property
    def topic(self) -> dict[str, str]:
        """Label of the only topic."""
        return {"topic": self.deployed.topic}

    @property
    def place(self) -> dict[str, str]:
        """Labels of the only subscription."""
        return {"topic": self.deployed.topic, "consumer_group": self.deployed.group}

    @contextmanager
    def proving(self, *names: str) -> Iterator[Alerts]:
        """None of the alerts is there before the block; each fires within it, and is gone some time after it."""
        alerts = Alerts(self.prometheus, began=self._began)
        for name in names:
            alerts.are_gone(name)
        yield alerts
        assert alerts.fired == set(names)
        for name in names:
            alerts.are_gone(name)


class Alerts:
    """What Prometheus says of alerts."""

    def __init__(self, server: PrometheusServer, *, began: float) -> None:
        """`began`: monotonic time of the first process."""
        self._server = server
        self._began = began
        #: Names of those that were seen firing.
        self.fired: set[str] = set()

    def fires(self, name: str, summary: str, *, labels: Mapping[str, str] | None = None) -> re.Match[str]:
        """Waits until the alert fires with these labels and a summary that the pattern describes; returns the match."""

        def found() -> re.Match[str] | None:
            matches = (
                re.search(summary, alert["annotations"]["summary"])
                for alert in self._server.alerts(name)
                if alert["state"] == "firing" and (labels or {}).items() <= alert["labels"].items()
            )
            return next((match for match in matches if match is not None), None)

        match: re.Match[str] = self._eventually(found, name, f"{name} fires")
        self.fired.add(name)
        return match

    def tells_age(
        self, name: str, summary: str, *, labels: Mapping[str, str] | None = None, at_least_seconds: float
    ) -> None:
        """It fires with an age, `{age}` in the pattern, between this and that of the test."""
        told = self.fires(name, summary.replace("{age}", r"((?:\d+m )?\d+(?:\.\d+)?s)"), labels=labels)[1]
        assert at_least_seconds <= seconds_of(told) <= time.monotonic() - self._began, told

    def are_gone(self, name: str) -> None:
        """Waits until the alert neither fires nor is pending."""
        self._eventually(lambda: self._server.is_evaluated() and not self._server.alerts(name), name, f"{name} is gone")

    def _eventually(self, predicate: Any, name: str, what: str) -> Any:
        try:
            return eventually(predicate, within_seconds=WAIT_SECONDS, message=what)
        except AssertionError as error:
            raise AssertionError(f"{error}; Prometheus has {self._server.alerts(name)}") from None


#: A half that is open has a put-back copy after the second check; one that was rolled back has none.
_QUICK_CHECKS = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "1000"}
#: The product's own intervals are short, too: its values must be younger than the thresholds.
_QUICK = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
lease_seconds = 2.0

[repairs]
check_back_wait_seconds = 3
breaker_candidates_min = 10

[sweep]
interval_seconds = 0.5
sweep_after_seconds = 2.0

[metrics]
read_interval_seconds = 0.2
"""
