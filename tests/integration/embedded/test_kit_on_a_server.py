"""The test kit where a database server tells the time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.testing import Checkback
from tests.services.postgres import PostgresServer
from tests.unit.testing.shop import Shop


@pytest.mark.sql("postgres")
def test_accidents_are_made_up_for_in_real_time_and_nothing_pretends_to_move_it(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with closing(Checkback(postgres_server.create_database(), folder=tmp_path)) as kit:
        shop = Shop(kit)
        for number, happens in enumerate((lambda: None, kit.lose_next_end, kit.kill_producer_before_end)):
            happens()
            shop.place(number)
            settled = kit.settle()
            assert settled.is_at_rest
            assert settled.moved_seconds == 0
        kit.assert_every_commit_took_effect()
        assert shop.bills() == [0, 1, 2]
        with pytest.raises(UsageError, match=r"a database server tells the time, which no test moves"):
            kit.advance(1)
        with pytest.raises(UsageError, match=r"a database server tells the time, which no test moves"):
            kit.step_clock("database", 1)
        with pytest.raises(UsageError, match=r"stop the replication of a real replica"):
            kit.hold_replica("order-service")
