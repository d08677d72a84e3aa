"""Fifty mistakes of people who set it up on a real 5.3.3 with users and TLS: exit code, and what the first line names.

The first line of what a person reads: of the errors, else of the answer; of `doctor`, of its first failed check.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_secured_cluster import Secured, secured
from tests.ended import Ended
from tests.services.certificates import Authority
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import marks

__all__ = ["secured"]

pytestmark = [
    pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1_200)
]  # fmt: skip

NOBODYS_KEY = "F" * 32


@dataclass(frozen=True, slots=True)
class Mistake:
    """What somebody wrote, what they ran, and what they have to read."""

    command: str
    exit_code: int
    #: Of the first line, or of the second where the first one only counts problems: thing, value, remedy.
    told: tuple[str, ...]
    #: Variables without RECONCILER_, which beat the file.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: What stands in the file, and what instead.
    instead: tuple[str, str] | None = None


class Shop:
    """A deployment that is right, and what a mistake can be made of."""

    def __init__(self, deployed: Deployment, secured: Secured) -> None:
        assert secured.tls is not None
        self.deployed, self.text = deployed, deployed.config.read_text()
        self.folder = deployed.folder / "mistakes"
        self.folder.mkdir()
        self.name_servers = secured.name_servers
        self.redis = deployed.redis_url
        self.tls = secured.tls
        self.dead = f"127.0.0.1:{free_port()}"
        self.others = Authority(self.folder / "others", "others")
        self.stranger = self.others.issue("stranger")

    def file(self, name: str, content: bytes) -> str:
        """A secret's file."""
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def answer_to(self, mistake: Mistake) -> Ended:
        """Runs it."""
        text = self.text
        if mistake.instead is not None:
            right, wrong = mistake.instead
            assert right in text, "the settings of the deployment have changed: change the mistake with them"
            text = text.replace(right, wrong)
        config = self.folder / "reconciler.toml"
        config.write_text(text)
        variables = {f"RECONCILER_{name}": value for name, value in mistake.variables.items()}
        words = mistake.command.split()
        asked = ["-o", "json"] if words[0] == "doctor" else []
        return reconciler(*words, *asked, environment={"RECONCILER_CONFIG": str(config)} | variables)


def first_line(ended: Ended, command: str) -> str:
    """What a person reads first."""
    if command == "doctor":
        failed = [one for one in ended.document["findings"] if one["level"] == "fail"]
        return "{check}: {found}; {remedy}".format(**failed[0]) if failed else ""
    lines = [line for line in ended.stderr.splitlines() if not line.startswith(("{", "Usage: ", "Try "))]
    lines = [line for line in lines if line.strip()] or ended.stdout.splitlines()
    return " ".join(lines[:2]) if "problem(s) in the settings" in lines[0] else lines[0]


def of_brokers(shop: Shop) -> Iterator[Mistake]:
    """Name servers, users and TLS."""
    key, dead, files = "ROCKETMQ__ACL__SECRET_KEY_FILE", shop.dead, shop.tls
    wrong = {key: shop.file("wrong", b"not-the-secret-key")}
    told: tuple[str, ...] = ("did not accept the signature of user shopkeeper", "correct secret_key")
    yield Mistake("status", 3, told, wrong)
    yield Mistake("topics create", 3, told, wrong)
    yield Mistake("explain " + NOBODYS_KEY, 3, told, wrong)
    told = ("does not know user shopkeper", "create or enable it at every broker, or correct access_key")
    yield Mistake("status", 3, told, {"ROCKETMQ__ACL__ACCESS_KEY": "shopkeper"})
    yield Mistake("status", 2, (key, "is empty"), {key: shop.file("empty", b"\n")})
    told = (key, "/nowhere/key", "No such file", "name a file that holds the value")
    yield Mistake("status", 2, told, {key: "/nowhere/key"})
    yield Mistake("status", 2, (key, "Is a directory", "name a file"), {key: str(shop.folder)})
    secret_line = next(line for line in shop.text.splitlines() if line.startswith("secret_key_file"))
    yield Mistake("status", 2, ("has access_key and no secret_key", "give both, or neither"), {}, (secret_line, ""))
    section = shop.text[shop.text.index("[rocketmq.acl]") : shop.text.index("[rocketmq.tls]")]
    yield Mistake("status", 3, ("wants a signature, and got none", "set rocketmq.acl"), {}, (section, ""))
    servers = "ROCKETMQ__NAME_SERVERS"
    remedy = "start RocketMQ, or correct rocketmq.name_servers"
    yield Mistake("status", 3, ("no name server answers", dead, "Connection refused", remedy), {servers: dead})
    yield Mistake("once", 3, ("no name server answers", dead, remedy), {servers: dead})
    unknown = "mq.nowhere.invalid:9876"
    yield Mistake("status", 3, (unknown, "Name or service not known", remedy), {servers: unknown})
    yield Mistake("config check", 2, ("'127.0.0.1'", "is no host:port"), {servers: "127.0.0.1"})
    redis = shop.redis.rpartition("@")[2].partition("/")[0]
    yield Mistake("status", 3, (redis, "correct "), {servers: redis})
    told = ("demand TLS", "set [rocketmq.tls] enabled = true")
    yield Mistake("status", 3, told, {"ROCKETMQ__TLS__ENABLED": "false"})
    told = ("is signed by no authority of", "give the certificate of its authority as [rocketmq.tls] ca_file")
    yield Mistake("status", 3, told, {"ROCKETMQ__TLS__CA_FILE": str(shop.others.file)})
    yield Mistake("status", 3, told, {"ROCKETMQ__TLS__CA_FILE": str(files.certificate_file)})
    told = ("rocketmq.tls.ca_file", "/nowhere/ca.pem", "a PEM file", "No such file")
    yield Mistake("status", 2, told, {"ROCKETMQ__TLS__CA_FILE": "/nowhere/ca.pem"})
    stranger = {
        "ROCKETMQ__TLS__CERTIFICATE_FILE": str(shop.stranger.certificate),
        "ROCKETMQ__TLS__KEY_FILE": str(shop.stranger.key),
    }
    told = ("refuse", "the certificate of this client", "[rocketmq.tls] certificate_file")
    yield Mistake("status", 3, told, stranger)
    told = ("rocketmq.tls.certificate_file", "key values mismatch", "the key is")
    yield Mistake("status", 2, told, {"ROCKETMQ__TLS__KEY_FILE": str(shop.stranger.key)})
    lines = f'certificate_file = "{files.certificate_file}"\nkey_file = "{files.key_file}"\n'
    told = ("certificate", "set [rocketmq.tls] certificate_file and key_file")
    yield Mistake("status", 3, told, {}, (lines, ""))
    told = ("does not name localhost", "add DNS:localhost to the certificate's subjectAltName")
    yield Mistake("status", 3, told, {servers: shop.name_servers.replace("127.0.0.1", "localhost")})


