"""Where the server listens, and what must be set before others than this machine reach it."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.web.access.exposure import exposure_of
from reconciler.web.access.server_tls import server_certificate
from reconciler.web.exchange import WebRefusal, WebRequest
from reconciler.web.server import serving_web
from tests.services.certificates import Authority, Certificate
from tests.services.ports import free_port
from tests.unit.web.web_world import with_three_users

ROOT = Path(__file__).parents[3]
NAMES = '["reconciler.example"]'


def settings_with(**web: str) -> Settings:
    return load_settings(
        ROOT / "config" / "reconciler.toml", {f"RECONCILER_WEB__{name.upper()}": value for name, value in web.items()}
    )


@pytest.mark.parametrize(
    ("web", "lacking"),
    [
        ({}, "everybody who reaches this address could look"),
        ({"tls_certificate": "/c"}, "everybody who reaches this address could look"),
        ({"users_file": "/u", "host_names": NAMES}, "plain text"),
        (
            {"behind_proxy": "true", "proxy_addresses": '["10.0.0.7"]'},
            "everybody who reaches this address or its proxy",
        ),
        ({"users_file": "/u", "tls_certificate": "/c"}, "host_names"),
    ],
    ids=str,
)
def test_no_other_machine_is_served_before_it_is_safe(web: dict[str, str], lacking: str) -> None:
    with pytest.raises(ConfigurationError, match=lacking):
        exposure_of(settings_with(**web).web, "0.0.0.0:8378")


def test_a_proxy_on_this_machine_does_not_show_pages_to_everybody() -> None:
    web = settings_with(behind_proxy="true", proxy_addresses='["127.0.0.1"]').web
    with pytest.raises(ConfigurationError, match="everybody"):
        exposure_of(web, "127.0.0.1:8378")


@pytest.mark.parametrize(
    "web",
    [
        {"proxy_user_header": "X-Remote-User"},
        {"users_file": "/u", "behind_proxy": "true"},
        {"users_file": "/u", "tls_key": "/k"},
        {"users_file": "/u", "proxy_role_header": "X-Remote-Role"},
        {"host_names": '["https://reconciler.example"]'},
        {"host_names": '["reconciler.example:443"]'},
        {"proxy_addresses": '["10.0.0.1/8"]'},
        {"proxy_addresses": '["proxy.example"]'},
        {"proxy_user_header": "X_Remote_User"},
        {"hsts_seconds": "3600"},
    ],
    ids=str,
)
def test_settings_that_would_not_do_what_they_seem_to_are_refused(web: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"web\."):
        settings_with(**web)


@pytest.mark.parametrize("listen", ["0.0.0.0:8378", "10.0.0.7:8378", "[::]:8378"])
@pytest.mark.parametrize("name", ["reconciler.example", "RECONCILER.example:443", "localhost:1", "127.0.0.1", "[::1]"])
def test_the_names_of_the_settings_are_served_and_no_other(listen: str, name: str) -> None:
    exposure = exposure_of(settings_with(users_file="/u", tls_certificate="/c", host_names=NAMES).web, listen)
    assert exposure.scheme == "https"
    exposure.require_own_name(asked_as(name))
    for other in ("evil.example", "0.0.0.0", "[::]", "reconciler.example.evil.example", "a, b", ""):
        with pytest.raises(WebRefusal):
            exposure.require_own_name(asked_as(other))


def test_the_address_that_is_listened_on_is_a_name_of_its_own() -> None:
    exposure = exposure_of(settings_with(users_file="/u", tls_certificate="/c").web, "10.0.0.7:8378")
    exposure.require_own_name(asked_as("10.0.0.7:8378"))


def asked_as(host: str) -> WebRequest:
    return WebRequest(method="GET", path="/", headers={"host": host}, request_id="")


@pytest.mark.parametrize("damage", ["no file", "another key", "no key", "not PEM"])
def test_a_certificate_that_cannot_be_used_is_told_at_the_start(damage: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, other = authority.issue("server"), authority.issue("other")
    key = {"no file": tmp_path / "none", "another key": other.key, "no key": certificate.certificate}.get(damage)
    if key is None:
        key = tmp_path / "text"
        key.write_text("no key")
    settings = settings_with(tls_certificate=str(certificate.certificate), tls_key=str(key))
    blamed = "web.tls_key" if damage == "no file" else "web.tls_certificate"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(blamed)} = "):
        serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()).__enter__()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first = authority.issue("first")
    shown = Certificate(certificate=tmp_path / "shown.pem", key=tmp_path / "shown.key")

    def renew(by: Certificate) -> None:
        for new, place in ((by.certificate, shown.certificate), (by.key, shown.key)):
            (tmp_path / "new").write_bytes(new.read_bytes())
            (tmp_path / "new").replace(place)

    renew(first)
    settings = settings_with(
        tls_certificate=str(shown.certificate),
        tls_key=str(shown.key),
        users_file=str(with_three_users(tmp_path)),
        hsts_seconds="3600",
    )
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (_, port):
        assert serial_seen(port, authority) == serial_of(first)
        second = authority.issue("second")
        renew(second)
        assert serial_seen(port, authority) == serial_of(second)
        shown.key.write_text("half of it")
        assert serial_seen(port, authority) == serial_of(second)
        context = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        connection.request("GET", "/api/v1/status")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("strict-transport-security")) == (401, "max-age=3600")
        connection.close()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE")
        assert serial_seen(port, authority, context) == serial_of(second)
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        plain.request("GET", "/login")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
        plain.close()


def test_a_key_that_every_login_reads_is_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    issued = Authority(tmp_path).issue("server")
    web = settings_with(tls_certificate=str(issued.certificate), tls_key=str(issued.key)).web
    server_certificate(web)
    assert "web_file_open" not in caplog.text
    issued.key.chmod(0o644)
    server_certificate(web)
    assert "web_file_open" in caplog.text


def serial_seen(port: int, authority: Authority, context: ssl.SSLContext | None = None) -> str:
    context = context or ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        found = connection.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def serial_of(certificate: Certificate) -> str:
    decoded = ssl._ssl._test_decode_cert(str(certificate.certificate))  # type: ignore[attr-defined]
    return str(decoded["serialNumber"])
