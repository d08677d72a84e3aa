"""An environment gets another name by the steps of rename.md: what a person dismissed is not sent under the new
one, what was lost under the old one is, and nothing happens twice."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import QUICK
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(300),
]  # fmt: skip

PAGE = (Path(__file__).parents[2] / "docs/how-to/rename.md").read_text(encoding="utf-8")
#: The last section is [sweep].
SETTINGS = f"{QUICK}announce_again_after_seconds = 4.0\n"


def test_under_the_new_environment_what_was_dismissed_stays_unsent_and_what_was_lost_is_repaired_once(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(settings=SETTINGS)
    old, new = deployed.environment, f"{deployed.environment}-live"
    services = [deployed.run("run"), deployed.run("sweep")]
    member, producer = deployed.consume(), deployed.producer()
    done = deployed.commit(3, producer=producer)
    eventually(lambda: deployed.effects() == sorted(done), within_seconds=60)
    eventually(lambda: all(service.takes_signals for service in services), within_seconds=60)
    assert [service.end() for service in services] == [0, 0]
    (paid,) = deployed.commit(1, lose=True, producer=producer)
    deployed.note_verdict(paid, "DEAD_LETTERED")
    assert deployed.command("dismiss", paid, "--reason", "paid by hand").exit_code == 0
    (lost,) = deployed.commit(1, lose=True, producer=producer)  # pending in nobody's Redis yet
    member.shutdown()
    producer.shutdown()
    (statements,) = re.findall(r"```sql\n(\s+UPDATE reconciler_candidate SET environment.*?)```", PAGE, re.DOTALL)
    with closing(sqlite3.connect(deployed.ledger)) as db, db:
        db.executescript(statements.replace("'live'", f"'{new}'").replace("'staging'", f"'{old}'"))
    deployed.config.write_text(deployed.config.read_text().replace(f'"{old}"', f'"{new}"'))
    deployed.environment = new
    deployed.run("run")
    deployed.run("sweep")
    deployed.consume()
    producer = deployed.producer()
    later = deployed.commit(2, producer=producer)
    every = sorted([*done, lost, *later])
    eventually(lambda: deployed.effects() == every, within_seconds=90)

    def told() -> list[str]:
        document = deployed.command("status", "--output", "json").document
        return [line for name in ("away", "late", "undecided", "doubled", "damaged") for line in document[name]]

    # Nothing but the announcements of the old name, for an hour.
    refused = f"announced for '{old}', this is '{new}'"
    eventually(lambda: [refused in line for line in told()] == [True], within_seconds=90)
    again = "SELECT count(*) FROM reconciler_outbox WHERE state = 'ANNOUNCED' AND unique_key = ?"
    with closing(sqlite3.connect(deployed.outbox)) as db:
        assert db.execute(again, [paid]).fetchone() == (1,), "it is announced again, and its verdict stays"
    assert deployed.effects() == every
    assert paid not in deployed.copies()
