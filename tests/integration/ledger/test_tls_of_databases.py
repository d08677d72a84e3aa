"""Real PostgreSQL, MariaDB and Redis that take TLS only: the right authority passes, all else says what to change."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.commands.asking.availability import REDIS_REMEDY
from reconciler.commands.doctor.checks import examine
from reconciler.errors import DatabaseAway, DependencyAway, RedisAway
from reconciler.settings.file import load_settings
from reconciler.shards.access import open_client, translated_errors
from reconciler.sql.engines import open_engine, reading
from reconciler.wiring.connections import Connections
from tests.engines import disposed
from tests.polling import eventually
from tests.services import mariadb, postgres
from tests.services.certificates import Authority, Certificate
from tests.services.ports import answers, free_port
from tests.services.processes import Child
from tests.services.redis_server import RedisServer, missing
from tests.services.requirements import require, sentinel_missing
from tests.settings_file import settings_file

SEE = "(docs/reference/security.md#redis-and-databases)"


class Files:
    """Certificates for loopback addresses, and for another host; an authority that signed neither."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server: Certificate = self.authority.issue("server")
        self.elsewhere: Certificate = self.authority.issue("elsewhere", hosts=("127.0.0.2",))
        self.stranger = Authority(folder, "stranger")
        self.old: Certificate = self.authority.issue("old", days=-2)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def asked(url: str) -> object:
    """The answer of a database. Raises DatabaseAway."""
    with disposed(open_engine(url)) as engine, reading(engine) as connection:
        return connection.execute(sa.text("SELECT 1")).scalar()


# ----------------------------------------------------------------- PostgreSQL


def tells_of_an_expired_certificate(away: type[DependencyAway], ask: Callable[[], object]) -> None:
    """Asks until the server's reason arrives.

    In TLS 1.3 a server checks the certificate when the client has begun to send. If the server closes the connection
    before it has read the request, the client's system drops the reason with the connection.
    """

    def is_told() -> bool:
        with pytest.raises(away) as caught:
            ask()
        return "renew the certificate of this client" in str(caught.value)

    eventually(is_told, within_seconds=60, message="the reason of the server")


@pytest.fixture(scope="module")
def postgres_over_tls(files: Files) -> Iterator[str]:
    """URL of a server whose pg_hba.conf has nothing but hostssl."""
    require(postgres.missing())
    server = postgres.PostgresServer()
    own = {name: server.folder / name for name in ("server.pem", "server.key", "authority.pem", "pg_hba.conf")}
    shutil.copy(files.server.certificate, own["server.pem"])
    shutil.copy(files.server.key, own["server.key"])
    shutil.copy(files.authority.file, own["authority.pem"])
    own["pg_hba.conf"].write_text("hostssl all all 127.0.0.1/32 trust\n")
    for path in own.values():
        path.chmod(0o600)
        if os.geteuid() == 0:  # the server runs as another user
            user = pwd.getpwnam("postgres")
            os.chown(path, user.pw_uid, user.pw_gid)
    server.options |= {
        "ssl": "on",
        "ssl_cert_file": str(own["server.pem"]),
        "ssl_key_file": str(own["server.key"]),
        "ssl_ca_file": str(own["authority.pem"]),
        "hba_file": str(own["pg_hba.conf"]),
    }
    with server:
        yield server.url()


def test_postgresql_with_hostssl_only(postgres_over_tls: str, files: Files) -> None:
    url, full = postgres_over_tls, "?sslmode=verify-full&sslrootcert="
    assert asked(f"{url}{full}{files.authority.file}") == 1
    with pytest.raises(DatabaseAway, match="give the certificate of its authority in its URL"):
        asked(f"{url}{full}{files.stranger.file}")
    with pytest.raises(DatabaseAway, match="if it admits them over TLS only, ask for TLS in its URL"):
        asked(f"{url}?sslmode=disable")
    with pytest.raises(DatabaseAway, match="reach it under a name of its certificate"):
        asked(f"{url.replace('127.0.0.1', 'localhost')}{full}{files.authority.file}")
    expired = f"&sslcert={files.old.certificate}&sslkey={files.old.key}"
    tells_of_an_expired_certificate(DatabaseAway, lambda: asked(f"{url}{full}{files.authority.file}{expired}"))


def test_doctor_names_what_a_database_wants(postgres_over_tls: str, tmp_path: Path) -> None:
    config = settings_file(tmp_path, ledger_url=f"{postgres_over_tls}?sslmode=disable")
    with Connections(load_settings(config, {})) as connections:
        findings = {finding.check: finding for finding in (one.as_row() for one in examine(connections))}
    assert findings["ledger"].level == "fail"
    assert findings["ledger"].remedy == (
        "let pg_hba.conf admit this host and login, or, if it admits them over TLS only, "
        f"ask for TLS in ledger.url {SEE}"
    )
    assert findings["redis"].remedy == REDIS_REMEDY


# ----------------------------------------------------------------- MariaDB


