"""Doctor and status name what TLS fails at: it is neither calm nor a topic that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.reading import read_status
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.tls import ServerTls, TlsMode
from reconciler.rocketmq.client.demands import REMEDIES, PeerDemand
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.certificates import Authority
from tests.settings_file import settings_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.issue("server")
    Authority(made.folder, "stranger")
    return made


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[EmbeddedBroker]:
    folder = authority.folder
    tls = ServerTls(certificate_file=folder / "server.pem", key_file=folder / "server.key", mode=TlsMode.ENFORCING)
    with EmbeddedBroker(tls=tls) as running:
        yield running


def settings(folder: Path, broker: EmbeddedBroker, tls: str) -> Settings:
    return load_settings(settings_file(folder, tls, name_servers=broker.name_servers, has_ledger=True), {})


@pytest.mark.parametrize(
    ("ca_file", "demand", "words"),
    [
        (None, PeerDemand.WANTS_TLS, "seems to demand TLS"),
        ("stranger.pem", PeerDemand.TLS_FAILS, "signed by no authority of"),
        ("authority.pem", None, "knows embedded"),
    ],
)
def test_doctor_and_status_name_it(
    tmp_path: Path,
    authority: Authority,
    broker: EmbeddedBroker,
    ca_file: str | None,
    demand: PeerDemand | None,
    words: str,
) -> None:
    tls = ""
    if ca_file is not None:
        tls = f'rocketmq.tls = {{ enabled = true, ca_file = "{authority.folder / ca_file}" }}'
    chosen = settings(tmp_path, broker, tls)
    with Connections(chosen) as connections:
        (finding,) = (f for f in (one.as_row() for one in examine(connections)) if f.check.startswith("name server"))
    assert words in finding.found
    if demand is None:
        assert finding.level == "ok"
        return
    assert (finding.level, finding.remedy) == ("fail", REMEDIES[demand])
    assert finding.found.startswith(f"{demand}: ")
    with Connections(chosen) as connections:
        report = read_status(connections)
    assert report.exit_code == 3
    assert any(words in said(line) for line in report.late_lines), report.late_lines
