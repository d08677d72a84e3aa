"""Real brokers with access control, or with TLS alone: doctor and status say what they want."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.reading import read_status
from reconciler.errors import AccessRefused, Lacking
from reconciler.rocketmq.client import demands
from reconciler.rocketmq.client.demands import REMEDIES, PeerDemand
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.rocketmq import RocketMQCluster, marks
from tests.settings_file import settings_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_AUTH = "org.apache.rocketmq.auth.authentication.provider"
ACCESS_CONTROL = {
    "4.9.7": {"aclEnable": "true"},
    "5.3.3": {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"admin","password":"admin"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"admin","secretKey":"admin"}',
    },
}
_UNSIGNED = AccessRefused(Lacking.SIGNATURE, request="")
PLAIN_ACL = "accounts:\n  - accessKey: somebody\n    secretKey: somebodysSecret\n    admin: true\n"


@pytest.mark.parametrize(
    ("version", "wants"),
    [
        pytest.param("4.9.7", PeerDemand.WANTS_AUTHENTICATION, marks=marks("4.9.7")),
        pytest.param("5.3.3", PeerDemand.WANTS_AUTHENTICATION, marks=[*marks("5.3.3"), pytest.mark.nightly]),
        pytest.param("5.3.3", PeerDemand.WANTS_TLS, marks=[*marks("5.3.3"), pytest.mark.nightly]),
    ],
)
def test_broker_that_wants_more_than_this_client_gives_is_not_merely_away(
    version: str, wants: PeerDemand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demands, "_HANDSHAKE_SECONDS", 30.0)
    cluster = RocketMQCluster(
        version, properties=ACCESS_CONTROL[version] if wants == PeerDemand.WANTS_AUTHENTICATION else None
    )
    broker = cluster.broker()
    (broker.folder / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    if wants == PeerDemand.WANTS_TLS:
        broker.java_options = ("-Dtls.server.mode=enforcing",)
        cluster.name_server.java_options = ("-Dtls.server.mode=permissive",)  # such a broker speaks TLS to it
    with cluster:
        lines = ("rocketmq.request_timeout_seconds = 20", 'unique_key_topic.name = "TBW102"')
        config = settings_file(tmp_path, *lines, name_servers=cluster.name_servers, has_ledger=True)
        settings = load_settings(config, {})
        with Connections(settings) as connections:
            (finding,) = (f for f in (one.as_row() for one in examine(connections)) if f.check == "broker broker-1")
        assert (finding.level, finding.remedy) == (
            "fail",
            _UNSIGNED.remedy if wants == PeerDemand.WANTS_AUTHENTICATION else REMEDIES[wants],
        )
        assert finding.found.startswith(f"{wants}: ")
        with Connections(settings) as connections:
            report = read_status(connections)
        assert report.exit_code == 3
        (told,) = [lines for gone, lines in report.following.items() if f"{wants}: " in said(gone)]
        assert any("broker-1 gives no offsets of TBW102" in said(line) for line in told)
