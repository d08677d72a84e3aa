"""Names, labels and dependencies of the metrics: bounded, as Prometheus wants them, loaded where they are asked for."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from checkback_producers.sweeper import SweepReport
from reconciler.clock import ManualClock
from reconciler.errors import ConfigurationError, MissingDependency
from reconciler.instrumentation.metrics.catalogue import LABELS, METRICS, Metric, MetricKind
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.metrics import SWEPT_OUTCOMES, open_metering
from tests.unit.metrics.measured_world import EXAMPLE, scraped


def settings(listen: str) -> Settings:
    return load_settings(EXAMPLE, {}, {"metrics": {"listen": listen}})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_label_is_without_bound_and_no_name_breaks_a_convention(metric: Metric) -> None:
    assert re.fullmatch(r"reconciler_[a-z]+(_[a-z]+)*", metric.name)
    assert set(metric.labels) <= set(LABELS), "a key, a shard or a business id is no label"
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(metric.buckets)
    assert set(metric.shown_by) <= {"run", "sweep", "replay"}
    assert metric.meaning.endswith(".")


def test_no_name_means_two_things_and_no_label_is_left_over() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) >= 40
    assert {label for metric in METRICS for label in metric.labels} == set(LABELS)


def test_a_new_number_of_a_sweep_is_not_forgotten() -> None:
    numbers = {name for name, value in vars_of(SweepReport()).items() if type(value) is int}
    assert numbers == {*SWEPT_OUTCOMES, "failed_sources", "walk_rows"}


def vars_of(report: SweepReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in report.__slots__}


def test_without_the_setting_nobody_loads_the_client() -> None:
    modules = "checkback_producers, checkback_consumers, reconciler.commands.run, reconciler.commands.sweep"
    code = f"import sys, {modules}, reconciler.commands.replay; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert open_metering(load_settings(EXAMPLE, {}), "run", clock=ManualClock()) is None


def test_a_missing_extra_is_a_configuration_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingDependency, match="install the extra metrics") as caught:
        open_metering(settings("127.0.0.1:9378"), "run", clock=ManualClock())
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize("listen", ["9378", "http://127.0.0.1:9378", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_listened_on_is_refused_at_once(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.listen"):
        settings(listen)


def test_counters_are_one_series_each_and_alarms_are_there_before_their_first_event() -> None:
    metering = open_metering(settings("127.0.0.1:9378"), "run", clock=ManualClock())
    assert metering is not None
    page = scraped(metering.book)
    assert not [name for name in page if "_created" in name]
    assert page["reconciler_losses_total{consumer_group=billing,topic=ORDERS,verdict=lost_confirm}"] == 0
