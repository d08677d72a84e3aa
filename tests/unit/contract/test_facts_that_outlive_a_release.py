"""What is in databases and in Redis after an upgrade: digests, key names, and tables that the states fit into."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.contract import verdicts
from reconciler.contract.content_digest import content_digest, content_keys, digest_of_message
from reconciler.contract.hand_over import decode_hand_over
from reconciler.contract.keyspace import ShardKeys, meta_key, offsets_field
from reconciler.contract.properties import RESERVED, user_properties
from reconciler.contract.schema import Table
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import (
    INBOX_TABLES,
    LEDGER_TABLES,
    OUTBOX_TABLES,
    CandidateState,
    HoldKind,
    OutboxState,
    RepairState,
    Rung,
)
from reconciler.contract.verdicts import Verdict
from reconciler.errors import MalformedInput

KEY = "7F00000100002A9F0000000000000090"
SUBSCRIPTION = Subscription(environment="prod", topic="ORDERS", group="billing")
TABLES = (*OUTBOX_TABLES, *INBOX_TABLES, *LEDGER_TABLES)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
#: Contents of which two are compared; the small alphabet makes near misses likely.
contents = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "TT"]),
        "tags": st.none() | st.sampled_from(["a", "ab"]),
        "keys": st.none() | st.sampled_from(["a", "b", "ab"]),
        "properties": st.dictionaries(st.sampled_from(["a", "b", "ab"]), st.sampled_from(["", "a", "b", "ab"])),
        "body": st.sampled_from([b"", b"a", b"b", b"ab", b"\0\0\0\x01a"]),
    }
)


def digest(**changes: object) -> bytes:
    content = {"topic": "ORDERS", "tags": "paid", "keys": "o-1 c-7", "properties": {"b": "2", "a": "1"}, "body": b"x"}
    return content_digest(**(content | changes))  # type: ignore[arg-type]  # the changes have the right types


def test_a_digest_of_last_year_still_fits() -> None:
    parts = (b"ORDERS", b"paid", b"o-1 c-7", b"a", b"1", b"b", b"2", b"x")
    assert digest() == hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def test_half_of_a_surrogate_pair_is_an_error_and_not_what_java_makes_of_it() -> None:
    assert digest(tags="\ud800a", properties={"b\udc00": "2"}) == digest(tags="?a", properties={"b?": "2"})


@given(contents, contents)
def test_two_contents_have_one_digest_only_if_a_consumer_sees_the_same(one: dict, other: dict) -> None:  # type: ignore[type-arg]  # fixed_dictionaries
    def seen(content: dict) -> tuple[object, ...]:  # type: ignore[type-arg]
        return (
            content["topic"],
            content["tags"] or "",
            content["keys"] or "",
            sorted(content["properties"].items()),
            content["body"],
        )

    assert (content_digest(**one) == content_digest(**other)) == (seen(one) == seen(other))


def test_what_the_broker_adds_does_not_change_the_digest() -> None:
    added = {"b": "2", "a": "1", "UNIQ_KEY": KEY, "TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "3", "CLUSTER": "c"}
    assert digest(properties=added) == digest()
    # By the timer of 5.4 while a retry waits: cleared before it is delivered, never set by a service.
    assert digest(properties=added | {"TIMER_ROLL_LABEL": "R"}) == digest()
    assert digest(properties={"b": "2", "a": "1", "TRACE_CONTEXT": "t"}) != digest(), "a service may have set it"
    assert digest(properties={"b": "2", "a": "1", "BUSINESS_ID": "9"}) != digest()


def test_the_index_key_of_old_brokers_is_no_part_of_the_content() -> None:
    plain = {"KEYS": "o-1 c-7", "TAGS": "paid", "a": "1"}
    indexed = plain | {"KEYS": f"{KEY} o-1 c-7"}
    digests = [
        digest_of_message(topic="ORDERS", unique_key=KEY, properties=properties, body=b"x")
        for properties in (plain, indexed)
    ]
    assert digests[0] == digests[1] == digest(properties={"a": "1"})
    assert content_keys(KEY, KEY) == content_keys(None, KEY) == ""
    assert content_keys(f"o-1 {KEY}", KEY) == f"o-1 {KEY}", "only the first one is ours"


@given(st.dictionaries(texts | st.sampled_from(sorted(RESERVED)), texts))
def test_no_reserved_property_passes_for_the_users(properties: dict[str, str]) -> None:
    kept = user_properties(properties)
    assert list(kept) == sorted(properties.keys() - RESERVED)
    assert kept.items() <= properties.items()


def test_all_keys_of_a_shard_live_in_one_cluster_slot_and_none_is_used_twice() -> None:
    keys = ShardKeys(Shard(subscription=SUBSCRIPTION, number=3))
    names = [
        keys.half,
        keys.commit,
        keys.commit_generation(1),
        keys.commit_generation(2),
        keys.new,
        keys.pending,
        keys.generation,
        keys.offsets,
        keys.epoch,
        keys.round_lease,
        keys.announcement_lease("broker-a"),
        keys.announcement_lease("broker-b"),
    ]
    assert len(set(names)) == len(names)
    assert {name[: name.index("}") + 1] for name in names} == {"reconciler:v1:{prod:ORDERS:billing:3}"}
    assert keys.half == "reconciler:v1:{prod:ORDERS:billing:3}:half", "a later release must find what this one wrote"
    assert keys.commit_generation(1) == f"{keys.commit}:1"


def test_shards_subscriptions_and_environments_share_no_key() -> None:
    others = [
        Shard(subscription=SUBSCRIPTION, number=30),
        Shard(subscription=Subscription(environment="prod", topic="ORDERS", group="shipping"), number=3),
        Shard(subscription=Subscription(environment="test", topic="ORDERS", group="billing"), number=3),
    ]
    roots = {ShardKeys(shard).root for shard in (Shard(subscription=SUBSCRIPTION, number=3), *others)}
    assert len(roots) == 4
    assert meta_key(SUBSCRIPTION) == "reconciler:v1:{prod:ORDERS:billing}:meta"
    assert offsets_field("broker-a", 12) == "broker-a/12"


def test_people_read_subscriptions_and_shards() -> None:
    assert str(Shard(subscription=SUBSCRIPTION, number=3)) == "ORDERS/billing#3"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_names_only_columns_that_it_has(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert table.primary_key
    for group in (
        table.primary_key,
        *table.indexes,
        *table.sparse_indexes,
        table.undecided_index,
        *table.unique,
        *map(table.columns_of, table.page_indexes),
    ):
        assert set(group) <= set(names)
    assert not [c.name for c in table.columns if c.nullable and c.name in table.primary_key]
    assert not [c.name for c in table.columns if c.name.endswith("_ms") and c.kind != "bigint"]


def test_every_state_fits_into_its_column() -> None:
    kinds = {(table.name, column.name): column.kind for table in TABLES for column in table.columns}
    stored = {
        ("reconciler_outbox", "state"): OutboxState,
        ("reconciler_candidate", "state"): CandidateState,
        ("reconciler_candidate", "verdict"): Verdict,
        ("reconciler_candidate", "loss_verdict"): Verdict,
        ("reconciler_repair", "state"): RepairState,
        ("reconciler_repair", "rung"): Rung,
        ("reconciler_hold", "kind"): HoldKind,
    }
    for place, values in stored.items():
        assert kinds[place] == "short"
        assert max(len(value.value) for value in values) <= 32


def test_every_verdict_is_explained_and_leads_to_exactly_one_thing() -> None:
    assert set(verdicts.MEANINGS) == set(Verdict)
    groups = (verdicts.LOSSES, verdicts.SETTLING, verdicts.QUARANTINING, verdicts.WAITING)
    assert {verdict: sum(verdict in group for group in groups) for verdict in Verdict} == dict.fromkeys(Verdict, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "version"),
        ('{"v":2}', "version"),
        ('{"v":1}', "properties"),
        ('{"v":1,"properties":{"a":1}}', "properties"),
        ('{"v":1,"properties":{},"unique_key":"short"}', "unique key"),
        (f'{{"v":1,"properties":{{}},"unique_key":"{KEY}"}}', "topic"),
    ],
)
def test_a_damaged_hand_over_row_names_its_field(text: str, reason: str) -> None:
    with pytest.raises(MalformedInput, match=reason):
        decode_hand_over(text)
