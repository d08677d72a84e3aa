"""The compose file: what it names exists, what it pins stays pinned, each process has what its settings ask for."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from deploy import written
from reconciler.cli.app import app
from reconciler.settings.file import load_settings
from tests.packages.compose_folder import COMPOSE, FOLDER, SERVICES, prepared_copy

#: Those that run the image of this repository.
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder after prepare.sh has run."""
    return prepared_copy(tmp_path_factory.mktemp("compose"))


def test_no_image_is_another_one_tomorrow() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert [image for image in images if not re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-\w+)?", image)] == []


def test_secrets_are_files_that_prepare_makes_and_are_given_to_nobody_who_does_not_read_them(prepared: Path) -> None:
    made = {name: prepared / place["file"] for name, place in COMPOSE["secrets"].items()}
    assert [name for name, path in made.items() if not path.read_text().strip()] == []
    assert (prepared / "secrets").stat().st_mode & 0o077 == 0
    given = {(name, secret) for name, service in SERVICES.items() for secret in service.get("secrets", ())}
    assert {secret for _, secret in given} == made.keys()
    shared = (prepared / "reconciler.toml").read_text() + (prepared / "postgres/databases.sh").read_text()
    for name, secret in given:
        starter = prepared / f"example/{name}.py"
        shared += starter.read_text() if starter.exists() else ""
        read = secret in str({**SERVICES[name], "secrets": None}) or f"/run/secrets/{secret}" in shared
        assert read or secret.endswith("_password"), f"{name} does not read {secret}"
    passwords = {path.read_text().strip() for name, path in made.items() if name.endswith("_password")}
    assert len(passwords) == len([name for name in made if name.endswith("_password")])
    assert not any(password in (prepared / "compose.yml").read_text() for password in passwords)


def test_passwords_outlive_a_second_preparation(prepared: Path) -> None:
    before = {path.name: path.read_bytes() for path in (prepared / "secrets").iterdir()}
    subprocess.run([prepared / "prepare.sh"], check=True, timeout=60)
    assert {path.name: path.read_bytes() for path in (prepared / "secrets").iterdir()} == before


@pytest.mark.parametrize("name", sorted(OURS))
def test_settings_of_a_process_are_whole_and_its_command_exists(name: str, prepared: Path) -> None:
    service = OURS[name]
    of_the_image = {"RECONCILER_METRICS__LISTEN": "0.0.0.0:9378"}
    environ = {**of_the_image, **service.get("environment", {})}
    environ = {key: value.replace("/run/secrets", str(prepared / "secrets")) for key, value in environ.items()}
    settings = load_settings(prepared / "reconciler.toml", environ)
    assert settings.environment == written.ENVIRONMENT
    if "entrypoint" not in service:
        shown = CliRunner().invoke(app, [*service["command"], "--help"])
        assert shown.exit_code == 0, shown.output


def test_nothing_waits_for_what_never_comes() -> None:
    for name, service in SERVICES.items():
        for other, wanted in service.get("depends_on", {}).items():
            awaited = SERVICES[other]
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in awaited or other in OURS, f"{name} waits for {other}"
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert awaited.get("restart", "no") in ("no", "on-failure"), f"{name} waits for {other}"


def test_what_is_mounted_exists_and_only_loopback_addresses_are_published() -> None:
    for service in SERVICES.values():
        places = [volume.split(":")[0] for volume in service.get("volumes", ())]
        assert [place for place in places if place.startswith(".") and not (FOLDER / place).exists()] == []
        assert {place for place in places if not place.startswith(".")} <= COMPOSE["volumes"].keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_grafana_is_given_its_dashboard_where_it_looks_for_one() -> None:
    mounted = {target: FOLDER / source for source, target, *_ in map(_parts, SERVICES["grafana"]["volumes"])}
    (data,) = (path for target, path in mounted.items() if "/provisioning/datasources/" in target)
    (boards,) = (path for target, path in mounted.items() if "/provisioning/dashboards/" in target)
    (source,) = yaml.safe_load(data.read_text())["datasources"]
    address = urlsplit(source["url"])
    assert (source["type"], address.hostname, address.port) == ("prometheus", "prometheus", 9090)
    (provider,) = yaml.safe_load(boards.read_text())["providers"]
    found = [path for target, path in mounted.items() if Path(target).parent == Path(provider["options"]["path"])]
    assert [json.loads(path.read_text())["title"] for path in found] == ["Check-back reconciler"]


def _parts(volume: str) -> list[str]:
    return volume.split(":")


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_processes_write_nothing_but_their_volume(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
