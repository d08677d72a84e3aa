"""A FIFO, a socket, a device or a folder in the place of a file is refused at once. A reader waited for ever."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.audit.collect.sources import source_at
from reconciler.audit.errors import AuditError
from reconciler.audit.statement.keys import read_public_key, read_signing_key
from reconciler.cli.options import url_of
from reconciler.cli.scan_command import credentials
from reconciler.contract.named_files import require_file
from reconciler.contract.secret_sources import secret_from_file
from reconciler.contract.urls import read_database_url, read_redis_url
from reconciler.embedded.access_control import read_users
from reconciler.embedded.tls import ServerTls
from reconciler.errors import ConfigurationError
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import client_context
from reconciler.settings.file import load_settings
from reconciler.web.access.server_tls import ServerCertificate
from reconciler.web.access.users_file import load_users
from reconciler.wiring.commit_queries import read_commit_queries
from reconciler.wiring.effect_queries import read_effect_queries

pytestmark = pytest.mark.timeout(60)

EXAMPLE = Path("config/reconciler.toml")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


MAKERS: dict[str, Callable[[Path], object]] = {"FIFO": os.mkfifo, "socket": _socket, "directory": Path.mkdir}


@pytest.fixture(params=[*MAKERS, "device"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """What it is, and its path."""
    if request.param == "device":
        return "device", "/dev/tty"
    path = tmp_path / "named"
    MAKERS[request.param](path)
    return request.param, str(path)


def _written(folder: Path, old: str, new: str) -> Path:
    path = folder / "reconciler.toml"
    text, found = re.subn(old, new, EXAMPLE.read_text(), flags=re.MULTILINE)
    assert found
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("^url = .redis.*$", "redis.url_file"),
        ("^outbox_url = .*$", "producers[0].outbox_url_file"),
        ("^inbox_url = .*$", "subscriptions[0].inbox_url_file"),
    ],
)
def test_settings_name_the_field_the_path_and_the_remedy(
    line: str, named: str, no_file: tuple[str, str], tmp_path: Path
) -> None:
    kind, path = no_file
    field = named.rpartition(".")[2]
    with pytest.raises(ConfigurationError) as refused:
        load_settings(_written(tmp_path, line, f'{field} = "{path}"'), {})
    assert f"{named} = '{path}': cannot be read: Is a {kind}; name a file that holds the value" in str(refused.value)


@pytest.mark.parametrize("name", ["RECONCILER_LEDGER__URL_FILE", "RECONCILER_METRICS__LISTEN_FILE"])
def test_variables_name_it_too(name: str, no_file: tuple[str, str]) -> None:
    kind, path = no_file
    with pytest.raises(ConfigurationError) as refused:
        load_settings(EXAMPLE, {name: path})
    assert f"{name} = '{path}': cannot be read: Is a {kind}; name a file that holds the value" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d?sslrootcert={}",
        "postgresql://h/d?sslmode=require&sslcert={}",
        "mysql://h/d?ssl_ca={}",
        "mariadb://h/d?ssl_key={}",
        "rediss://h?ssl_ca_certs={}",
        "redis+cluster://h?ssl=true&ssl_keyfile={}",
    ],
)
def test_a_file_that_a_url_names_is_told_with_its_parameter(url: str, no_file: tuple[str, str]) -> None:
    kind, path = no_file
    read = read_redis_url if url.startswith("redis") else read_database_url
    parameter = url.rpartition("=")[0].rpartition("?")[2].rpartition("&")[2]
    with pytest.raises(ValueError, match=re.escape(f"{parameter} = '{path}': Is a {kind}; name a file")):
        read(url.format(quote(path)))
    read(url.format("/no/such/file"))  # may come later


@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_settings(Path(path), {}),
        lambda path: read_commit_queries(Path(path)),
        lambda path: read_effect_queries(Path(path)),
        lambda path: load_users(Path(path)),
        lambda path: ServerCertificate(Path(path), None),
        lambda path: client_context(TlsSettings(ca_file=path)),
        lambda path: client_context(TlsSettings(certificate_file=path)),
        lambda path: client_context(TlsSettings(certificate_file=str(EXAMPLE), key_file=path)),
        lambda path: secret_from_file(path),
        lambda path: credentials("key", Path(path)),
        lambda path: url_of(f"@{path}"),
        lambda path: read_users(Path(path)),
        lambda path: ServerTls(certificate_file=path).context(),
        lambda path: read_signing_key(path),
        lambda path: read_public_key(path),
    ],
)
def test_every_reader_says_what_it_is(read: Callable[[str], object], no_file: tuple[str, str]) -> None:
    kind, path = no_file
    with pytest.raises((ConfigurationError, AuditError), match=f"Is a {kind}|Is no file") as refused:
        read(path)
    assert path in str(refused.value)


def test_an_audit_is_told_of_a_url_s_file(no_file: tuple[str, str]) -> None:
    problems: list[str] = []
    assert source_at(f"@{no_file[1]}", "--outbox", problems) is None
    assert no_file[1] in problems[0]


def test_a_database_s_file_is_told() -> None:
    with pytest.raises(ValueError, match="its path: Is a directory; name the file of the database"):
        read_database_url("sqlite:////tmp")


def test_the_word_of_libpq_for_the_system_s_authorities_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system").mkdir()
    monkeypatch.chdir(tmp_path)
    read_database_url("postgresql://h/d?sslrootcert=system")


def test_pipe_of_a_shell_is_read() -> None:
    """As in `--config <(command)`."""
    reading, writing = os.pipe()
    os.write(writing, b"redis://h")
    os.close(writing)
    try:
        assert url_of(f"@/dev/fd/{reading}") == "redis://h"
    finally:
        os.close(reading)
    require_file(os.devnull)
