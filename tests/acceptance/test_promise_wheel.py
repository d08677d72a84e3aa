"""The wheel in an environment of its own: plug-ins with the base dependencies alone, a missing extra named."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.brokers.jars import DownloadFailed
from tests.services.requirements import downloaded

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd="/")


def pip(python: Path | str, *arguments: str | Path) -> None:
    ran = run(python, "-m", "pip", "--disable-pip-version-check", *arguments)
    if ran.returncode != 0:
        raise DownloadFailed(f"pip {' '.join(map(str, arguments))}\n{ran.stdout[-1000:]}{ran.stderr[-2000:]}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    downloaded(lambda: pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT))
    (built,) = folder.glob("checkback_reconciler-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on, without any extra."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    downloaded(lambda: pip(folder / "bin" / "python", "install", "--quiet", wheel))
    return folder / "bin" / "python"


def test_the_wheel_has_every_module_and_says_that_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    homes = {"checkback_producers": "producers", "checkback_consumers": "consumers", "reconciler": "."}
    for package, home in homes.items():
        here = {str(path.relative_to(ROOT / home)) for path in (ROOT / home / package).rglob("*.py")}
        assert here <= packed
        assert f"{package}/py.typed" in packed
    assert not any(name.startswith("tests/") for name in packed)
    assert any(name.endswith("licenses/LICENSE") for name in packed)


def test_both_plug_ins_work_with_the_base_dependencies_alone(python: Path) -> None:
    uses = (
        "import checkback_producers, checkback_consumers, reconciler.rocketmq\n"
        "from checkback_producers import open_producer, TransactionalProducer\n"
        "from checkback_consumers import CommitRecorder, ReplayWorker, TransactionalConsumer, transactional_handler\n"
        "import checkback_producers.sweeper, checkback_producers.client_python, checkback_consumers.client_python\n"
    )
    ran = run(python, "-W", "error", "-c", uses)
    assert ran.returncode == 0, ran.stderr


def test_a_command_without_its_extra_says_in_one_line_what_to_install(python: Path) -> None:
    ran = run(python.parent / "reconciler", "status")
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "reconciler: the package typer is missing: pip install 'checkback-reconciler[daemon]'"
    ]


@pytest.mark.parametrize("command", ["audit", "statement"])
def test_an_auditor_needs_no_service_to_be_installed(python: Path, command: str) -> None:
    ran = run(python.parent / "reconciler", command, "--help")
    assert ran.returncode == 2
    assert "pip install 'checkback-reconciler[audit]'" in ran.stderr
    assert "daemon" not in ran.stderr


def test_the_embedded_broker_needs_nothing_but_python(python: Path) -> None:
    ran = run(
        python, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import reconciler.embedded.serving"
    )
    assert ran.returncode == 0, ran.stderr