def of_topics(shop: Shop) -> Iterator[Mistake]:
    """Topics, groups and environments."""
    topic, keys = shop.deployed.topic, shop.deployed.unique_key_topic
    make = "run reconciler topics create"
    yield Mistake("doctor", 1, (f"topic {topic}X",), {}, (topic, f"{topic}X"))
    yield Mistake("doctor", 1, ("topic KEYS_NOWHERE", make), {"UNIQUE_KEY_TOPIC__NAME": "KEYS_NOWHERE"})
    told: tuple[str, ...] = ("no broker has the topic KEYS_NOWHERE", "run `reconciler topics create`")
    yield Mistake("status", 3, told, {"UNIQUE_KEY_TOPIC__NAME": "KEYS_NOWHERE"})
    yield Mistake("doctor", 1, (f"topic {keys}", "expected 32", make), {"UNIQUE_KEY_TOPIC__QUEUES": "32"})
    yield Mistake("doctor", 1, ("topic PROBE_NOWHERE", make), {"ROCKETMQ__PROBE_TOPIC": "PROBE_NOWHERE"})
    told = ("subscriptions[0].topic = 'ORDRES'", "no producer sends it", "add it to topics of")
    yield Mistake("config check", 2, told, {"SUBSCRIPTIONS__0__TOPIC": "ORDRES"})
    yield Mistake("hold ORDRES", 2, ("topic = 'ORDRES'", "no [[subscriptions]] section has it"))
    yield Mistake("group rename nobody somebody", 2, ("OLD = 'nobody'", "no [[subscriptions]] section has this group"))
    told = (f"{topic}/nobody", "no [[subscriptions]] section has them")
    yield Mistake(f"replay --handler json:loads --topic {topic} --group nobody", 2, told)
    told = ("--handler = 'nowhere:bill'", "expected package.module:function", "No module named")
    yield Mistake(f"replay --handler nowhere:bill --topic {topic} --group {shop.deployed.group}", 2, told)


