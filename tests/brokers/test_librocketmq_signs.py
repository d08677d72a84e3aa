"""librocketmq signs as Java does: a broker that verifies lets its producers and consumers in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from tests.services.requirements import downloaded
from tests.services.wheel_environment import wheel_python

PROGRAM = Path(__file__).parent / "native" / "signed_client.py"
RIGHTS = ("PUB topic ORDERS", "SUB topic ORDERS", "GET topic ORDERS", "SUB group native-consumers")

pytestmark = pytest.mark.native


@pytest.mark.parametrize("family", [pytest.param("4.9", marks=pytest.mark.nightly), "5.x"])
@pytest.mark.parametrize("secret", ["secret-of-the-user", "another"])
def test_librocketmq_with_the_right_keys_is_let_in_and_with_wrong_ones_is_not(
    family: str, secret: str, tmp_path: Path
) -> None:
    user = BrokerUser(access_key="native", secret_key="secret-of-the-user", rights=RIGHTS)
    with EmbeddedBroker(family=family, users=[user]) as broker:
        done = subprocess.run(
            [downloaded(wheel_python), PROGRAM, broker.name_servers, "native", secret],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=tmp_path,
        )
    assert (done.returncode == 0) == (secret == user.secret_key), done.stderr[-2000:]
