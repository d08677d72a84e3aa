"""The chart as helm renders it: held against Kubernetes' schemas, and against what the product takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from reconciler.cli.app import app
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from tests.packages.programs import RELEASE, pods, ran, rendered, validator
from tests.packages.tools import needed

pytestmark = [pytest.mark.timeout(2_000), pytest.mark.xdist_group("chart")]

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "config/reconciler.toml").read_text(encoding="utf-8")
#: The least that a release needs.
LEAST: dict[str, Any] = {
    "settings": SETTINGS,
    "run": {"existingSecret": "for-run"},
    "sweep": {"existingSecret": "for-sweep"},
}
EVERYTHING: dict[str, Any] = {
    **LEAST,
    "web": {
        "enabled": True,
        "existingSecret": "for-web",
        "usersSecret": "users",
        "host": "reconciler.example.org",
        "proxyAddresses": ["10.0.0.0/8"],
        "ingress": {"className": "nginx", "tlsSecret": "certificate"},
    },
    "prepare": {"enabled": True, "existingSecret": "for-owner"},
    "history": {"existingClaim": "history"},
    "audit": {"enabled": True, "existingSecret": "for-audit", "existingClaim": "audits"},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True, "runbooksAt": "https://docs.example.org/runbooks/"},
    "dashboard": {"enabled": True},
}


#: Where queries prove all: as docs/how-to/install.md and install-chart.md say.
WITHOUT_SWEEP: dict[str, Any] = {
    "settings": SETTINGS,
    "run": {
        "existingSecret": "for-run",
        "secretFiles": {"producers.0.outbox_url": None, "subscriptions.0.inbox_url": None},
    },
    "sweep": {
        "existingSecret": "for-run",
        "replicas": 0,
        "secretFiles": {"producers.0.outbox_url": None, "subscriptions.0.inbox_url": None},
    },
    "prometheusRule": {"enabled": True},
}


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """With everything that can be switched on."""
    return rendered(EVERYTHING, tmp_path_factory.mktemp("chart"))


@pytest.mark.parametrize("values", [LEAST, EVERYTHING, WITHOUT_SWEEP], ids=["least", "everything", "without sweep"])
def test_helm_finds_no_fault_in_the_chart(values: dict[str, Any], tmp_path: Path) -> None:
    done = ran("lint", "--strict", values=values, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release", ["1.27.0", "1.31.0", "1.37.0"])
@pytest.mark.parametrize("values", [LEAST, EVERYTHING, WITHOUT_SWEEP], ids=["least", "everything", "without sweep"])
def test_kubernetes_knows_every_field(values: dict[str, Any], release: str, tmp_path: Path) -> None:
    rendered(values, tmp_path)
    words = [validator(), "--kubernetes-version", release, "--strict", str(tmp_path / "manifests.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    unknown = [line for line in told.splitlines() if line.startswith("WARN") and "monitoring.coreos.com" not in line]
    assert (unknown, told.count("passed for resource") >= 7) == ([], True)


def test_where_queries_prove_all_no_sweep_runs_and_run_asks_for_no_file_of_an_outbox_or_inbox(tmp_path: Path) -> None:
    found = rendered(WITHOUT_SWEEP, tmp_path)
    replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in found if one["kind"] == "Deployment"}
    assert replicas == {f"{RELEASE}-reconciler-run": 2, f"{RELEASE}-reconciler-sweep": 0}
    files = {
        component: [one["name"] for one in container["env"] if one["name"].endswith("_FILE")]
        for component, template in pods(found).items()
        for container in template["spec"]["containers"]
    }
    assert files == {"run": ["RECONCILER_LEDGER__URL_FILE", "RECONCILER_REDIS__URL_FILE"], "sweep": []}
    (rule,) = (one["spec"] for one in found if one["kind"] == "PrometheusRule")
    ours = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    all_alerts, alerts = (
        [one["alert"] for group in rules["groups"] for one in group["rules"]] for rules in (ours, rule)
    )
    assert alerts == [name for name in all_alerts if name != "SweepStale"]


def test_every_pod_meets_the_restricted_standard_of_pod_security(manifests: list[dict[str, Any]]) -> None:
    found = pods(manifests)
    assert found.keys() == {"run", "sweep", "web", "audit", "prepare"}
    for template in found.values():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
        kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}


def test_variables_of_services_are_kept_from_a_process_that_refuses_them(
    manifests: list[dict[str, Any]],
) -> None:
    with pytest.raises(ConfigurationError, match="SERVICE"):
        load_settings(ROOT / "config/reconciler.toml", {"RECONCILER_WEB_SERVICE_HOST": "10.0.0.1"})
    assert all(template["spec"]["enableServiceLinks"] is False for template in pods(manifests).values())


@pytest.mark.parametrize("component", ["run", "sweep", "web", "audit", "prepare"])
def test_settings_of_a_pod_are_whole_and_its_command_exists(
    component: str, manifests: list[dict[str, Any]], tmp_path: Path
) -> None:
    spec = pods(manifests)[component]["spec"]
    (container,) = spec["containers"]
    (mounted,) = (volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "settings")
    (config,) = (one for one in manifests if one["kind"] == "ConfigMap" and one["metadata"]["name"] == mounted)
    (tmp_path / "reconciler.toml").write_text(config["data"]["reconciler.toml"])
    (secret,) = (volume["secret"] for volume in spec["volumes"] if volume["name"] == "secrets")
    assert secret["secretName"] == {"prepare": "for-owner"}.get(component, f"for-{component}")
    given = {one["name"]: one["value"] for one in container["env"]}
    environ = {}
    for name, value in given.items():
        if value.startswith("/run/secrets/reconciler/"):
            file = tmp_path / Path(value).name
            file.write_text(f"{'redis' if 'REDIS' in name else 'postgresql'}://name:password@there.example.org/0")
            environ[name] = str(file)
        elif name.startswith("RECONCILER_"):
            environ[name] = value
    settings = load_settings(tmp_path / "reconciler.toml", environ)
    assert "password" in settings.producers[0].outbox_urls[0].reveal()
    if "command" not in container:
        shown = CliRunner().invoke(app, [*container["args"], "--help"])
        assert shown.exit_code == 0, shown.output


def test_the_console_is_shown_while_a_dependency_is_away_and_run_is_not_started_again_for_it(
    manifests: list[dict[str, Any]],
) -> None:
    probes = {
        component: {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        for component, template in pods(manifests).items()
        for container in template["spec"]["containers"]
        if "livenessProbe" in container
    }
    rounds = {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert probes == {"run": rounds, "sweep": rounds, "web": {**rounds, "readiness": "/livez"}}


def test_what_selects_pods_selects_some(manifests: list[dict[str, Any]]) -> None:
    labels = {component: template["metadata"]["labels"] for component, template in pods(manifests).items()}

    def selected(wanted: dict[str, str]) -> set[str]:
        return {component for component, own in labels.items() if wanted.items() <= own.items()}

    by_name = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    name = f"{RELEASE}-reconciler"
    assert selected(by_name["Service", f"{name}-metrics"]["spec"]["selector"]) == {"run", "sweep"}
    assert selected(by_name["Service", f"{name}-web"]["spec"]["selector"]) == {"web"}
    for component in ("run", "sweep"):
        budget = by_name["PodDisruptionBudget", f"{name}-{component}"]["spec"]
        assert selected(budget["selector"]["matchLabels"]) == {component}
        assert budget["maxUnavailable"] == 1
    for component in ("run", "sweep", "web"):
        deployment = by_name["Deployment", f"{name}-{component}"]["spec"]
        assert selected(deployment["selector"]["matchLabels"]) == {component}
    assert selected(by_name["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"]) == labels.keys()
    monitor = by_name["ServiceMonitor", name]["spec"]["selector"]["matchLabels"]
    monitored = [
        one for one in manifests if one["kind"] == "Service" and monitor.items() <= one["metadata"]["labels"].items()
    ]
    assert [one["metadata"]["name"] for one in monitored] == [f"{name}-metrics"]


def test_prometheus_takes_the_rules_and_each_leads_to_its_runbook(
    manifests: list[dict[str, Any]], tmp_path: Path
) -> None:
    (rule,) = (one["spec"] for one in manifests if one["kind"] == "PrometheusRule")
    expected = (
        (ROOT / "deploy/prometheus/rules.yml")
        .read_text()
        .replace("docs/runbooks/", "https://docs.example.org/runbooks/")
    )
    assert rule == yaml.safe_load(expected)
    (dashboard,) = (one for one in manifests if one["metadata"]["name"].endswith("-dashboard"))
    assert json.loads(dashboard["data"]["reconciler.json"])["uid"]
    promtool = needed("promtool", "apt-get install prometheus (Debian, Ubuntu)")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule))
    done = subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ({"settings": ""}, "settings"),
        ({"run": {}}, "run.existingSecret"),
        ({"sweep": {}}, "sweep.existingSecret"),
        ({"web": {**EVERYTHING["web"], "proxyAddresses": []}}, "web.proxyAddresses"),
        ({"web": {**EVERYTHING["web"], "usersSecret": ""}}, "web.usersSecret"),
        ({"web": {**EVERYTHING["web"], "host": ""}}, "web.host"),
        ({"history": {}}, "history.existingClaim"),
        ({"audit": {"enabled": True, "existingSecret": "for-audit"}}, "audit.existingClaim"),
        ({"rum": {"replicas": 3}}, "rum"),
        ({"run": {"existingSecret": "for-run", "replicas": "two"}}, "replicas"),
        ({"image": {"tag": "latest"}}, "tag"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_is_missing_or_wrong_is_named_before_anything_is_installed(
    lacking: dict[str, Any], named: str, tmp_path: Path
) -> None:
    done = ran("template", RELEASE, values={**EVERYTHING, **lacking}, folder=tmp_path)
    assert done.returncode != 0
    assert named in done.stderr
