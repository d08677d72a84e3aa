"""Sdist and wheel: built, installed into empty environments, with the base dependencies alone and with the service."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import bill_of_materials
from tests.brokers.jars import DownloadFailed
from tests.services.locks import constraints
from tests.services.requirements import downloaded

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HOMES = {"checkback_producers": "producers", "checkback_consumers": "consumers", "reconciler": "."}

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("wheel"),  # one worker builds and installs
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Two sdists of the checkout, a wheel of the checkout, and the wheel of an sdist, which is the one to install."""

    sdist: Path
    second_sdist: Path
    wheel_of_checkout: Path
    wheel: Path


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd="/", env=environment)


def pip(*arguments: str | Path) -> None:
    ran = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)
    if ran.returncode != 0:
        raise DownloadFailed(f"pip {' '.join(map(str, arguments))}\n{ran.stdout[-1000:]}{ran.stderr[-2000:]}")


def archive(kind: str, folder: Path) -> Path:
    """As `make release` builds it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    sdist, again, of_checkout = (
        archive(kind, tmp_path_factory.mktemp(name))
        for kind, name in (("sdist", "sdist"), ("sdist", "again"), ("wheel", "of-checkout"))
    )
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sdist)
    (wheel,) = folder.iterdir()
    return Built(sdist=sdist, second_sdist=again, wheel_of_checkout=of_checkout, wheel=wheel)


def environment(wheel: str, folder: Path) -> Path:
    """The Python of an empty environment with the wheel and what it asks for, in the locked versions."""
    venv.create(folder)
    python = folder / "bin" / "python"
    bounds = constraints(folder)
    downloaded(lambda: pip("--python", python, "install", "--quiet", "--no-compile", "--constraint", bounds, wheel))
    return python


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on, without any extra."""
    return environment(str(built.wheel), tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def daemon(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the extra of the service."""
    return environment(f"{built.wheel}[daemon]", tmp_path_factory.mktemp("daemon"))


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheel_has_every_module_and_says_that_it_is_typed(built: Built) -> None:
    packed = set(files_of(built.wheel))
    for package, home in HOMES.items():
        here = {str(path.relative_to(ROOT / home)) for path in (ROOT / home / package).rglob("*.py")}
        assert here <= packed
        assert f"{package}/py.typed" in packed
    assert {name.split("/")[0] for name in packed} == {*HOMES, f"checkback_reconciler-{PROJECT['version']}.dist-info"}


def test_the_wheel_has_every_page_and_drawing_of_docs(built: Built) -> None:
    packed = {name: text for name, text in files_of(built.wheel).items() if name.startswith("reconciler/docs/")}
    here = {path for suffix in ("md", "svg") for path in (ROOT / "docs").rglob(f"*.{suffix}")}
    assert packed == {f"reconciler/{path.relative_to(ROOT)}": path.read_bytes() for path in here}
    assert len(packed) > 100


def test_licences_and_the_bill_of_materials_travel_with_the_wheel(built: Built) -> None:
    packed = files_of(built.wheel)
    (folder,) = {name.split("/")[0] for name in packed if ".dist-info/" in name}
    metadata = email.message_from_bytes(packed[f"{folder}/METADATA"])
    assert metadata["Metadata-Version"] == "2.4"
    licences = metadata.get_all("License-File", ())
    assert "LICENSE" in licences
    assert len(licences) == 3, "the code of others that pages load has licences of its own"
    assert all(packed[f"{folder}/licenses/{name}"] == (ROOT / name).read_bytes() for name in licences)
    assert packed[f"{folder}/sboms/{bill_of_materials.NAME}"].decode() == bill_of_materials.text()


def test_every_extra_is_in_the_wheel_and_is_what_the_lock_resolves(built: Built) -> None:
    (metadata,) = (text for name, text in files_of(built.wheel).items() if name.endswith("/METADATA"))
    fields = email.message_from_bytes(metadata)
    assert set(fields.get_all("Provides-Extra", ())) == set(PROJECT["optional-dependencies"])
    lock = (ROOT / "requirements/ci.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))
    wanted = [
        one for one in map(Requirement, fields.get_all("Requires-Dist", ())) if one.name != "rocketmq-client-python"
    ]
    assert [str(one) for one in wanted if not one.specifier.contains(locked.get(one.name, "0"))] == []


def test_a_wheel_of_the_sdist_is_the_wheel_of_the_checkout(built: Built) -> None:
    of_sdist, of_checkout = (
        {name: text for name, text in files_of(wheel).items() if not name.endswith("/RECORD")}
        for wheel in (built.wheel, built.wheel_of_checkout)
    )
    assert of_sdist == of_checkout


def test_an_sdist_has_what_a_packager_installs_and_two_of_them_are_the_same_bytes(built: Built) -> None:
    assert built.sdist.read_bytes() == built.second_sdist.read_bytes()
    with tarfile.open(built.sdist) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
        assert [one.name for one in opened if not one.isfile()] == [], "not every system has links"
    wanted = [
        "LICENSE",
        "CHANGELOG.md",
        "config/reconciler.toml",
        "requirements/service.lock",
        "deploy/build_hook.py",
        "deploy/helm/reconciler/files/reconciler.json",
    ]
    wanted += [
        str(path.relative_to(ROOT))
        for folder in ("deploy", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".service", ".timer", ".yml", ".tpl", ".sh"} and "secrets" not in path.parts
    ]
    assert [name for name in wanted if name not in packed] == []
    assert [name for name in packed if name.startswith(("tests/", ".venv", "benchmarks/"))] == []


def test_the_service_of_an_empty_environment_names_its_revision_and_reads_its_settings(
    daemon: Path, built: Built, tmp_path: Path
) -> None:
    revision = files_of(built.wheel)["reconciler/REVISION"].decode().strip()
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?|unknown", revision)
    ran = run(daemon.parent / "reconciler", "--version")
    assert (ran.stdout, ran.stderr) == (f"reconciler {PROJECT['version']} (revision {revision})\n", "")
    settings = tmp_path / "reconciler.toml"
    text = (ROOT / "config/reconciler.toml").read_text(encoding="utf-8")
    settings.write_text(re.sub(r'"postgresql://[^"]*"', '"sqlite:////var/lib/reconciler/one.db"', text))
    ran = run(daemon.parent / "reconciler", "config", "check", "--config", settings)
    assert ran.returncode == 0, ran.stderr
    assert "settings are valid" in ran.stdout


def test_both_plug_ins_work_with_the_base_dependencies_alone(python: Path) -> None:
    uses = (
        "import checkback_producers, checkback_consumers, reconciler.rocketmq\n"
        "from checkback_producers import open_producer, TransactionalProducer\n"
        "from checkback_consumers import CommitRecorder, ReplayWorker, TransactionalConsumer, transactional_handler\n"
        "import checkback_producers.sweeper, checkback_producers.client_python, checkback_consumers.client_python\n"
    )
    ran = run(python, "-W", "error", "-c", uses)
    assert ran.returncode == 0, ran.stderr


def test_a_command_without_its_extra_says_what_to_install_and_shows_the_page_that_says_how(python: Path) -> None:
    ran = run(python.parent / "reconciler", "status")
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "reconciler: the package typer is missing: install the extra daemon (docs/how-to/install.md#extras)",
        "`reconciler docs docs/how-to/install.md#extras` shows that page",
    ]
    ran = run(python.parent / "reconciler", "docs", "docs/how-to/install.md#extras")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("## Extras\n")


@pytest.mark.parametrize("command", ["audit", "statement"])
def test_an_auditor_needs_no_service_to_be_installed(python: Path, command: str) -> None:
    ran = run(python.parent / "reconciler", command, "--help")
    assert ran.returncode == 2
    assert "install the extra audit (docs/how-to/install.md#extras)" in ran.stderr
    assert "daemon" not in ran.stderr


def test_the_embedded_broker_needs_nothing_but_python(python: Path) -> None:
    ran = run(
        python, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import reconciler.embedded.serving"
    )
    assert ran.returncode == 0, ran.stderr
