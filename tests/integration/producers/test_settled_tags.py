"""What a changed filter asks of an outbox, on every database: the kept tags, pages by time, rows that are NEW again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from reconciler.policy.sweeping import OutboxFact, SettledTags
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import reading
from tests.unit.producers.world import GROUP, World, new_key

BILLING = ("ORDERS", "billing")


def test_of_several_sweepers_that_read_one_value_one_replaces_it(world: World) -> None:
    outbox = world.outbox()
    assert outbox.settled_tags(GROUP) == {}
    for version, tags in ((None, frozenset({"paid"})), (1, frozenset({"PAID"})), (2, None)):
        with ThreadPoolExecutor(4) as pool:
            written = pool.map(
                lambda _, version=version, tags=tags: world.outbox().write_settled_tags(
                    GROUP, BILLING, tags, instead_of=version
                ),
                range(4),
            )
            assert sorted(written) == [False, False, False, True]
        assert outbox.settled_tags(GROUP) == {BILLING: SettledTags(tags=tags, version=(version or 0) + 1)}
    assert outbox.settled_tags("another") == {}


def test_rows_are_read_in_pages_by_time_and_only_settled_and_announced_ones_are_new_again(world: World) -> None:
    outbox = world.outbox()
    with reading(world.engine) as connection:
        now_ms = database_now_ms(connection)
    keys = sorted(new_key() for _ in range(5))
    for key, state in zip(keys, ("SETTLED", "ANNOUNCED", "SETTLED", "NEW", "ROLLED_BACK"), strict=True):
        world.insert_row(key, state=state, created_at_ms=now_ms - 60_000, settled_at_ms=7)
    world.insert_row(new_key(), state="SETTLED", created_at_ms=now_ms - 7_200_000)
    world.insert_row(new_key(), state="SETTLED", created_at_ms=now_ms - 60_000, producer_group="another")
    pages: list[list[str]] = []
    after: OutboxFact | None = None
    while after is None or pages[-1]:
        page = outbox.written(GROUP, younger_than_seconds=3_600, limit=2, after=after)
        pages.append([fact.unique_key for fact in page.facts])
        after = page.facts[-1] if page.facts else after
    assert pages == [keys[:2], keys[2:4], keys[4:], []]
    assert outbox.reopen(keys) == 3
    assert [world.state(key) for key in keys] == ["NEW", "NEW", "NEW", "NEW", "ROLLED_BACK"]
    assert world.row(keys[0]).settled_at_ms is None