def test_mariadb_that_requires_a_secure_transport(files: Files) -> None:
    require(mariadb.missing())
    options = {"ssl-cert": str(files.server.certificate), "ssl-key": str(files.server.key)}
    with mariadb.MariaDBServer(options=options | {"ssl-ca": str(files.authority.file)}) as server:
        url = server.url()
        assert asked(f"{url}&ssl_ca={files.authority.file}") == 1
        with pytest.raises(DatabaseAway, match="give the certificate of its authority in its URL"):
            asked(f"{url}&ssl_ca={files.stranger.file}")
        other_name = url.replace("127.0.0.1", "localhost")
        with pytest.raises(DatabaseAway, match="reach it under a name of its certificate"):
            asked(f"{other_name}&ssl_ca={files.authority.file}")
        assert asked(f"{other_name}&ssl_ca={files.authority.file}&ssl_check_hostname=false") == 1


@pytest.mark.parametrize("content", [None, "half a certifi"], ids=["missing", "half written"])
def test_tls_file_that_cannot_be_used_is_a_database_that_is_away(content: str | None, tmp_path: Path) -> None:
    """A certificate that is renewed while rounds run. The error was no error of ours, and each turn told of a bug."""
    file = tmp_path / "authority.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DatabaseAway, match="correct ssl_ca, ssl_cert or ssl_key") as caught:
        asked(f"mysql://user:hidden@127.0.0.1:{free_port()}/shop?ssl_ca={file}")
    assert "hidden" not in str(caught.value)


# ----------------------------------------------------------------- Redis


def pinged(url: str) -> bool:
    """Whether Redis answers. Raises RedisAway."""
    with translated_errors():
        client = open_client(url, timeout_seconds=5)
        try:
            return bool(client.ping())
        finally:
            client.close()


def over_tls(files: Files, port: int, certificate: Certificate | None = None) -> dict[str, str]:
    """Directives of a server that takes TLS on this port, and asks its clients for a certificate."""
    shown = certificate or files.server
    return {
        "tls-port": str(port),
        "tls-cert-file": str(shown.certificate),
        "tls-key-file": str(shown.key),
        "tls-ca-cert-file": str(files.authority.file),
        "tls-auth-clients": "yes",
    }


def parameters(files: Files) -> str:
    ours = f"ssl_certfile={files.server.certificate}&ssl_keyfile={files.server.key}"
    return f"ssl_ca_certs={files.authority.file}&{ours}"


def test_redis_with_certificates_of_both_sides(files: Files, tmp_path: Path) -> None:
    require(missing())
    port = free_port()
    with RedisServer(tmp_path / "redis", options=over_tls(files, port)):
        url = f"rediss://127.0.0.1:{port}/0?"
        assert pinged(url + parameters(files))
        with pytest.raises(RedisAway, match="give the certificate of its authority as ssl_ca_certs"):
            pinged(url + parameters(files).replace("authority.pem", "stranger.pem"))
        with pytest.raises(RedisAway, match="set ssl_check_hostname=false"):
            pinged(url.replace("127.0.0.1", "localhost") + parameters(files))
        tells_of_an_expired_certificate(RedisAway, lambda: pinged(url + parameters(files).replace("server.", "old.")))
        with pytest.raises(RedisAway):
            pinged(f"{url}ssl_ca_certs={files.authority.file}")
        with pytest.raises(RedisAway):
            pinged(f"redis://127.0.0.1:{port}/0")


def test_sentinels_are_reached_with_the_same_certificates(files: Files, tmp_path: Path) -> None:
    require(missing() or sentinel_missing())
    port, sentinel_port, folder = free_port(), free_port(), tmp_path / "sentinel"
    folder.mkdir()
    everywhere = {"tls-replication": "yes"}
    lines = "".join(f"{name} {value}\n" for name, value in (over_tls(files, sentinel_port) | everywhere).items())
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"port 0\nbind 127.0.0.1\ndir {folder}\n{lines}sentinel monitor shards 127.0.0.1 {port} 1\n"
    )
    with ExitStack() as stack:
        stack.enter_context(RedisServer(tmp_path / "redis", options=over_tls(files, port) | everywhere))
        sentinel = Child(["redis-sentinel", str(configuration)], log=folder / "sentinel.log")
        stack.callback(sentinel.kill)
        sentinel.until(lambda: answers(sentinel_port), within_seconds=60, what="redis-sentinel")
        url = f"redis+sentinel://127.0.0.1:{sentinel_port}/shards/0?ssl=true&{parameters(files)}"

        def is_found() -> bool:
            try:
                return pinged(url)
            except RedisAway as error:
                raise AssertionError(str(error)) from error

        eventually(is_found, within_seconds=60, message="the primary that the Sentinel names")


def test_a_cluster_is_reached_with_the_same_certificates(files: Files, tmp_path: Path) -> None:
    require(missing())
    port = free_port()
    cluster = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "tls-cluster": "yes"}
    with RedisServer(tmp_path / "redis", options=over_tls(files, port) | cluster) as server:
        direct = open_client(server.url, timeout_seconds=5)
        direct.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)  # type: ignore[no-untyped-call] # redis-py
        direct.close()
        url = f"redis+cluster://127.0.0.1:{port}?ssl=true&{parameters(files)}"

        def is_found() -> bool:
            try:
                return pinged(url)
            except RedisAway as error:
                raise AssertionError(str(error)) from error

        eventually(is_found, within_seconds=60, message="a cluster that is up")
        with pytest.raises(RedisAway, match="certificate"):
            pinged(url.replace("authority.pem", "stranger.pem"))
