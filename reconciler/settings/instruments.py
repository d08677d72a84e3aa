"""Sections for the output of a process: metrics, spans, logs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reconciler.settings.types import ListenAddress, Section


class MetricsSettings(Section):
    """Metrics for Prometheus; needs the extra `metrics`."""

    listen: ListenAddress | None = Field(
        default=None,
        description="host:port of /metrics, /livez and /readyz of run, sweep and replay; unset: none are served.",
    )
    read_interval_seconds: Annotated[float, Field(gt=0, le=60)] = Field(
        default=10.0,
        description="Ledger, Redis, brokers and databases are read for a scrape at most this often; slow ones more "
        "rarely.",
    )


class TracingSettings(Section):
    """OpenTelemetry spans; they need the extra `otel`."""

    enabled: bool = Field(
        default=False,
        description="True: rounds, verifications and repairs of run and once become spans, sent as OTEL_* say.",
    )


class LoggingSettings(Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level written.")
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else JSON."
    )
