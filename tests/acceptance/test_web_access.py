"""The console for other machines: users, a token and TLS by the installed command, which writes no secret down."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Service
from tests.acceptance.marked_secrets import marked
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
HOST = "reconciler.example"


class Visitor:
    """A browser or a program, who trusts the authority and knows the server by its public name."""

    def __init__(self, port: int, authority: Path) -> None:
        self.port = port
        self.context = ssl.create_default_context(cafile=str(authority))

    def ask(self, path: str, *, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.context)
        sent = {"Host": f"{HOST}:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if form is not None:
            sent |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://{HOST}:{self.port}"}
        try:
            body = None if form is None else urlencode(form)
            connection.request("GET" if form is None else "POST", path, body=body, headers=sent)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()


def test_people_and_programs_come_in_over_tls_and_leave_no_secret_behind(tmp_path: Path) -> None:
    port, users_file = free_port(), tmp_path / "users.json"
    authority = Authority(tmp_path / "authority")
    certificate = authority.issue("web")
    variables = {
        "RECONCILER_CONFIG": str(ROOT / "config" / "reconciler.toml"),
        "RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db",
        "RECONCILER_WEB__LISTEN": f"0.0.0.0:{port}",
        "RECONCILER_WEB__USERS_FILE": str(users_file),
    }
    refused = reconciler("web", environment=variables)
    assert refused.exit_code == 2
    assert "plain text" in refused.stderr
    variables |= {
        "RECONCILER_WEB__HOST_NAMES": f'["{HOST}"]',
        "RECONCILER_WEB__TLS_CERTIFICATE": str(certificate.certificate),
        "RECONCILER_WEB__TLS_KEY": str(certificate.key),
    }
    password = marked("password")
    added = reconciler("web", "user", "add", "alice", "--role", "viewer", environment=variables, answer=f"{password}\n")
    assert added.exit_code == 0, added.stderr
    assert "$m=65536,t=3,p=4$" in users_file.read_text(), "RFC 9106, 4: the low-memory parameters"
    token = reconciler(
        "web", "token", "add", "ci", "--role", "viewer", "--days", "1", environment=variables
    ).stdout.strip()
    service = Service(tmp_path / "web.log", ["web"], variables=variables)
    try:
        visitor = Visitor(port, authority.file)
        eventually(lambda: "web_listening" in service.output, within_seconds=60)
        code, told, _ = visitor.ask("/?topic=ORDERS")
        assert (code, told["location"]) == (303, "/login?next=%2F%3Ftopic%3DORDERS")
        assert visitor.ask("/api/v1/status")[0] == 401
        wrong = visitor.ask("/login", form={"name": "alice", "password": f"{password}x"})
        assert wrong[0] == 403
        code, told, _ = visitor.ask("/login", form={"name": "alice", "password": password, "next": "/?topic=ORDERS"})
        assert (code, told["location"]) == (303, "/?topic=ORDERS")
        cookie = told["set-cookie"].partition(";")[0]
        assert cookie.startswith("__Host-")
        assert "; Secure" in told["set-cookie"]
        # Allowed, and so told that no ledger answers.
        assert visitor.ask("/api/v1/status", Cookie=cookie)[0] == 503
        assert visitor.ask("/api/v1/status", Authorization=f"Bearer {token}")[0] == 503
        code, _, problem = visitor.ask("/api/v1/repairs", form={}, Authorization=f"Bearer {token}")
        assert (code, json.loads(problem)["role"]) == (403, "operator")
        assert reconciler("web", "user", "remove", "alice", environment=variables).exit_code == 0
        eventually(lambda: visitor.ask("/api/v1/status", Cookie=cookie)[0] == 401, within_seconds=30)
    finally:
        assert service.end() == 0
    for event in ("web_login_refused", "web_login", "web_refused", "web_session_ended"):
        assert f'"{event}"' in service.output
    for secret in (token, cookie.partition("=")[2]):
        assert secret not in service.output
        assert secret not in users_file.read_text()
