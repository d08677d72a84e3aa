"""A private Prometheus: scrapes ports of the loopback and evaluates rules; data in a folder of the test."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.services.ports import free_port
from tests.services.processes import Child
from tests.services.requirements import prometheus_missing as missing

__all__ = ["PrometheusServer", "milliseconds", "missing"]

START_SECONDS = 60.0


class PrometheusServer:
    """Runs while the block does. Confined to one test."""

    def __init__(
        self,
        folder: Path,
        *,
        rules: Path,
        targets: Mapping[str, int] | None = None,
        scrape_interval_seconds: float = 1.0,
        evaluation_interval_seconds: float = 0.5,
    ) -> None:
        """`targets`: job -> port of its /metrics."""
        self.port = free_port()
        self._folder = folder
        self._configuration = {
            "global": {
                "scrape_interval": milliseconds(scrape_interval_seconds),
                "scrape_timeout": milliseconds(scrape_interval_seconds),
                "evaluation_interval": milliseconds(evaluation_interval_seconds),
            },
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                for job, port in (targets or {}).items()
            ],
        }

    def rules(self) -> list[dict[str, Any]]:
        """Groups of rules as Prometheus understood them: `query`, `duration` in seconds, labels, annotations."""
        groups: list[dict[str, Any]] = self._asked("rules")["groups"]
        return groups

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """The pending and firing alerts of a rule: `state`, `labels`, `annotations`, `value`."""
        return [alert for alert in self._asked("alerts")["alerts"] if alert["labels"]["alertname"] == name]

    def has_scraped(self) -> bool:
        """Whether the newest scrape of every target was answered: what is counted from now on is an increase."""
        targets = self._asked("targets")["activeTargets"]
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def is_evaluated(self) -> bool:
        """Whether every rule was evaluated once."""
        rules = [rule for group in self.rules() for rule in group["rules"]]
        return bool(rules) and all(rule["health"] == "ok" for rule in rules)

    def _asked(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{what}", timeout=30) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "prometheus.yml"
        file.write_text(json.dumps(self._configuration))  # JSON is YAML
        self._child = Child(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            log=self._folder / "prometheus.log",
        )
        try:
            self._child.until(self._is_ready, within_seconds=START_SECONDS, what="Prometheus")
        except BaseException:
            self._child.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()


def milliseconds(seconds: float) -> str:
    """A duration as Prometheus writes it."""
    return f"{round(seconds * 1000)}ms"
