"""The program of this machine that stands for an image, with what the image's own Dockerfile says besides.

Facts of images: RocketMQ's are in apache/rocketmq-docker (image-build/Dockerfile-ubuntu and its scripts), PostgreSQL's
in docker-library/postgres (17/bookworm, docker-entrypoint.sh), Redis' in docker-library/redis, Prometheus' in its
Dockerfile. Versions are those of this machine. RocketMQ's is that of the image; the Java below it is a newer one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/image/Dockerfile"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where the jars lie in the image; here they are those that Maven brought.
ROCKETMQ_HOME = "/home/rocketmq/rocketmq-5.3.3"


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Where this machine has what. The tests find it out once: each command would spend a second on it."""

    python: str
    import_path: str
    jars: str
    java_options: list[str]
    postgres: str
    #: What containers find at the same place as outside: the tree, its installation, the jars.
    shared: list[str]

    def write(self, file: Path) -> None:
        """For `installed`."""
        file.write_text(json.dumps(asdict(self)))


@cache
def installed() -> Installed:
    """What the file says that COMPOSE_INSTALLED names."""
    return Installed(**json.loads(Path(os.environ["COMPOSE_INSTALLED"]).read_text()))


@dataclass(frozen=True, kw_only=True)
class Image:
    """What starts a container, where the compose file says nothing else."""

    entrypoint: list[str]
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    work_folder: str = "/"
    health: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"
    #: Path in the container -> the text of a program.
    programs: dict[str, str] = field(default_factory=dict)
    #: Path in the container -> "uid:gid". A new volume that is put there has this owner.
    folders: dict[str, str] = field(default_factory=dict)


def image_of(name: str) -> Image | None:
    """None: no program of this machine stands for it. Raises KeyError for an image that is not known here."""
    return _IMAGES[name.rpartition("/")[2].partition(":")[0]]()


def _rocketmq() -> Image:
    # As the image's scripts: a shell that starts a shell that starts Java, and waits; neither passes a signal on.
    run = "#!/bin/sh\njava {ours} $JAVA_OPT_EXT -cp {jars}/'*' $@\n"
    ours = shlex.join((*installed().java_options, f"-Drocketmq.home.dir={ROCKETMQ_HOME}", "-Duser.home=/home/rocketmq"))
    start = "#!/bin/sh\nsh $ROCKETMQ_HOME/bin/run.sh org.apache.rocketmq.{name} $@\n"
    return Image(
        entrypoint=["sh", "-c", 'exec "$@"', "docker-entrypoint.sh"],
        environment={"PATH": PATH, "ROCKETMQ_HOME": ROCKETMQ_HOME},
        user="3000:3000",
        work_folder=f"{ROCKETMQ_HOME}/bin",
        programs={
            f"{ROCKETMQ_HOME}/bin/run.sh": run.format(ours=ours, jars=installed().jars),
            f"{ROCKETMQ_HOME}/bin/mqnamesrv": start.format(name="namesrv.NamesrvStartup"),
            f"{ROCKETMQ_HOME}/bin/mqbroker": start.format(name="broker.BrokerStartup"),
        },
        folders={"/home/rocketmq": "3000:3000"},
    )


def _redis() -> Image:
    # The image's script gives the data to the user `redis` and goes on as this user.
    start = '#!/bin/sh\nset -e\nchown redis:redis . \nexec setpriv --reuid=redis --regid=redis --clear-groups "$@"\n'
    return Image(
        entrypoint=["docker-entrypoint.sh"],
        command=["redis-server"],
        environment={"PATH": PATH},
        work_folder="/data",
        programs={"/usr/local/bin/docker-entrypoint.sh": start},
        folders={"/data": "redis:redis"},
    )


_POSTGRES_START = """#!/bin/bash
set -Eeo pipefail
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" /var/run/postgresql
    chmod 700 "$PGDATA"
    chown postgres "$PGDATA" /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --clear-groups "$BASH_SOURCE" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    export PGPASSWORD="$(< "$POSTGRES_PASSWORD_FILE")"
    initdb --no-sync --encoding=UTF8 --locale=C --username="$POSTGRES_USER" --pwfile=<(echo "$PGPASSWORD")
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    PGUSER="$POSTGRES_USER" pg_ctl --pgdata="$PGDATA" --options="-c listen_addresses='' -p 5432" --wait start
    psql --username "$POSTGRES_USER" --dbname postgres --command "CREATE DATABASE $POSTGRES_USER"
    for script in /docker-entrypoint-initdb.d/*; do PGHOST= "$script"; done
    pg_ctl --pgdata="$PGDATA" --mode=fast --wait stop
    unset PGPASSWORD
fi
exec "$@"
"""


def _postgres() -> Image:
    return Image(
        entrypoint=["docker-entrypoint.sh"],
        command=["postgres"],
        environment={"PATH": f"{installed().postgres}:{PATH}", "PGDATA": "/var/lib/postgresql/data"},
        stop_signal="SIGINT",
        programs={"/usr/local/bin/docker-entrypoint.sh": _POSTGRES_START},
        folders={"/var/lib/postgresql/data": "postgres:postgres"},
    )


def _prometheus() -> Image:
    return Image(
        entrypoint=["prometheus"],
        command=["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
        environment={"PATH": PATH},
        user="65534:65534",
        work_folder="/prometheus",
        folders={"/prometheus": "65534:65534"},
    )


def _grafana() -> None:
    return None


def _ours() -> Image:
    """The last stage of the Dockerfile; what its build installs is the installation of this machine."""
    text = re.sub(r"\s*\\\n\s*", " ", DOCKERFILE.read_text(encoding="utf-8"))
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = steps[max(number for number, (word, _) in enumerate(steps) if word == "FROM") :]

    def rest(word: str) -> str:
        (only,) = (rest for step, rest in last if step == word)
        return only

    def words(word: str) -> list[str]:
        found: list[str] = json.loads(rest(word)[rest(word).index("[") :])
        return found

    environment = dict(pair.split("=", 1) for pair in shlex.split(rest("ENV")))
    environment["PATH"] = environment["PATH"].replace("$PATH", PATH)
    # The installation of this machine takes the tree from here.
    python = f'#!/bin/sh\nPYTHONPATH={installed().import_path}:$PYTHONPATH exec {installed().python} "$@"\n'
    *sources, target = next(rest for step, rest in last if step == "COPY" and not rest.startswith("--from")).split()
    return Image(
        entrypoint=words("ENTRYPOINT"),
        command=words("CMD"),
        environment=environment,
        user=rest("USER"),
        work_folder=rest("WORKDIR"),
        health=words("HEALTHCHECK"),
        programs={
            "/opt/reconciler/bin/python": python,
            "/opt/reconciler/bin/reconciler": '#!/bin/sh\nexec python -m reconciler "$@"\n',
            **{f"{target}{Path(source).name}": (ROOT / source).read_text() for source in sources},
        },
        folders={"/var/lib/reconciler": rest("USER")},
    )


_IMAGES: dict[str, Callable[[], Image | None]] = {
    "rocketmq": _rocketmq,
    "redis": _redis,
    "postgres": _postgres,
    "prometheus": _prometheus,
    "grafana": _grafana,
    "checkback-reconciler": _ours,
}