def of_stores(shop: Shop) -> Iterator[Mistake]:
    """Redis, databases and files."""
    own, dead = shop.redis, shop.dead
    at = own.rpartition("@")[2].partition("/")[0]
    redis, ledger = "REDIS__URL", "LEDGER__URL"
    remedy = "start Redis, or correct redis.url"
    yield Mistake("status", 3, (dead, "Connection refused", remedy), {redis: f"redis://{dead}/0"})
    yield Mistake("status", 3, ("correct user and password in its URL",), {redis: f"redis://nobody:wrong@{at}/0"})
    yield Mistake("once", 3, ("correct user and password in its URL",), {redis: f"redis://nobody:wrong@{at}/0"})
    told: tuple[str, ...] = ("DB index is out of range", "correct the number of the database")
    yield Mistake("status", 3, told, {redis: own.replace("/0", "/99")})
    told = ("redis.url = ", "expected scheme://user:password@host:port")
    yield Mistake("config check", 2, told, {redis: at})
    empty = shop.folder / "empty.db"
    empty.touch()
    told = ("empty.db lacks a table or column", "run reconciler db upgrade ledger")
    yield Mistake("status", 2, told, {ledger: f"sqlite:///{empty}"})
    told = ("nowhere.db", "unable to open database file", "let reconciler db upgrade make it", "or correct its URL")
    yield Mistake("status", 3, told, {ledger: f"sqlite:///{shop.folder}/nowhere.db"})
    yield Mistake("list candidates", 3, told, {ledger: f"sqlite:///{shop.folder}/nowhere.db"})
    yield Mistake("status", 3, told, {"PRODUCERS__0__OUTBOX_URL": f"sqlite:///{shop.folder}/nowhere.db"})
    told = (f"postgresql://{dead}/ledger", "Connection refused", "start the database, or correct its URL")
    yield Mistake("status", 3, told, {ledger: f"postgresql://reconciler@{dead}/ledger"})
    told = ("ledger.url = (hidden)", "expected scheme://user:password@host")
    yield Mistake("config check", 2, told, {ledger: "postgresql://u:a@b@h/d"})
    yield Mistake("doctor", 1, ("outbox of", "reconciler db upgrade outbox"), {
        "PRODUCERS__0__OUTBOX_URL": f"sqlite:///{shop.deployed.inbox}"
    })  # fmt: skip
    yield Mistake("doctor", 1, ("inbox of", "reconciler db upgrade inbox"), {
        "SUBSCRIPTIONS__0__INBOX_URL": f"sqlite:///{shop.deployed.outbox}"
    })  # fmt: skip
    yield Mistake("doctor", 1, ("history", "/proc/history"), {"HISTORY__PATH": "/proc/history"})


def of_words(shop: Shop) -> Iterator[Mistake]:
    """What is typed."""
    taken, open_ = shop.name_servers, f"0.0.0.0:{free_port()}"
    unknown = ("unknown setting", "remove it or correct its spelling")
    told: tuple[str, ...] = ("RECONCILER_ROKCETMQ__NAME_SERVERS", *unknown)
    yield Mistake("config check", 2, told, {"ROKCETMQ__NAME_SERVERS": "a:9876"})
    told = ("grace_periods_seconds", *unknown)
    yield Mistake("config check", 2, told, {}, ("grace_period_seconds", "grace_periods_seconds"))
    yield Mistake("config check", 2, ("no valid TOML", "at line"), {}, ("[redis]", "[redis"))
    told = ("/nowhere.toml", "no such file", "name one with --config")
    yield Mistake("status", 2, told, {"CONFIG": "/nowhere.toml"})
    yield Mistake("stauts", 2, ("No such command 'stauts'", "Did you mean 'status'"))
    yield Mistake("status --rounds-witihn 5", 2, ("--rounds-witihn", "--rounds-within"))
    told = (NOBODYS_KEY, "no outbox and no verdict has it", "see reconciler explain")
    yield Mistake(f"repair {NOBODYS_KEY}", 2, told)
    yield Mistake(f"dismiss {NOBODYS_KEY}", 2, ("--reason = ''", "say what was done instead"))
    yield Mistake("jobs show abc", 2, ("job = 'abc'", "no job has this id", "see reconciler jobs list"))
    yield Mistake(
        "rebuild --since 2999-01-01", 2, ("--since = '2999-01-01T00:00:00Z'", "give a time before the outage")
    )
    yield Mistake("notify ops", 2, ("name = 'ops'", "no such notifier", "no [[notifiers]] section"))
    told = (f"metrics.listen = '{taken}'", "Address already in use", "RECONCILER_METRICS__LISTEN")
    yield Mistake("run", 2, told, {"METRICS__LISTEN": taken})
    yield Mistake("web", 2, (f"web.listen = '{taken}'", "Address already in use"), {"WEB__LISTEN": taken})
    told = (f"web.listen = '{open_}'", "everybody who reaches this address", "set web.users_file")
    yield Mistake("web", 2, told, {"WEB__LISTEN": open_})
    told = ("web.users_file = '/nowhere/users.json'", "no such file", "reconciler web user add NAME --role admin")
    yield Mistake("web", 2, told, {"WEB__LISTEN": shop.dead, "WEB__USERS_FILE": "/nowhere/users.json"})


KINDS: tuple[Callable[[Shop], Iterator[Mistake]], ...] = (of_brokers, of_topics, of_stores, of_words)


@pytest.mark.parametrize("secured", [pytest.param("5.3.3", marks=marks("5.3.3"))], indirect=True)
def test_the_first_line_of_the_answer_to_each_mistake_names_thing_value_and_remedy(
    secured: Secured, redis_server: RedisServer, tmp_path: Path
) -> None:
    with secured.shop(tmp_path / "shop", redis_server) as deployed:
        shop = Shop(deployed, secured)
        mistakes = [mistake for kind in KINDS for mistake in kind(shop)]
        assert len(mistakes) >= 50
        wrong = []
        for mistake in mistakes:
            ended = shop.answer_to(mistake)
            line = first_line(ended, mistake.command)
            missing = [text for text in mistake.told if text not in line]
            if missing or ended.exit_code != mistake.exit_code:
                wrong.append([mistake.command, dict(mistake.variables), ended.exit_code, line, missing])
        assert not wrong, json.dumps(wrong, indent=1)
