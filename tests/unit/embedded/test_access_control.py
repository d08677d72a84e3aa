"""The embedded broker refuses as real ones do, and each refusal is told as one: by client, doctor and status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.reading import read_status
from reconciler.embedded.access_control import BrokerUser, read_users
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import AccessRefused, ConfigurationError, InvalidValue, Lacking
from reconciler.evidence.lookup import Lookups
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.producer.ending import EndDecision, EndRequest, EndStatus, end_transaction
from reconciler.rocketmq.wire.access_refusal import access_refusal
from reconciler.rocketmq.wire.access_rights import acl_demands
from reconciler.rocketmq.wire.acl import AclCredentials, RequestSigner
from reconciler.rocketmq.wire.codes import RequestCode, retry_topic
from reconciler.rocketmq.wire.frame import Command
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.secured_roles import GROUP, SECRET, TOPIC, settings_of, user_of

FAMILIES = ("4.4", "4.9", "5.x")
POOR = BrokerUser(access_key=user_of("run"), secret_key=SECRET)
ADMIN = BrokerUser(access_key="administrator", secret_key=SECRET, is_admin=True)
KEY = "7F0000012E2A675B5F10640800000001"
LOOK_UP = Command(
    code=RequestCode.QUERY_MESSAGE,
    fields={"topic": TOPIC, "key": KEY, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"},
)


@contextmanager
def broker(family: str) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(family=family, users=[POOR, ADMIN]) as opened:
        yield opened


def keys(access_key: str, secret: str = SECRET) -> AclCredentials:
    return AclCredentials(access_key=access_key, secret_key=secret)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("acl", "lacking", "named"),
    [
        (None, Lacking.SIGNATURE, "set rocketmq.acl"),
        (keys("stranger"), Lacking.USER, "does not know user stranger"),
        (keys("administrator", "another-secret"), Lacking.SECRET, "did not accept the signature of user administrator"),
        (keys(POOR.access_key), Lacking.RIGHT, f"on topic {TOPIC} at every broker"),
    ],
    ids=["unsigned", "stranger", "wrong secret", "no right"],
)
def test_each_refusal_names_what_is_lacking(
    family: str, acl: AclCredentials | None, lacking: Lacking, named: str
) -> None:
    with broker(family) as opened, RemotingClient(acl=acl) as client:
        with pytest.raises(AccessRefused, match=named) as caught:
            client.request(opened.address, LOOK_UP)
        assert caught.value.lacking is lacking
        assert SECRET not in str(caught.value)
        assert "another-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "fields", "demanded"),
    [
        (RequestCode.SEND_MESSAGE, {"topic": "T"}, ["PUB on topic T"]),
        (RequestCode.SEND_MESSAGE_V2, {"b": "T"}, ["PUB on topic T"]),
        (RequestCode.SEND_MESSAGE, {"topic": "%RETRY%G", "group": "G"}, ["SUB on group G"]),
        (RequestCode.SEND_MESSAGE_V2, {"b": "%RETRY%G", "a": "G"}, ["SUB on group G"]),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "G"}, ["SUB on group G"]),
        (RequestCode.PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, ["SUB on topic T", "SUB on group G"]),
        (RequestCode.QUERY_MESSAGE, {"topic": "T"}, ["SUB on topic T"]),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": "P"}, []),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "G"}, ["SUB on group G"]),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, ["SUB on group G"]),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"topic": "T", "consumerGroup": "G"},
            ["SUB on group G", "SUB on topic T"],
        ),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, ["admin: true"]),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"topic": "T", "consumerGroup": "G"}, []),
    ],
)
def test_what_acl_demands_names_the_topic_and_the_group(
    code: RequestCode, fields: dict[str, str], demanded: list[str]
) -> None:
    """PlainAccessResource.parse of 4.9.7."""
    assert [str(demand) for demand in acl_demands(code, fields, b"")] == demanded


@pytest.mark.parametrize("family", FAMILIES)
def test_a_user_with_every_right_is_let_in_and_signed_one_way_requests_arrive(family: str) -> None:
    with broker(family) as opened, RemotingClient(acl=keys("administrator")) as client:
        assert client.request(opened.address, LOOK_UP).code == 22
        Admin(client).create_topic(opened.address, TOPIC, queues=1)
        Admin(client).create_group(opened.address, GROUP)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        stored = Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, fields={**fields, "commitOffset": "7"})
        client.oneway(opened.address, stored)
        asked = client.request(opened.address, Command(code=RequestCode.QUERY_CONSUMER_OFFSET, fields=fields))
        assert asked.fields["offset"] == "7"


@pytest.mark.parametrize(
    ("family", "version", "is_signed_over"),
    [("4.4", 479, True), ("4.9", 479, False), ("5.x", 479, True), ("5.x", 399, False)],
)
def test_unique_key_query_is_verified_by_the_releases_that_verify_it(
    family: str, version: int, is_signed_over: bool
) -> None:
    """Real ones: 4.4.0 to 4.6.1 verify the field, 4.7.0 to 5.0.0 do not, later ones do for clients after 4.9.3."""
    plain = Command(code=12, version=version, fields={**LOOK_UP.fields, "_UNIQUE_KEY_QUERY": "true"})
    signer = RequestSigner(keys("administrator"))
    over_all = signer.sign(plain)
    without = signer.sign(Command(code=12, version=version, fields=LOOK_UP.fields))
    over_less = Command(code=12, version=version, fields={**without.fields, "_UNIQUE_KEY_QUERY": "true"})
    with broker(family) as opened, RemotingClient() as client:
        right, wrong = (over_all, over_less) if is_signed_over else (over_less, over_all)
        assert client.request(opened.address, right).code == 22
        with pytest.raises(AccessRefused, match="did not accept"):
            client.request(opened.address, wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refusal_is_neither_absence_nor_end_nor_an_empty_list(family: str) -> None:
    with broker(family) as opened:
        with RemotingClient(acl=keys("administrator")) as client:
            Admin(client).create_topic(opened.address, TOPIC, queues=1)
        with ClientInstance(opened.name_servers, acl=keys("stranger")) as instance:
            lookups = Lookups(instance.client, instance.routes, instance.families)
            for found in (
                lookups.find(TOPIC, KEY)(),
                lookups.view_message(TOPIC, KEY)(),
                lookups.at_offset(TOPIC, "embedded", 0, KEY)(),
            ):
                assert found.is_unknown
                assert "does not know user stranger" in said(found.reason)
            with pytest.raises(AccessRefused):  # code 1 means "no producer is connected" otherwise
                Admin(instance.client).producer_connections(opened.address, "order-service")
            end = EndRequest(
                address=opened.address,
                producer_group="order-service",
                tran_state_table_offset=0,
                commit_log_offset=0,
                decision=EndDecision.COMMIT,
                message_id=KEY,
            )
            assert end_transaction(instance.client, end).status is EndStatus.REFUSED_FOR_NOW


@pytest.mark.parametrize("family", FAMILIES)
def test_doctor_and_status_name_every_right_to_read_that_is_lacking(family: str, tmp_path: Path) -> None:
    schema.upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    with broker(family) as opened:
        with RemotingClient(acl=keys("administrator")) as client:
            for topic in (TOPIC, "RECONCILER_UNIQUE_KEY"):
                Admin(client).create_topic(opened.address, topic, queues=1)
        settings = settings_of("run", opened.name_servers, tmp_path)
        with Connections(settings) as connections:
            found = [f for f in (one.as_row() for one in examine(connections)) if f.check == "rights at brokers"]
        named = "\n".join(f.remedy for f in found)
        for resource in ("topic RMQ_SYS_TRANS_HALF_TOPIC", f"topic {TOPIC}", "topic RECONCILER_PROBE"):
            assert f" on {resource} at every broker" in named
        assert {f.level for f in found} == {"fail"}
        with Connections(settings) as connections:
            status = read_status(connections)
        assert status.exit_code == 3
        away = [said(line) for line in status.away]
        assert any(line.startswith("rights at brokers: ") and f"user {POOR.access_key} lacks" in line for line in away)
        assert not [line for line in (*away, named) if SECRET in line]


_NO_PERMISSION = "User:nobody has no permission to access {} from 127.0.0.1, no matched policies."
_NOT_ADMIN = "Need admin permission for request code=17, but accessKey=nobodynobody is not"
#: As 4.9.7 (code 1) and 5.3.3 (code 16) sent them: code, request, its fields, words, the right.
SENT: tuple[tuple[int, RequestCode, dict[str, str], str, str], ...] = (
    (1, RequestCode.PULL_MESSAGE, {"topic": "T"}, "No default permission for topic:T", "SUB on topic T"),
    (1, RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "G"}, "No default permission for group:G", "SUB on group G"),
    (1, RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}, _NOT_ADMIN, "admin: true"),
    (16, RequestCode.GET_MAX_OFFSET, {"topic": "T"}, _NO_PERMISSION.format("Topic:T"), "GET on topic T"),
    (16, RequestCode.GET_PRODUCER_CONNECTION_LIST, {}, _NO_PERMISSION.format("Cluster:C1"), "GET on cluster C1"),
    (16, RequestCode.HEART_BEAT, {}, _NO_PERMISSION.format("Group:G"), "SUB on group G"),
)


@pytest.mark.parametrize(("code", "request_code", "fields", "words", "right"), SENT)
def test_words_of_real_brokers_become_the_right_to_grant(
    code: int, request_code: RequestCode, fields: dict[str, str], words: str, right: str
) -> None:
    trace = "org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm(PlainPermissionManager.java:605)"
    remark = words if code == 16 else f"org.apache.rocketmq.acl.common.AclException: {words}, {trace}"
    refused = access_refusal(Command(code=code, remark=remark), request_code, fields, "a:1")
    assert refused is not None
    assert (refused.lacking, refused.right, refused.remark) == (Lacking.RIGHT, right, words)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (16, "the topic[ORDERS] sending message is forbidden"),
        (1, "the producer group[P] not exist"),
        (1, None),
        (22, "AclException: x"),
    ],
)
def test_other_answers_with_these_codes_are_no_refusals(code: int, remark: str | None) -> None:
    assert access_refusal(Command(code=code, remark=remark), 10, {}, "a:1") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"has no \[\[users\]\]"),
        ("users = 1", r"has no \[\[users\]\]"),
        ("[[users", "no TOML"),
        ('[[users]]\naccess_key = "a"', "needs access_key and secret_key"),
        ('[[users]]\naccess_key = "a"\nsecret_key = "marked"\nright = []', "has right"),
        ('[[users]]\naccess_key = "a"\nsecret_key = "marked"\nrights = [1]', "no list of texts"),
    ],
)
def test_file_of_users_that_cannot_work_says_why_without_the_secret(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_users(tmp_path / "users.toml")
    assert "marked" not in str(caught.value)


@pytest.mark.parametrize("right", ["PUB ORDERS", "PUB queue ORDERS", "READ topic ORDERS"])
def test_right_that_means_nothing_is_refused_before_the_broker_starts(right: str) -> None:
    user = BrokerUser(access_key="a", secret_key="b", rights=(right,))
    with pytest.raises(InvalidValue, match="PUB topic ORDERS"):
        EmbeddedBroker(users=[user]).start()


def test_releases_without_access_control_take_no_users() -> None:
    with pytest.raises(InvalidValue, match=r"4\.4 or a newer one"):
        EmbeddedBroker(family="4.2", users=[ADMIN]).start()


def test_retry_topic_of_a_group_with_an_instance_id_is_that_of_java() -> None:
    """NamespaceUtil.wrapNamespace puts the instance id behind the prefix of the retry topic."""
    assert retry_topic("MQ_INST_1_ab%billing") == "%RETRY%MQ_INST_1_ab%billing"
