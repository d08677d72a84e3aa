"""Which service is missing on this machine, and the one line that says how to get it."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.brokers.jars import DownloadFailed

T = TypeVar("T")

LIBROCKETMQ2_REMEDY = (
    "librocketmq 2.x is missing: install the package of Apache RocketMQ's C++ client 2.x "
    "so that `ctypes.util.find_library('rocketmq')` finds it"
)


def in_ci() -> bool:
    """True where a missing service is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def require(remedy: str | None) -> None:
    """Skips the running test with the remedy, fails it in CI; None means nothing is missing."""
    if remedy is None:
        return
    if in_ci():
        pytest.fail(f"CI needs every service: {remedy}", pytrace=False)
    pytest.skip(remedy)


def downloaded(bring: Callable[[], T]) -> T:
    """What `bring` downloads; without a network the running test is skipped, in CI it fails."""
    try:
        return bring()
    except DownloadFailed as error:
        if in_ci():
            raise
        pytest.skip(f"a download failed, the tests that need it run with a network: {str(error).splitlines()[0]}")


def redis_missing() -> str | None:
    """None, or how to get redis-server."""
    if shutil.which("redis-server"):
        return None
    return "redis-server is missing: apt-get install redis-server (Debian, Ubuntu) or brew install redis"


def sentinel_missing() -> str | None:
    """None, or how to get redis-sentinel."""
    if shutil.which("redis-sentinel"):
        return None
    return "redis-sentinel is missing: apt-get install redis-sentinel (Debian, Ubuntu) or brew install redis"


@functools.cache
def postgres_programs() -> Path | None:
    """The folder with initdb and postgres: Debian keeps it out of PATH."""
    in_path = shutil.which("initdb")
    if in_path and (Path(in_path).resolve().parent / "postgres").exists():
        return Path(in_path).resolve().parent  # a link may stand alone in PATH

    def version(folder: Path) -> float:
        try:
            return float(folder.parent.name)
        except ValueError:
            return 0.0

    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def postgres_missing() -> str | None:
    """None, or how to get PostgreSQL's server programs."""
    if postgres_programs() is None:
        return "PostgreSQL is missing: apt-get install postgresql (Debian, Ubuntu) or brew install postgresql"
    if os.geteuid() == 0 and not (_unprivileged_user("postgres") and shutil.which("setpriv")):
        return "PostgreSQL refuses to run as root without user `postgres` and setpriv: run the tests as a user"
    return None


def pgbouncer_program() -> str | None:
    """The program: Debian keeps it out of a user's PATH."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


def pgbouncer_missing() -> str | None:
    """None, or how to get pgbouncer, or the PostgreSQL server behind it."""
    if pgbouncer_program() is None:
        return "pgbouncer is missing: apt-get install pgbouncer (Debian, Ubuntu) or brew install pgbouncer"
    return postgres_missing()


def mariadb_server() -> str | None:
    """The server program, wherever the distribution puts it."""
    for name in ("mariadbd", "mysqld"):
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/libexec")
        if found:
            return found
    return None


def mariadb_missing() -> str | None:
    """None, or how to get MariaDB's server programs."""
    if mariadb_server() and shutil.which("mariadb-install-db"):
        return None
    return "MariaDB is missing: apt-get install mariadb-server (Debian, Ubuntu) or brew install mariadb"


def galera_provider() -> Path | None:
    """The library that makes a MariaDB server a node of a cluster, wherever the distribution puts it."""
    folders = ("/usr/lib/galera", "/usr/lib/galera-4", "/usr/lib64/galera", "/usr/lib64/galera-4")
    found = (Path(folder) / "libgalera_smm.so" for folder in folders)
    return next((path for path in found if path.exists()), None)


def galera_missing() -> str | None:
    """None, or how to get Galera and its MariaDB."""
    return mariadb_missing() or (None if galera_provider() else "Galera is missing: apt-get install galera-4")


def sql_missing(kind: str | None = None) -> str | None:
    """None, or what is missing: of one kind, or (without a kind) only if both servers are."""
    if kind == "postgres":
        return postgres_missing()
    if kind == "mariadb":
        return mariadb_missing()
    if kind == "pgbouncer":
        return pgbouncer_missing()
    if kind is not None:
        raise ValueError(f"mark sql knows postgres, pgbouncer and mariadb, not {kind!r}")
    first, second = postgres_missing(), mariadb_missing()
    return f"{first}; {second}" if first and second else None


def java_missing() -> str | None:
    """None, or how to get Java and Maven."""
    absent = [
        package
        for program, package in (("java", "openjdk-17-jdk-headless"), ("javac", "openjdk-17-jdk-headless"))
        if not shutil.which(program)
    ][:1]
    if not shutil.which("mvn"):
        absent.append("maven")
    if not absent:
        return None
    return f"Java or Maven is missing: apt-get install {' '.join(absent)} (Debian, Ubuntu)"


#: PySpark 4 needs it.
SPARK_JAVA = 17


@functools.cache
def spark_missing() -> str | None:
    """None, or how to get PySpark and a Java that runs it."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is missing: pip install -e '.[audit]'"
    java = spark_java()
    if java is None:
        return f"Java {SPARK_JAVA} is missing: apt-get install openjdk-17-jre-headless (Debian, Ubuntu)"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < SPARK_JAVA:
        return f"PySpark needs Java {SPARK_JAVA}: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    return None


def connect_missing() -> str | None:
    """None, or how to get what a client of Spark Connect needs beside PySpark."""
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None:
        return "a client of Spark Connect needs grpcio: make setup"
    return None


def spark_java() -> str | None:
    """The Java that Spark would take; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def browser() -> str | None:
    """A browser that runs without a screen; None if there is none."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((program for program in found if program), None)


def browser_missing() -> str | None:
    """None, or how to get a browser."""
    return None if browser() else "a browser is missing: apt-get install --no-install-recommends chromium (Debian)"


def promtool_missing() -> str | None:
    """None, or how to get Prometheus' checker of metrics and rules."""
    return None if shutil.which("promtool") else "promtool is missing: apt-get install prometheus (Debian, Ubuntu)"


def prometheus_missing() -> str | None:
    """None, or how to get Prometheus."""
    return None if shutil.which("prometheus") else "prometheus is missing: apt-get install prometheus (Debian, Ubuntu)"


def auditor_tools_missing() -> str | None:
    """None, or how to get the common tools that an auditor has."""
    if all(map(shutil.which, ("openssl", "jq", "sha256sum"))):
        return None
    return "openssl or jq is missing: apt-get install openssl jq (Debian, Ubuntu) or brew install openssl jq"


def wheel_missing() -> str | None:
    """None, or why the wheel rocketmq 0.4.4 cannot be installed here."""
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        return None
    return "the wheel rocketmq 0.4.4 exists for Linux on x86_64 only: run these tests there"


@functools.cache
def librocketmq2_present() -> bool:
    """Whether a librocketmq is installed that has transactions (2.x)."""
    name = ctypes.util.find_library("rocketmq")
    if name is None:
        return False
    try:
        return hasattr(ctypes.CDLL(name), "CreateTransactionProducer")
    except OSError:
        return False


def _unprivileged_user(name: str) -> str | None:
    import pwd

    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        return None


BY_MARK: dict[str, Callable[..., str | None]] = {
    "redis": redis_missing,
    "sql": sql_missing,
    "broker": java_missing,
    "native": wheel_missing,
    "spark": spark_missing,
}
